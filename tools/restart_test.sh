#!/usr/bin/env bash
# restart_test.sh [N [PROGRAM]]: N times (20) a random rank of a run under `athanor launch --restart` is
# killed, every third time while a checkpoint is written, else at a random moment. Each run must go on by
# itself within 30 s, with fewer ranks or a spare, and end with 0 and the bits of an undisturbed run. Where the model is laid out anew (tp 2 becomes 1), its steps
# must be those of a run that is resumed by hand from the same checkpoint on the same layout.
# SEED=S repeats the choices of an earlier test.
here=$(cd "$(dirname "$0")/.." && pwd)
kills=${1:-20}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
. "$here/tests/cli/ranks.sh"
SEED=${SEED:-$$}
RANDOM=$SEED
make_data
write_ranks_config d.yaml
common="train.steps=200 train.global_batch_size=12 checkpoint.every=5 checkpoint.keep=100 eval.every=0 sample.every=0"
layouts=("4 parallel.zero=1" "3 parallel.zero=3" "2 parallel.tp=2" "4 parallel.tp=2 parallel.zero=1"
    "4 parallel.pp=2 sample.prompts=[]")
anew_at=2 # the layout that one rank cannot have

for i in "${!layouts[@]}"; do
    layout=(${layouts[$i]})
    expect 0 launch --ranks "${layout[0]}" --timeout 60 -- train d.yaml run="want$i" $common "${layout[@]:1}"
    results step "want$i" >"want$i.steps"
done

# The ranks of a launcher, without its spares.
ranks_of() {
    local pid
    for pid in $(rank_ids "$1"); do
        [ "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-14)" = "athanor train " ] && echo "$pid"
    done
}
restarted() { grep -q '"kind": "restart"' "$1/metrics.jsonl" 2>/dev/null || is_gone "$launcher"; }
is_saving() { compgen -G "$1/checkpoints/.tmp-*" >/dev/null || is_gone "$launcher"; }
await_saving() { until is_saving "$1"; do :; done; }

# by_hand RUN STEP KEYS...: what RUN did after STEP is what a copy of it does that is resumed there.
by_hand() {
    local run=$1 step=$2 dir n
    shift 2
    cp -r "$run" hand
    for dir in hand/checkpoints/step-*; do
        n=${dir##*step-}
        [ "$((10#$n))" -le "$step" ] || rm -r "$dir"
    done
    expect 0 train d.yaml run=hand $common "$@"
    results step hand >hand.steps
    results step "$run" | cmp - hand.steps || fail "it is not what a run resumed by hand at step $step does"
    rm -r hand
}

slowest=0 done_kills=0 saves=0 spared=0 anew=0 tries=0
while [ $done_kills -lt "$kills" ] && [ $failures -eq 0 ] && [ $tries -lt $((kills * 4)) ]; do
    i=$((tries % ${#layouts[@]})) run=r$tries layout=(${layouts[$((tries % ${#layouts[@]}))]}) spares=0
    [ $((tries % 4)) = 1 ] && spares=1
    tries=$((tries + 1))
    last="run $run (${layout[*]}, $spares spares, seed $SEED)"
    "$athanor" launch --ranks "${layout[0]}" --timeout 60 --restart 3 --spares $spares -- train d.yaml run="$run" \
        $common "${layout[@]:1}" >out 2>err </dev/null &
    launcher=$!
    await_step "$run"
    saving=0
    if [ $((done_kills % 3)) = 0 ]; then await_saving "$run" && saving=1; else sleep_part 400; fi
    ids=($(ranks_of $launcher))
    began=$(now_ms)
    if [ ${#ids[@]} = "${layout[0]}" ] && kill -9 "${ids[$((RANDOM % ${layout[0]}))]}" 2>kill.err; then
        await restarted "$run"
        took=$(($(now_ms) - began))
    fi
    status=0
    wait $launcher || status=$?
    [ $status = 0 ] || fail "exit $status"
    event=$(grep '"kind": "restart"' "$run/metrics.jsonl") || { rm -r "$run"; continue; } # it was done before
    done_kills=$((done_kills + 1)) saves=$((saves + saving))
    [ $took -gt $slowest ] && slowest=$took
    [ "$(echo "$event" | wc -l)" = 1 ] || fail "one kill, and several restarts"
    grep -q 'was killed by signal 9 (Killed); starting again with' err || fail "what changed is not said"
    if [ $spares = 1 ]; then
        spared=$((spared + 1))
        grep -q 'spare 0 is ready' err || fail "the spare did not take over"
    elif [ $i = $anew_at ]; then
        anew=$((anew + 1))
        by_hand "$run" "$(echo "$event" | grep -o '"step": [0-9]*' | sed 's/.* //')" parallel.dp=1 parallel.tp=1
    fi
    [ $i = $anew_at ] && [ $spares = 0 ] || results step "$run" | cmp "want$i.steps" - || fail "the steps differ"
    rm -r "$run"
done
[ $done_kills = "$kills" ] || fail "only $done_kills of $kills kills met a run"
[ $slowest -lt 30000 ] || fail "a run took $slowest ms to go on"
echo "$done_kills kills ($saves inside a save, $spared with a spare, $anew laid out anew), seed $SEED; each run went on within $slowest ms"
finish
