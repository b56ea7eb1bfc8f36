#!/usr/bin/env bash
# `athanor verify layouts`, and the same before several ranks train: odd numbers of ranks, rows that
# sequence-parallel ranks cannot share, and ranks that are processes.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
sed -i '/^parallel:/d' d.yaml
small="model.num_hidden_layers=1 --steps 2"

expect 0 verify layouts d.yaml --ranks 3 $small
has out "ok: 17 layouts, 12 of them with one rank's digest: "
has out "  dp3 zero3"
expect 0 launch --ranks 2 -- verify layouts d.yaml train.seq_len=31 train.micro_batch_size=1 $small
has out "ok: 5 layouts" # 31 rows: no layout with sp
lacks out "tp2 sp"

# Four sequences of 31 tokens divide over four ranks, two do not: the trial before the run takes four.
train_on 0 "4 parallel.tp=4 parallel.sp=true" run=odd train.steps=2 train.seq_len=31 \
    train.micro_batch_size=4
has err "layout dp1 tp4 sp computes what one rank does"
train_on 2 "2 parallel.tp=2 parallel.sp=true" run=rows train.seq_len=31
has err "a micro-batch of 1 sequence of 31 tokens does not divide over 2 sequence-parallel ranks"
has err "where: command line (parallel.sp)"
has err "hint: parallel.sp=false, or train.seq_len=30"
[ ! -e rows ] || fail "a run was begun"
finish
