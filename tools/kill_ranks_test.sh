#!/usr/bin/env bash
# kill_ranks_test.sh [N [PROGRAM]]: kills ranks of training runs N times (50) by SIGKILL and starts the
# runs again; what they compute must equal an undisturbed run, bit for bit, the launcher must end
# soon and name the rank, and no checkpoint may be lost.
#
# A third of the kills is in place of a random file operation (ATHANOR_FAULT=kill:K, most of which are
# of saves; all ranks count, so it may meet several), the others come to a random rank at a random
# time. MPI=1 starts ranks by mpirun, which ends as it likes: only what is left is looked at then.
# SEED=S repeats the choices of an earlier test.
here=$(cd "$(dirname "$0")/.." && pwd)
kills=${1:-50}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
. "$here/tests/cli/ranks.sh"
SEED=${SEED:-$$}
RANDOM=$SEED
make_data
write_ranks_config d.yaml
common="train.steps=24 checkpoint.every=1 eval.every=6 sample.every=0"
layouts=("2 parallel.zero=1" "4 parallel.zero=3" "3 train.global_batch_size=6 parallel.zero=2"
    "4 parallel.tp=2 parallel.sp=true parallel.zero=3" "4 parallel.pp=2 parallel.zero=1 sample.prompts=[]")
if [ -n "${MPI:-}" ]; then layouts=("2 parallel.zero=1" "3 train.global_batch_size=6 parallel.zero=3"); fi

# start RUN LAYOUT: in the background; its process is $!.
start() {
    local run=$1 layout=($2)
    if [ -n "${MPI:-}" ]; then
        mpirun -n "${layout[0]}" "$athanor" train d.yaml run="$run" \
            $common "${layout[@]:1}" >out 2>err </dev/null &
    else
        "$athanor" launch --ranks "${layout[0]}" --timeout 60 -- train d.yaml run="$run" $common \
            "${layout[@]:1}" >out 2>err </dev/null &
    fi
}

for i in "${!layouts[@]}"; do
    began=$(now_ms)
    start "want$i" "${layouts[$i]}"
    wait $! || { last=${layouts[$i]} && fail "exit $?"; }
    took[i]=$(($(now_ms) - began))
    results 'step|valid' "want$i" >"want$i.steps"
done
ATHANOR_FAULT=count:$work/counts expect 0 train d.yaml run=count $common
operations=$(sed -n 's/^kill //p' counts) # of rank 0, about

announced() { { echo 0; event checkpoint "$1/metrics.jsonl" 2>/dev/null | grep -o '"step": [0-9]*' | sed 's/.* //'; } | sort -n | tail -n 1; }
# kill_one RANKS LAUNCHER: a random rank; false when it has ended already. Sets `rank`.
kill_one() {
    rank=$((RANDOM % $1))
    local ids=($(rank_ids "$2"))
    [ ${#ids[@]} = "$1" ] && kill -9 "${ids[$rank]}" 2>kill.err
}
check_left() { # RUN
    local newest
    newest=$(newest_step "$1")
    [ "$newest" = 0 ] || expect 0 verify checkpoint "$1"
    [ "$newest" -ge "$(announced "$1")" ] || fail "step $(announced "$1") was announced, $newest is the newest"
    [ "$newest" -ge "$2" ] || fail "step $2 was there before, $newest is the newest"
}

inside=0 done_kills=0 runs=0 slowest=0
# One start of run $1, killed somewhere: its exit status.
start_and_kill() {
    local run=$1 layout=$2 n=${2%% *} by_fault=0 began status before launcher
    before=$(newest_step "$run")
    rank='[0-9]*'
    [ $((RANDOM % 3)) = 0 ] && by_fault=1
    if [ $by_fault = 1 ]; then export ATHANOR_FAULT=kill:$((RANDOM % operations + 1)); fi
    start "$run" "$layout"
    launcher=$!
    unset ATHANOR_FAULT
    if [ $by_fault = 0 ]; then
        sleep_part "$3"
        if [ -n "${MPI:-}" ]; then kill_one "$n" "$launcher" || true; else kill_one "$n" "$launcher"; fi
    fi
    began=$(now_ms)
    wait $launcher 2>wait.err
    status=$?
    last="run $run ($layout), killed"
    [ $status != 0 ] || return 0
    if [ $by_fault = 0 ] && [ $(($(now_ms) - began)) -gt $slowest ]; then slowest=$(($(now_ms) - began)); fi
    if [ -z "${MPI:-}" ]; then
        [ $status = 6 ] || fail "exit $status, not 6"
        grep -qE "athanor: error: rank $rank was killed by signal 9 \(Killed\); all ranks have ended" err ||
            fail "rank $rank is not named"
    fi
    done_kills=$((done_kills + 1))
    compgen -G "$run/checkpoints/.*" >names && inside=$((inside + 1))
    check_left "$run" "$before"
    return 137
}

while [ $done_kills -lt "$kills" ] && [ $failures -eq 0 ]; do
    i=$((runs % ${#layouts[@]}))
    run=r$runs
    runs=$((runs + 1))
    status=137
    while [ $status = 137 ] && [ $done_kills -lt "$kills" ] && [ $failures -eq 0 ]; do
        start_and_kill $run "${layouts[$i]}" "${took[$i]}" && status=0 || status=$?
    done
    from=$(newest_step $run)
    start $run "${layouts[$i]}"
    wait $! || { last="run $run, to its end" && fail "exit $?"; }
    event start $run/metrics.jsonl | tail -n 1 | grep -q "\"step\": $from," || fail "it does not go on from step $from"
    results 'step|valid' $run | cmp "want$i.steps" - || fail "a killed run differs from an undisturbed one"
    ls -a $run/checkpoints | grep -qE '^\.(tmp|trash|old)-' && fail "a crash left something behind"
    rm -rf "$run"
done
[ $slowest -lt 60000 ] || fail "the launcher took $slowest ms to end"
echo "$done_kills kills ($inside inside a save) in $runs runs, seed $SEED; the launcher ended within $slowest ms"
finish
