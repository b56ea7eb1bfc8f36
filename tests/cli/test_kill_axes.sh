#!/usr/bin/env bash
# kill -9 of any rank under each axis: the others end and name it, no checkpoint is lost, and the run goes on from
# its newest one to the results of an undisturbed run. (tools/kill_ranks_test.sh kills at random moments.) $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
keys=(train.steps=400 checkpoint.every=2 checkpoint.keep=3 eval.every=0 sample.every=0 sample.prompts=[])

start() { # RUN RANKS KEYS...
    local run=$1 n=$2
    shift 2
    "$athanor" launch --ranks "$n" --timeout 60 -- train d.yaml run="$run" "${keys[@]}" "$@" >out 2>err </dev/null &
}
saved_since() { [ "$(newest_step "$1")" -gt "$2" ]; }
# kill_rank RUN RANKS RANK KEYS...: starts the run, and kills the rank when something has been saved.
kill_rank() {
    local run=$1 n=$2 rank=$3 before launcher ids
    shift 3
    before=$(newest_step "$run")
    start "$run" "$n" "$@"
    launcher=$!
    last="$*, rank $rank killed behind step $before"
    await saved_since "$run" "$before" || fail "nothing is saved"
    ids=($(rank_ids $launcher))
    before=$(newest_step "$run")
    kill -9 "${ids[$rank]}" || fail "there is no rank $rank"
    wait $launcher 2>wait.err
    [ $? = 6 ] || fail "another exit status"
    has err "rank $rank was killed by signal 9 (Killed); all ranks have ended"
    [ "$(newest_step "$run")" -ge "$before" ] || fail "step $before is lost"
    expect 0 verify checkpoint "$run"
}

# The undisturbed run has no more steps than the killed one needs to be killed.
while IFS=: read -r name n layout; do
    for ((rank = 0; rank < n; rank++)); do kill_rank "$name" "$n" "$rank" $layout; done
    from=$(newest_step "$name")
    keys[0]=train.steps=$((from + 2))
    start "$name" "$n" $layout
    wait $! || { last="$layout, goes on" && fail "exit $?"; }
    event start "$name/metrics.jsonl" | tail -n 1 | grep -q "\"step\": $from," || fail "it does not go on from step $from"
    start "$name-want" "$n" $layout
    wait $! || { last="$layout, undisturbed" && fail "exit $?"; }
    results step "$name-want" >want
    [ "$(wc -l <want)" = $((from + 2)) ] || fail "the undisturbed run has other steps"
    results step "$name" | cmp -s want - || fail "$layout: the killed run differs from an undisturbed one"
    keys[0]=train.steps=400
    echo "$layout: $n ranks killed, $((from + 2)) steps the same"
done <<'AXES'
dp:2:parallel.dp=2
ep:2:parallel.ep=2 model.num_experts=4 model.num_experts_per_tok=2
ep-all:4:parallel.ep=2 parallel.pp=2 parallel.zero=1 model.num_experts=4 model.num_experts_per_tok=2
zero:2:parallel.zero=3
tp:2:parallel.tp=2 parallel.sp=true
cp:2:parallel.cp=2 parallel.cp_kind=ring
pp:2:parallel.pp=2
all:8:parallel.pp=2 parallel.cp=2 parallel.tp=2
AXES
finish
