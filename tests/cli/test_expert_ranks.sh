#!/usr/bin/env bash
# Expert parallelism (parallel.ep): ranks that share out experts train to one rank's losses in the memory that was
# planned, beside all other axes; a run goes on under another layout; a rank that is killed loses nothing; what cannot be
# shared out is refused by name. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
sed -i 's/steps: 12/steps: 4/; s/every: 10, batches: 2/every: 2, batches: 3/; s/^sample: .*/sample: {every: 0}/
    s/^model: .*/model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 24, num_experts: 8, num_experts_per_tok: 2, norm_topk_prob: true, num_shared_experts: 1, router_aux_loss_coef: 0.1, vocab_size: auto, max_position_embeddings: 64}/' d.yaml
sed -i "s/precision: fp32/router: {balance: none}, &/" d.yaml

losses() {
    results 'step|valid' "$1" | grep -v '"event": "valid", "step": 3,' |
        sed -E 's/.*"loss": ([^,]*), "grad_norm": ([^,]*).*/\1 \2/; s/.*"val_loss": ([^,}]*).*/\1 0/'
}
# as_one RUN ONE: losses, norms, and the memory of the last part of the run.
as_one() {
    paste <(losses "$2") <(losses "$1") | awk '
        function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * b }
        far($1, $3) || far($2, $4) { exit 1 } END { exit NR != 6 }' || fail "the losses of $1 are others than of $2"
    event end "$1/metrics.jsonl" >end
    local planned touched
    planned=$(grep -o '"planned_by_rank": [^]]*' end | sed 's/.*: //')
    touched=$(grep -o '"touched_by_rank": [^]]*' end | sed 's/.*: //')
    [ -n "$planned" ] && [ "$planned" = "$touched" ] || fail "touched other than was planned: $planned, $touched"
}

# ---- alone and beside other axes ----
train_on 0 1 run=one
for layout in "2 parallel.ep=2" "4 parallel.ep=4 parallel.ep_load=1" "4 parallel.ep=2 parallel.zero=1 train.recompute=selective" \
    "4 parallel.ep=2 parallel.zero=2 train.micro_batch_size=2" "4 parallel.ep=4 parallel.zero=3 train.recompute=full" \
    "4 parallel.ep=2 parallel.zero=3 parallel.dp_replicate=2" "4 parallel.ep=2 parallel.tp=2 parallel.sp=true" \
    "4 parallel.ep=4 parallel.cp=2 parallel.cp_kind=ring" "4 parallel.ep=2 parallel.pp=2 parallel.zero=1" \
    "2 parallel.ep=2 train.deterministic=false"; do
    train_on 0 "$layout" run=got --fresh
    as_one got one
done

finish
