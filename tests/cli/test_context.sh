#!/usr/bin/env bash
# Context parallelism (parallel.cp): ranks that share the tokens of sequences train to one rank's losses in the memory
# that was planned, beside all other axes; runs go on under another layout; what cannot be shared is refused by name.
# $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_documents
[ "$(grep -o '"documents": [0-9]*' set/train/manifest.json | head -n 1 | tr -dc 0-9)" -gt 100 ] || fail "there are no documents"
write_ranks_config d.yaml
sed -i 's/steps: 12/steps: 4/; s/every: 10, batches: 2/every: 2, batches: 3/; s/^sample: .*/sample: {every: 0}/' d.yaml
ring="parallel.cp=2 parallel.cp_kind=ring"

# losses RUN: at each step, and of the validation after it; a run that ended there and went on has it twice.
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

# ---- all kinds, alone and beside other axes; with documents of their own masks and places ----
train_on 0 1 run=one
documents="data.document_mask=true data.packing=bestfit"
train_on 0 1 run=documents $documents
for layout in "2 parallel.cp=2" "2 $ring" "2 parallel.cp=2 parallel.cp_kind=ulysses" "4 $ring parallel.zero=3 train.recompute=full" \
    "4 parallel.cp=4 parallel.zero=2 train.recompute=selective" "4 $ring parallel.tp=2 parallel.sp=true" \
    "4 $ring parallel.pp=2 parallel.zero=1" "8 parallel.cp=2 parallel.pp=2 parallel.tp=2"; do
    train_on 0 "$layout" run=got --fresh
    as_one got one
    train_on 0 "$layout" run=got $documents --fresh
    as_one got documents
done
grep -q '"cp": 2' got/plan.json || fail "the plan does not say how many ranks share tokens"

# Ranks that share tokens in one way give the same bits whatever else shares.
digests() { results step "$1" | grep -o '"digest": "[^"]*"'; }
train_on 0 "2 $ring" run=got --fresh
digests got >want
[ "$(wc -l <want)" = 4 ] || fail "no 4 digests"
train_on 0 "8 $ring parallel.dp=4 parallel.zero=1 parallel.dp_replicate=2 train.recompute=selective" run=got --fresh
digests got | cmp -s want - || fail "dp changes the digests of a ring"

# ---- a run goes on under another layout ----
train_on 0 "2 $ring" run=moved train.steps=2 optim.schedule.decay_steps=2
train_on 0 "4 parallel.tp=2 parallel.zero=1" run=moved train.steps=3 optim.schedule.decay_steps=2
train_on 0 "4 parallel.cp=4" run=moved train.steps=4 optim.schedule.decay_steps=2
train_on 0 1 run=stayed optim.schedule.decay_steps=2
as_one moved stayed

# ---- the layout is tried before it trains ----
sed -i 's/verify: false/verify: true/' d.yaml
train_on 0 "2 $ring" run=tried train.steps=1 $documents
has err "layout dp1 cp2 ring computes what one rank does"
sed -i 's/verify: true/verify: false/' d.yaml

# ---- what cannot be shared ----
refused() { # KEYS... WORDS WHERE
    local n=$#
    train_on 2 "2 parallel.cp=2 ${*:1:n-2}" run=no
    has err "${*:n-1:1}"
    has err "(${*:n:1})"
}
refused train.seq_len=30 "do not divide into 4 pieces" train.seq_len
refused train.objective=dpo "losses of whole samples" train.objective
refused "parallel.cp_kind=ulysses model.num_key_value_heads=1" "heads or key/value heads that cp" parallel.cp_kind
refused model.resid_pdrop=0.1 "dropout, which is drawn by the place of a row" model.resid_pdrop
refused model.attn_pdrop=0.1 "unless parallel.cp_kind is ulysses" model.attn_pdrop
refused model.num_nextn_predict_layers=1 "modules of further tokens" model.num_nextn_predict_layers
moe="model.model_type=mixtral model.num_local_experts=4 model.num_experts_per_tok=2 model.router_aux_loss_coef=0.1"
refused "$moe" "the load of a micro-batch or a sequence" train.router.balance
refused "$moe train.router.balance=none train.router.capacity_factor=1" "a limit on what experts take" train.router.capacity_factor

finish
