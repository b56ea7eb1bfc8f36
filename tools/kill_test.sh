#!/usr/bin/env bash
# kill_test.sh [N [PROGRAM]]: kills training runs N times (200) by SIGKILL and starts them again;
# what they compute must equal an uninterrupted run, bit for bit, and no checkpoint may be lost.
#
# Half of the kills are inside a save: in place of a random file operation (ATHANOR_FAULT=kill:K, a
# save being most of them), told by the hidden folder that is left. The others come at a random time.
# Runs alternate between fp32 Llama and bf16 GPT-2 with dropout. Exit 1 on the first difference.
# SEED=S repeats the choices of an earlier test.
here=$(cd "$(dirname "$0")/.." && pwd)
kills=${1:-200}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
SEED=${SEED:-$$}
RANDOM=$SEED
make_data
write_config c.yaml

variants=(llama gpt2)
llama_keys=(train.precision=fp32)
gpt2_keys=(train.precision=bf16 "$gpt2_model")
for v in "${variants[@]}"; do
    declare -n keys=${v}_keys
    began=$(now_ms)
    ATHANOR_FAULT=count:$work/counts expect 0 train c.yaml run="$v" "${keys[@]}"
    took=$(($(now_ms) - began))
    results "step|valid|sample" "$v" >"$v.want"
done
operations=$(sed -n 's/^kill //p' counts) # of one whole run

# steps_of RUN: those of its checkpoints, ascending.
steps_of() { ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-//p' | sort -n; }
# What a kill must leave: every checkpoint whole, none lost that stood before ($2: how many, of which
# the run keeps 3; $3: the newest).
check_checkpoints() {
    local run=$1 least=$2 steps
    [ "$least" -le 3 ] || least=3
    steps=$(steps_of "$run")
    [ -z "$steps" ] || expect 0 verify checkpoint "$run"
    [ "$(wc -w <<<"$steps")" -ge "$least" ] && [ "$(tail -n 1 <<<"${steps:-0}")" -ge "$3" ] ||
        fail "$2 checkpoints up to $3 before, now: $(tr "\n" " " <<<"$steps")"
}

inside=0 outside=0 at_times=0 runs=0
# One start of run $1, killed somewhere; its exit status is 0 (it finished) or 137.
start_and_kill() {
    local run=$1 by_fault=0 pid status before
    shift
    before=$(steps_of "$run")
    [ $((inside + outside)) -lt $((at_times + 1)) ] || [ $at_times -ge $((kills / 2)) ] && by_fault=1
    if [ $by_fault = 1 ]; then
        ATHANOR_FAULT=kill:$((RANDOM % operations + 1)) "$athanor" train c.yaml run="$run" "$@" >out 2>err &
        pid=$!
    else
        "$athanor" train c.yaml run="$run" "$@" >out 2>err &
        pid=$!
        sleep_part $took
        kill -9 $pid 2>kill.err
    fi
    wait $pid 2>wait.err
    status=$?
    [ $status = 137 ] || return $status
    if [ $by_fault = 0 ]; then
        at_times=$((at_times + 1))
    elif compgen -G "$run/checkpoints/.*-step-*" >names; then
        inside=$((inside + 1))
    else
        outside=$((outside + 1))
    fi
    last="run $run, killed"
    check_checkpoints "$run" "$(wc -w <<<"$before")" "$(tail -n 1 <<<"${before:-0}")"
    return 137
}
enough() { [ $inside -ge $((kills / 2)) ] && [ $((inside + at_times)) -ge "$kills" ]; }

while ! enough && [ $failures -eq 0 ]; do
    v=${variants[$((runs % 2))]}
    declare -n keys=${v}_keys
    run=r$runs
    runs=$((runs + 1))
    status=137
    while [ $status = 137 ] && [ $failures -eq 0 ] && ! enough; do
        start_and_kill $run "${keys[@]}" && status=0 || status=$?
    done
    last="run $run ($v)"
    [ $status = 0 ] || [ $status = 137 ] || fail "exit $status after a kill"
    expect 0 train c.yaml run=$run "${keys[@]}"
    results "step|valid|sample" $run >got
    cmp "$v.want" got || fail "a killed run differs from an uninterrupted one"
    ls -a $run/checkpoints | grep -qE '^\.(tmp|trash|old)-' && fail "a crash left something behind"
    rm -rf "$run"
done
echo "$((inside + outside + at_times)) kills ($inside inside a save, $outside at other file" \
    "operations, $at_times at random times) in $runs runs, seed $SEED: bitwise equal"
finish
