#!/usr/bin/env bash
# interrupt_test.sh [STRIDE [PROGRAM]]: a run in three stages (other mixtures, lengths, rotary bases,
# batches and schedules; one begins its optimizer anew, one lets its batch grow), interrupted at
# random moments and, around each border of stages, in place of every STRIDE-th (1) file operation;
# what it computes must equal an uninterrupted run, bit for bit. Exit 1 on the first difference.
here=$(cd "$(dirname "$0")/.." && pwd)
stride=${1:-1}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
. "$here/tests/cli/stages.sh"
make_stages

expect 0 train stages.yaml run=want
computed want >want.events
[ "$(grep -c '"event": "step"' want.events)" = 36 ] || fail "not 36 steps"

# Random moments.
for seed in 1 2; do
    expect 0 verify resume stages.yaml --steps 36 --kills 10 --seed $seed
    has out 'ok: 36 steps, 10 interruptions'
    cat out
done

# Borders lie behind steps 12 and 24, checkpoints at every third step. A run as it was three steps
# before a border, or at it, dies at some file operation, and goes on.
kills=0 in_saves=0
strike() { # STEP N: from the checkpoint of STEP, killed in place of operation N; false: it finished
    local status=0
    rm -rf hit
    cp -r "at$1" hit
    last="train stages.yaml run=hit, from step $1 with ATHANOR_FAULT=kill:$2"
    ATHANOR_FAULT=kill:$2 "$athanor" train stages.yaml run=hit >out 2>err &
    wait $! 2>wait.err || status=$?
    [ $status = 0 ] && return 1
    [ $status = 137 ] || fail "exit $status"
    kills=$((kills + 1))
    ls -a hit/checkpoints | grep -qE '^\.(tmp|trash|old)-' && in_saves=$((in_saves + 1))
    expect 0 train stages.yaml run=hit
    computed hit >hit.got
    cmp want.events hit.got || fail "a run killed near a border differs"
}
for at in 9 12 21 24; do
    train_to $at at$at
    # Until the save behind the next three steps is over, and a little more.
    for ((n = 1; n <= 90 && failures == 0; n += stride)); do strike $at $n || break; done
done
[ $kills -ge $((200 / stride)) ] || fail "only $kills kills"
echo "$kills kills around the borders, $in_saves of them inside a save: bitwise equal"
finish
