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
sed -i "s/precision: fp32/router: {balance: none}, &/; s/lr: 1.0e-2/lr: 2.0e-3/" d.yaml

losses() {
    results 'step|valid' "$1" | grep -v '"event": "valid", "step": 3,' |
        sed -E 's/.*"loss": ([^,]*), "grad_norm": ([^,]*).*/\1 \2/; s/.*"val_loss": ([^,}]*).*/\1 0/'
}
# as_one RUN ONE: losses, the first norm, and the memory of the last part of the run.
as_one() {
    paste <(losses "$2") <(losses "$1") | awk '
        function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * b }
        far($1, $3) || (NR == 1 && far($2, $4)) { exit 1 } END { exit NR != 6 }' || fail "the losses of $1 are others than of $2"
    event end "$1/metrics.jsonl" >end
    local planned touched
    planned=$(grep -o '"planned_by_rank": [^]]*' end | sed 's/.*: //')
    touched=$(grep -o '"touched_by_rank": [^]]*' end | sed 's/.*: //')
    [ -n "$planned" ] && [ "$planned" = "$touched" ] || fail "touched other than was planned: $planned, $touched"
}

# ---- alone and beside other axes ----
train_on 0 1 run=one
for layout in "2 parallel.ep=2" "4 parallel.ep=4 parallel.ep_load=1" "4 parallel.ep=2 parallel.zero=1 train.recompute=selective" \
    "4 parallel.ep=2 parallel.zero=2" "4 parallel.ep=4 parallel.zero=3 train.recompute=full" \
    "4 parallel.ep=2 parallel.zero=3 parallel.dp_replicate=2" "4 parallel.ep=2 parallel.tp=2 parallel.sp=true" \
    "4 parallel.ep=4 parallel.cp=2 parallel.cp_kind=ring" "4 parallel.ep=2 parallel.pp=2 parallel.zero=1" \
    "2 parallel.ep=2 train.deterministic=false"; do
    train_on 0 "$layout" run=got --fresh
    as_one got one
done

grep -q '"ep": 2' got/plan.json || fail "the plan does not say how many ranks share out experts"
has out "dp 2, ep 2"

# Ranks that share out experts in one way give the same bits whatever else shares; in one round those of one rank.
digests() { results step "$1" | grep -o '"digest": "[^"]*"'; }
digests one >want
[ "$(wc -l <want)" = 4 ] || fail "no 4 digests"
for layout in "2 parallel.ep=2 parallel.ep_load=2" "4 parallel.ep=4 parallel.ep_load=4 parallel.zero=3" \
    "4 parallel.ep=2 parallel.ep_load=2 parallel.pp=2 train.recompute=selective"; do
    train_on 0 "$layout" run=got --fresh
    digests got | cmp -s want - || fail "one round changes the digests"
done
train_on 0 "2 parallel.ep=2" run=got --fresh
digests got >want
for layout in "4 parallel.ep=2 parallel.zero=3" "8 parallel.ep=2 parallel.dp_replicate=2 parallel.zero=1 train.recompute=full" \
    "4 parallel.ep=2 parallel.pp=2"; do
    train_on 0 "$layout" run=got --fresh
    digests got | cmp -s want - || fail "dp, zero or pp change the digests of ep 2"
done

# So few rows that one rank multiplies them one by one: ranks do, too, though each has fewer experts.
train_on 0 1 run=few train.seq_len=16
digests few >want
train_on 0 "2 parallel.ep=2 parallel.ep_load=2" run=got train.seq_len=16 --fresh
digests got | cmp -s want - || fail "one round of few rows changes the digests"

# A module of further tokens, whose join is behind a part beside experts: gradients of units take turns in two slots.
train_on 0 1 run=ahead model.num_nextn_predict_layers=2
digests ahead >want
for zero in 1 2 3; do
    train_on 0 "2 parallel.ep=2 parallel.ep_load=2 parallel.zero=$zero" run=got model.num_nextn_predict_layers=2 --fresh
    digests got | cmp -s want - || fail "zero $zero changes the digests of a model with modules"
done

# The balance of the whole step; limits on what experts take; 16 bits.
for keys in "train.router.balance=global" "train.router.balance=sequence train.router.capacity_factor=0.75 model.router=sigmoid"; do
    train_on 0 1 run=ways $keys
    train_on 0 "4 parallel.ep=4 parallel.zero=3" run=got $keys --fresh
    as_one got ways
    rm -r ways
done
train_on 0 "4 parallel.ep=4 parallel.zero=3" run=got train.precision=bf16 --fresh
grep -q '"rounds": \[[1-9]' got/metrics.jsonl || fail "no rounds are told"

# ---- a router that sends everything to one expert: more rounds, the same memory ----
# Equal scores pick the first expert, and with one pick of weight 1 the router has no gradient.
train_on 0 1 run=begun train.steps=1 optim.schedule.decay_steps=1 model.num_experts_per_tok=1 model.num_shared_experts=0
file=$(echo begun/checkpoints/step-*1/model.safetensors)
header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
for l in 0 1; do
    range=$(dd if="$file" bs=1 skip=8 count="$header" 2>log | grep -o "\"model.layers.$l.mlp.gate.weight\":{[^}]*" | grep -o '\[[0-9]*,[0-9]*\]$' | tr -d '[]')
    [ -n "$range" ] || fail "there is no router in layer $l"
    dd if=/dev/zero of="$file" bs=1 seek=$((8 + header + ${range%,*})) count=$((${range#*,} - ${range%,*})) conv=notrunc 2>log
done
collapsed="model={from: $(dirname "$file")}"
train_on 0 1 run=all-to-one "$collapsed"
grep -q '"load": \[8.0, 8.0\]' all-to-one/metrics.jsonl || fail "not all go to one expert"
train_on 0 "4 parallel.ep=4" run=got "$collapsed" --fresh
as_one got all-to-one
[ "$(grep -c '"rounds": \[8.0, 8.0\]' got/metrics.jsonl)" = 4 ] || fail "not 8 rounds of half an even load"

# ---- a run goes on under another layout ----
train_on 0 "4 parallel.ep=4 parallel.zero=1" run=moved train.steps=2 optim.schedule.decay_steps=2
train_on 0 "4 parallel.ep=2 parallel.zero=3" run=moved train.steps=3 optim.schedule.decay_steps=2
train_on 0 "2 parallel.ep=2" run=moved train.steps=4 optim.schedule.decay_steps=2
train_on 0 1 run=stayed optim.schedule.decay_steps=2
as_one moved stayed
train_on 0 "2 parallel.ep=2 parallel.ep_load=2" run=same train.steps=2 optim.schedule.decay_steps=2
train_on 0 1 run=same optim.schedule.decay_steps=2
for f in model.safetensors state/optimizer.safetensors; do
    [ -e stayed/checkpoints/step-4/$f ] || continue
    cmp -s same/checkpoints/step-4/$f stayed/checkpoints/step-4/$f || fail "$f is not one rank's"
done

# ---- a rank that is killed ----
"$athanor" launch --ranks 2 --timeout 30 -- train d.yaml run=killed parallel.ep=2 parallel.ep_load=2 train.steps=400 checkpoint.every=1 \
    optim.schedule.decay_steps=2 >out 2>err &
launcher=$!
last="a killed rank"
await_step killed
await test -d killed/checkpoints/step-2
kill -9 "$(rank_ids $launcher | tr ' ' '\n' | grep . | tail -n 1)"
wait $launcher && fail "a rank was killed, and nobody noticed"
[ "$(newest_step killed)" -ge 2 ] || fail "checkpoints are gone"
steps=$(($(newest_step killed) + 2))
train_on 0 "2 parallel.ep=2 parallel.ep_load=2" run=killed train.steps=$steps checkpoint.every=1 optim.schedule.decay_steps=2
train_on 0 1 run=whole train.steps=$steps checkpoint.every=1 optim.schedule.decay_steps=2
[ "$(digests killed | tail -n 2)" = "$(digests whole | tail -n 2)" ] || fail "a killed run goes on elsewhere"

# ---- the layout is tried before it trains ----
sed -i 's/verify: false/verify: true/' d.yaml
train_on 0 "2 parallel.ep=2" run=tried train.steps=1
has err "layout dp2 ep2 computes what one rank does"
sed -i 's/verify: true/verify: false/' d.yaml

# ---- what cannot be shared out ----
refused() { # KEYS... WORDS WHERE
    local n=$#
    train_on 2 "4 parallel.ep=4 ${*:1:n-2}" run=no
    has err "${*:n-1:1}"
    has err "(${*:n:1}"
}
refused parallel.dp_replicate=2 "does not divide the 2 ranks" parallel.ep
refused model.num_experts=6 "cannot share out 6 experts" parallel.ep
refused model.num_experts=0 "models without experts" parallel.ep
refused train.objective=dpo "objectives with a reference" train.objective
refused 'sample.every=1 sample.prompts=["a"]' "samples are not there with parallel.ep" sample.prompts
refused "lora.rank=2 model.from=begun/checkpoints/step-1" "adapters" lora.rank

finish
