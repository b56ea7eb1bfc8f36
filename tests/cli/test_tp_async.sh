#!/usr/bin/env bash
# What tensor-parallel ranks send beside their products (parallel.tp_async), and results of collectives that are kept
# (train.keep_collectives): the losses are those of the plain form, what is touched is what was planned, less is sent where
# collectives are kept, and what does not go with either is refused by name. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_documents
write_ranks_config d.yaml
sed -i 's/steps: 12/steps: 3/; s/every: 10, batches: 2/every: 0/; s/^sample: .*/sample: {every: 0}/' d.yaml
sp="parallel.sp=true" async="parallel.tp_async=true"

losses() { results step "$1" | sed -E 's/.*"loss": ([^,]*), "grad_norm": ([^,]*).*/\1 \2/'; }
# planned_is_touched RUN
planned_is_touched() {
    event end "$1/metrics.jsonl" >end
    local planned touched
    planned=$(grep -o '"planned_by_rank": [^]]*' end | sed 's/.*: //')
    touched=$(grep -o '"touched_by_rank": [^]]*' end | sed 's/.*: //')
    [ -n "$planned" ] && [ "$planned" = "$touched" ] || fail "touched other than was planned: $planned, $touched"
}
# sent KEYS...: bytes that a rank sends in a step, and those that are kept for the backward.
sent() {
    expect 0 plan d.yaml "$@" --json
    bytes=$(grep -o '"sent_bytes": {[^}]*}' out | grep -o '[0-9]*' | awk '{ n += $1 } END { print n }')
    saved=$(field saved_bytes out)
}

# ---- the plain form, beside all other axes ----
for layout in "2 parallel.tp=2" "2 parallel.tp=2 $sp" "4 parallel.tp=2 $sp parallel.zero=3 train.recompute=selective" \
    "4 parallel.tp=2 $sp train.recompute=full parallel.zero=1" "4 parallel.tp=2 parallel.pp=2" \
    "4 parallel.tp=2 $sp parallel.cp=2 parallel.cp_kind=ring"; do
    train_on 0 "$layout" run=plain --fresh
    train_on 0 "$layout $async" run=async --fresh
    [ "$(losses plain | wc -l)" = 3 ] && losses plain | cmp -s - <(losses async) || fail "other losses with $layout"
    planned_is_touched async
done

# ---- kept results of collectives: the same losses in fewer bytes and more memory ----
for layout in "parallel.tp=2 train.recompute=full" "parallel.tp=2 $sp" "parallel.cp=2 train.recompute=full"; do
    train_on 0 "2 $layout" run=plain --fresh
    train_on 0 "2 $layout train.keep_collectives=true" run=kept --fresh
    losses plain | cmp -s - <(losses kept) || fail "other losses with $layout"
    planned_is_touched kept
    sent $layout
    all=$bytes least=$saved
    sent $layout train.keep_collectives=true
    [ "$bytes" -lt "$all" ] && [ "$saved" -gt "$least" ] || fail "$layout: $all and $bytes sent, $least and $saved kept"
done

# ---- the layout is tried before it trains, and among all ----
sed -i 's/verify: false/verify: true/' d.yaml
train_on 0 "2 parallel.tp=2 $async" run=tried train.steps=1
has err "layout dp1 tp2 async computes what one rank does"
sed -i 's/verify: true/verify: false/' d.yaml
expect 0 verify layouts d.yaml --ranks 4 --steps 2
grep -q " tp2 async" out && grep -q " tp2 sp async" out || fail "async is not tried"

# ---- what does not go with it ----
refused() { # WORDS WHERE LAYOUT KEYS...
    train_on 2 "$3" run=no "${@:4}"
    has err "$1 not there with parallel.tp_async"
    has err "($2"
    [ ! -e no ] || fail "a run was begun"
}
refused "adapters, which add to a product before it is summed, are" lora.rank "2 parallel.tp=2 $async" lora.rank=2 \
    "model={from: $work/plain/checkpoints/step-3}"
refused "zb-h1 and zb-v, for which weight gradients are made apart, are" parallel.pp_schedule \
    "4 parallel.tp=2 parallel.pp=2 parallel.pp_schedule=zb-h1 $async"
refused "with parallel.sp, kept collectives, of which pieces leave no whole one, are" train.keep_collectives \
    "2 parallel.tp=2 $sp $async train.keep_collectives=true"
finish
