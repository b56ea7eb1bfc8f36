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
cp out want
expect 0 launch --ranks 3 --json -- config print c.yaml
cmp -s out want || fail "--json of launch is not that of the command"
expect 0 launch --ranks 2 --json -- tok encode -- char.json text.txt
has out '{"ids": ['
expect 2 launch --ranks 2 --json -- config print c.yaml train.stepz=1
has out '{"error": {"kind": "usage"'
[ "$(wc -l <out)" = 1 ] || fail "more than the error of rank 0"
expect 2 launch --ranks 3 -- config print c.yaml train.stepz=1
[ "$(grep -c 'error: ' err)" = 1 ] || fail "what all say is said once, and the launcher adds nothing"
expect 3 launch --ranks 2 -- tok encode text.txt hi
expect 0 launch --ranks 1 -- --version

# Where a daemon has closed them, no file or memory takes the place of standard input and output.
last="launch with closed input and output"
"$athanor" launch --ranks 2 -- train c.yaml run=closed train.steps=4 <&- >&- 2>err
event end closed/metrics.jsonl >closed.end || fail "it does not train to its end"
has err "cannot write standard output"

expect 2 launch --ranks 2 -- train -
has err 'each of 2 ranks reads the config, and standard input can be read once'

# A limit of files is an error like others.
(
    ulimit -f 20
    expect 1 launch --ranks 2 -- train c.yaml run=limited
    has err 'cannot make the shared segment'
    has err 'hint: ulimit -f'
    expect 1 data build text.txt -o limited tokenizer=char.json
    exit $failures
) || fail "a limit of files"

# So is one of open files, also where there are more ranks than it allows.
(
    ulimit -n 12
    expect 1 launch --ranks 20 -- --version
    has err 'error: cannot make a pipe for rank '
    has err 'hint: ulimit -n'
    exit $failures
) || fail "a limit of open files"

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
    await three_run "$@" || fail "there are no three ranks"
}
# Three children of the launcher have become the program with these arguments.
three_run() {
    local n=0
    ranks=$(cat /proc/$launcher/task/$launcher/children) # in the order of their birth
    for pid in $ranks; do
        [ "$(tr '\0' ' ' <"/proc/$pid/cmdline")" = "athanor $* " ] && n=$((n + 1))
    done 2>/dev/null
    [ $n = 3 ]
}
# Ranks that open a FIFO without a writer.
mkfifo fifo
stuck=(tok train fifo -o none.json --kind char)
# Ranks that train together.
training=(train c.yaml train.steps=1000000 train.global_batch_size=6 train.micro_batch_size=2)
# ended STATUS: the launcher ends so, long before the ten minutes that ranks wait for each other, and
# no rank is left.
ended() {
    local want=$1 got=0
    await_end $launcher
    wait $launcher || got=$?
    [ $got -eq "$want" ] || fail "exit $got, not $want"
    for pid in $ranks; do is_gone $pid || fail "rank $pid lives"; done
}

# A rank that is killed takes the others down, and is named.
start_long "${stuck[@]}"
kill -9 "$(echo $ranks | cut -d' ' -f2)"
ended 6
has err 'athanor: error: rank 1 was killed by signal 9 (Killed); all ranks have ended'
rm -rf run
start_long "${training[@]}"
await_step run
kill -9 "$(echo $ranks | cut -d' ' -f3)"
ended 6
grep -qxF 'athanor: error: rank 2 was killed by signal 9 (Killed)' err || fail "rank 0 does not say it"
lacks err '[rank 1]'
has err 'athanor: error: rank 2 was killed by signal 9 (Killed); all ranks have ended'

# In JSON it is said once, by the launcher, which may be all that is left to say it.
for victim in 1 2; do
    rm -rf run
    start_long "${training[@]}" --json
    await_step run
    kill -9 "$(echo $ranks | cut -d' ' -f$victim)"
    ended 6
    tail -n 1 out | grep -q "^{\"error\": {\"kind\": \"rank\", \"message\": \"rank $((victim - 1)) was killed by" ||
        fail "the last object does not say it"
    [ "$(grep -c '"error"' out)" = 1 ] || fail "more than one error object"
done

# Signals go to all ranks, and what they agree on is the status.
start_long "${stuck[@]}"
kill -TERM $launcher
ended 6
has err 'was killed by signal 15 (Terminated)'
rm -rf run
start_long "${training[@]}"
await_step run
kill -TERM $launcher
ended 75
has err 'state saved'

# Ranks do not outlive their launcher.
start_long "${stuck[@]}"
kill -9 $launcher
{ wait $launcher; } 2>/dev/null
await_end $ranks

# Nor do they wait for one that died with it.
rm -rf run
start_long "${training[@]}"
await_step run
kill -STOP $launcher
kill -9 "$(echo $ranks | cut -d' ' -f2)" $launcher
{ wait $launcher; } 2>/dev/null
await_end $ranks
has err "rank 1 has died"

finish
