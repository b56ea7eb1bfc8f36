#!/usr/bin/env bash
# A rank that hangs in training: within the timeout a report says where each rank is, and all end.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml

# stop_rank RANK RANKS KEYS...: of a run that goes on for ever.
stop_rank() {
    local rank=$1 ranks_wanted=$2
    shift 2
    last="a rank that stands still: $*"
    "$athanor" launch --ranks "$ranks_wanted" -- train d.yaml train.steps=1000000 checkpoint.every=0 eval.every=0 \
        sample.every=0 parallel.timeout_s=3 "$@" >out 2>err </dev/null &
    launcher=$!
    await_step run
    ranks=($(rank_ids $launcher))
    kill -STOP "${ranks[rank]}"
    await_end $launcher # ranks wait for ten minutes when they do not know better
    wait $launcher
    got=$?
    [ $got = 6 ] || fail "exit $got, not 6"
    has err "athanor: rank $rank holds up the others: rank "
}

# Stages meet on the side stream, and ranks that share tokens among the ops.
for rank in 1 2; do
    stop_rank $rank 4 parallel.cp=2 parallel.pp=2 "sample={every: 0}"
    rm -rf run
done

stop_rank 1 2
has err 'athanor: rank 1 holds up the others: rank 0 has waited '
has err 'where each rank is, and what it did last'
grep -qE '^  rank 0 .*has waited [0-9.]+ s for rank 1 in ' err || fail "rank 0 is not described"
grep -qE '^  rank 1 .*, in step [0-9]+, at (forward|backward|the|what) ' err || fail "rank 1 is not described"
has err '  the last of rank 1'
has err 'athanor: error: rank 1 holds up the others'
for pid in "${ranks[@]}"; do
    is_gone "$pid" || fail "rank $pid lives"
done

# All together (Ctrl-Z, a suspended job) is no hang, however long it lasts.
rm -rf run
last="ranks that are all stopped for longer than they wait"
"$athanor" launch --ranks 3 -- train d.yaml train.steps=1000000 train.global_batch_size=6 checkpoint.every=0 eval.every=0 \
    sample.every=0 parallel.timeout_s=3 >out 2>err </dev/null &
launcher=$!
await_step run
ranks=$(rank_ids $launcher)
kill -STOP $launcher $ranks
sleep 4
steps=$(wc -l <run/metrics.jsonl)
kill -CONT $ranks $launcher
goes_on() { [ "$(wc -l <run/metrics.jsonl)" -gt $((steps + 100)) ] || is_gone $launcher; }
await goes_on || fail "it does not go on"
kill $launcher
wait $launcher
got=$?
[ $got = 75 ] || fail "exit $got, not 75"
finish
