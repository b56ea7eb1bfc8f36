#!/usr/bin/env bash
# athanor launch: statuses, what is heard of ranks, signals, ranks that die.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
make_data
write_config c.yaml

# One speaks; the status is the one they agree on.
expect 0 launch --ranks 3 -- config print c.yaml --json
[ "$(grep -c '"hidden_size"' out)" = 1 ] || fail "rank 0 alone speaks"
[ ! -s err ] || fail "there is nothing to say"
expect 2 launch --ranks 3 -- config print c.yaml train.stepz=1
[ "$(grep -c 'error: ' err)" = 1 ] || fail "what all say is said once, and the launcher adds nothing"
expect 3 launch --ranks 2 -- tok encode text.txt hi
expect 0 launch --ranks 1 -- --version

# Wrong use.
expect 2 launch -- config print c.yaml
has err 'how many ranks?'
expect 2 launch --ranks 0 -- config print c.yaml
expect 2 launch --ranks 2
expect 2 launch --ranks 2 -- launch --ranks 2 -- config print c.yaml
has err 'does not launch itself'

# start_long ARGS...: a launch of three ranks that last; their ids are in $ranks, that of the launcher
# in $launcher.
start_long() {
    last="athanor launch --ranks 3 -- $*"
    "$athanor" launch --ranks 3 -- "$@" >out 2>err </dev/null &
    launcher=$!
    for _ in $(seq 100); do
        ranks=$(cat /proc/$launcher/task/$launcher/children) # in the order of their birth
        [ "$(grep -la "$2" $(printf '/proc/%s/cmdline ' $ranks) 2>/dev/null | wc -l)" = 3 ] && break
        sleep 0.05
    done
    sleep 0.1
}
# Ranks that open a FIFO without a writer.
mkfifo fifo
stuck=(tok train fifo -o none.json --kind char)
# Ranks that train together.
training=(train c.yaml train.steps=1000000 train.global_batch_size=6 train.micro_batch_size=2)
wait_for_step() {
    for _ in $(seq 100); do grep -q '"step"' run/metrics.jsonl 2>/dev/null && break; sleep 0.05; done
}
# ended STATUS SECONDS: the launcher ends so in time, and no rank is left.
ended() {
    local want=$1 got=0 from
    from=$(now_ms)
    wait $launcher || got=$?
    [ $got -eq "$want" ] || fail "exit $got, not $want"
    [ $(($(now_ms) - from)) -lt $(($2 * 1000)) ] || fail "it took $(($(now_ms) - from)) ms"
    all_gone
}
# No rank is left, or only until somebody waits for it.
all_gone() {
    for pid in $ranks; do
        [ ! -e /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status || fail "rank $pid lives"
    done
}

# A rank that is killed takes the others down, and is named.
start_long "${stuck[@]}"
kill -9 "$(echo $ranks | cut -d' ' -f2)"
ended 6 8
has err 'athanor: error: rank 1 was killed by signal 9 (Killed); all ranks have ended'
start_long "${training[@]}"
wait_for_step
kill -9 "$(echo $ranks | cut -d' ' -f3)"
ended 6 3
grep -qxF 'athanor: error: rank 2 was killed by signal 9 (Killed)' err || fail "rank 0 does not say it"
lacks err '[rank 1]'
has err 'athanor: error: rank 2 was killed by signal 9 (Killed); all ranks have ended'

# Signals go to all ranks, and what they agree on is the status.
start_long "${stuck[@]}"
kill -TERM $launcher
ended 6 3
has err 'was killed by signal 15 (Terminated)'
rm -rf run
start_long "${training[@]}"
wait_for_step
kill -TERM $launcher
ended 75 5
has err 'state saved'

# Ranks do not outlive their launcher.
start_long "${stuck[@]}"
kill -9 $launcher
{ wait $launcher; } 2>/dev/null
sleep 0.2
all_gone

finish
