#!/usr/bin/env bash
# kill_test.sh [N [PROGRAM]]: kills training runs N times (200) by SIGKILL and starts them again;
# what they compute must equal an uninterrupted run, bit for bit.
#
# Every other kill comes at a random time, the rest in place of a random file operation
# (ATHANOR_FAULT=kill:K), which is where a crash hurts. Runs alternate between fp32 Llama and bf16
# GPT-2 with dropout. Exit 1 on the first difference.
here=$(cd "$(dirname "$0")/.." && pwd)
kills=${1:-200}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
RANDOM=${SEED:-$$}
make_data
write_config c.yaml

variants=(llama gpt2)
llama_keys=(train.precision=fp32)
gpt2_keys=(train.precision=bf16 "$gpt2_model")
for v in "${variants[@]}"; do
    declare -n keys=${v}_keys
    began=$(now_ms)
    expect 0 train c.yaml run="$v" "${keys[@]}"
    took=$(($(now_ms) - began))
    results "step|valid|sample" "$v" >"$v.want"
done

done_kills=0 by_fault=0 runs=0 starts=0
# One start of run $1, killed somewhere; its exit status is 0 (it finished) or 137.
start_and_kill() {
    local run=$1 pid status
    shift
    starts=$((starts + 1))
    if [ $((starts % 2)) = 0 ]; then
        ATHANOR_FAULT=kill:$((RANDOM % 200 + 1)) "$athanor" train c.yaml run="$run" "$@" >out 2>err &
        pid=$!
    else
        "$athanor" train c.yaml run="$run" "$@" >out 2>err &
        pid=$!
        sleep_part $took
        kill -9 $pid 2>kill.err
    fi
    wait $pid 2>wait.err
    status=$?
    if [ $status = 137 ]; then
        done_kills=$((done_kills + 1))
        by_fault=$((by_fault + (starts % 2 == 0)))
    fi
    return $status
}

while [ $done_kills -lt "$kills" ] && [ $failures -eq 0 ]; do
    v=${variants[$((runs % 2))]}
    declare -n keys=${v}_keys
    run=r$runs
    runs=$((runs + 1))
    status=137
    while [ $status = 137 ] && [ $done_kills -lt "$kills" ]; do
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
[ $done_kills -ge "$kills" ] || fail "only $done_kills kills of $kills"
echo "$done_kills kills ($by_fault at a file operation) in $runs runs: bitwise equal"
finish
