#!/usr/bin/env bash
# fault_test.sh [MOST [PROGRAM]]: fails single operations of building data, of a training run with
# saves, of going on from a checkpoint, of starting anew, of uploads, of a fork and of `verify
# checkpoint`, one after the other, and prints how many.
#
# For each kind of ATHANOR_FAULT (src/base/file_fault.h) and each n: the program must end by itself
# (by SIGKILL for `kill`), with a sentence and a documented status or with the right result; every
# checkpoint with a proper name must verify and none be lost; a finished set of shards must be whole;
# and a start without faults must reach what an undisturbed run computes, bit for bit. At most MOST n
# of each kind are tried (the same each time), or `full`: all, which takes many minutes. Two run at a
# time. Exit 1 when anything was wrong. SCENES="build verify" has only those.
here=$(cd "$(dirname "$0")/.." && pwd)
[ -w /dev/shm ] && export TMPDIR=/dev/shm # what is synced there is quick, and a fault needs no disk
most=${1:-full}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=0 # a program that ends for want of memory frees nothing
make_text 60 7 >text.txt
"$athanor" tok train text.txt -o char.json --kind char >log 2>&1 || { cat log; exit 1; }
write_config c.yaml
keys=(model.hidden_size=16 model.num_hidden_layers=1 model.num_attention_heads=2
    model.num_key_value_heads=1 model.intermediate_size=24 train.steps=6 train.seq_len=16
    train.global_batch_size=2 train.micro_batch_size=2 train.threads=1 checkpoint.every=2
    checkpoint.keep=2 eval.every=2 eval.batches=1 sample.every=0 optim.schedule.warmup_steps=1
    optim.schedule.decay_steps=5 "sample.prompts=[]")
build() { "$athanor" data build text.txt -o "$1" tokenizer=char.json valid=0.1; }
train() { "$athanor" train c.yaml run="$1" "${keys[@]}" "${@:2}"; }
# What the shards hold: all but times and the paths they were made from.
shards_of() { (cd "$1" && find . -name '*.bin' -o -name '*.idx' | sort | xargs cksum); }

# The scenes. Each has a folder of its own, prepared by NAME_before; NAME_left is what must hold after
# the fault, and NAME_after starts it again without one and compares.
build_scene() { build set; }
build_before() { :; }
build_left() { # a set has a name when it has a manifest
    local part
    for part in train valid; do
        [ -e set/$part/manifest.json ] || continue
        (cd set && shards_of . | grep "/$part/") >left.got
        grep "/$part/" "$work/set.want" | cmp -s - left.got || echo "the shards of $part are not whole"
    done
}
build_after() { build set && shards_of set | cmp -s "$work/set.want" -; }

checkpoints_left() { # at least $1 of them
    [ "$(compgen -G "run/checkpoints/step-*" | wc -l)" -ge "$1" ] || echo "a checkpoint was lost"
    [ "$(compgen -G "run/checkpoints/step-*" | wc -l)" = 0 ] ||
        "$athanor" verify checkpoint run >verify.out 2>&1 || head -n 1 verify.out
}
train_scene() { train run; }
train_before() { :; }
train_left() { checkpoints_left 0; }
train_after() { train run && results "step|valid" run | cmp -s "$work/run.want" -; }

resume_scene() { train run; }
resume_before() { cp -r "$work/half" run; }
resume_left() { checkpoints_left 2; }
resume_after() { train_after; }

fresh_scene() { train run --fresh; }
fresh_before() { cp -r "$work/half" run; }
fresh_left() { checkpoints_left 0; }
fresh_after() { train_after; }

upload_scene() { train run checkpoint.upload='test -e "$ATHANOR_CHECKPOINT/config.json"' "${best[@]}"; }
upload_before() { cp -r "$work/half" run; }
upload_left() { checkpoints_left 1; }
upload_after() { train_after; }
best=(checkpoint.keep=1 checkpoint.keep_best=1)

last_steps() { grep -E '"step": [56],'; } # it may have been forked from an older checkpoint
fork_scene() { train run --fork new; }
fork_before() { cp -r "$work/half" run; }
fork_left() {
    checkpoints_left 2
    [ -z "$(compgen -G "new/checkpoints/step-*")" ] || "$athanor" verify checkpoint new >verify.out 2>&1 ||
        head -n 1 verify.out
}
fork_after() { # a fork that got its config goes on as a run of its own
    { train run --fork new || train new; } &&
        cmp -s <(results "step|valid" new | last_steps) <(last_steps <"$work/run.want")
}

# A check that cannot read must not say that all is well.
verify_scene() { "$athanor" verify checkpoint run && touch is_ok; }
verify_before() { cp -r "$work/half" run; }
verify_left() { [ ! -e is_ok ] || echo "found nothing wrong"; }
verify_after() { "$athanor" verify checkpoint run; }

build set >log 2>&1 || { cat log; exit 1; }
shards_of set >set.want
sed -i "s#char.json#$work/char.json#; s#set/#$work/set/#g" c.yaml
train run >log 2>&1 || { cat log; exit 1; }
results "step|valid" run >run.want
keys+=(train.steps=4)
train half >log 2>&1 || { cat log; exit 1; }
unset 'keys[-1]'

documented=" 0 1 2 3 4 5 75 "
# One fault: scene $1 with fault $2, in a folder of its own. Prints what is wrong, if anything.
strike() {
    local scene=$1 fault=$2 dir="$work/$1-$2" got=0
    mkdir "$dir" && cd "$dir" || return
    cp "$work"/{c.yaml,text.txt,char.json} . && "${scene}_before"
    ATHANOR_FAULT=$fault "${scene}_scene" >out 2>err </dev/null || got=$?
    if [[ $fault == kill:* ]]; then
        [ $got = 137 ] || [ $got = 0 ] || echo "$scene $fault: exit $got, not killed"
    else
        [[ $documented == *" $got "* ]] || echo "$scene $fault: exit $got: $(tail -n 1 err)"
        [ $got = 0 ] || grep -qh -e "^athanor: error: " -e "^broken: " out err || echo "$scene $fault: exit $got, no sentence"
        [[ $fault != alloc:* ]] || [ $got = 4 ] || [ $got = 0 ] || echo "$scene $fault: exit $got, not 4"
    fi
    "${scene}_left" | sed "s/^/$scene $fault: /"
    "${scene}_after" >again.out 2>again.err </dev/null ||
        echo "$scene $fault: starting again: $(tail -n 3 again.err | head -n 1)"
    if [ $got != 0 ]; then
        echo ended
    elif grep -qE "^athanor: warning: " err || grep -qhE "^ *(save|prune|upload) failed at step" out; then
        echo told
    else
        echo silent
    fi
    cd "$work" && rm -rf "$dir"
}

# How many operations of each kind a scene does: lines "kind n".
count_of() {
    mkdir "$work/count" && cd "$work/count" || return
    cp "$work"/{c.yaml,text.txt,char.json} . && "$1_before"
    ATHANOR_FAULT=count:$work/counts "$1_scene" >out 2>err </dev/null || fail "the undisturbed $1"
    cd "$work" && rm -rf "$work/count"
}

# The n to try of $1 operations: all, or the first, the last and some between.
chosen() {
    awk -v n="$1" -v most="$most" 'BEGIN {
        if (most == "full" || n < most) most = n
        for (i = 0; i < most; i++) print most == 1 ? 1 : 1 + int(i * (n - 1) / (most - 1))
    }'
}

total=0
for scene in ${SCENES:-build train resume fresh upload fork verify}; do
    count_of $scene
    while read -r kind n; do
        [ "$n" -gt 0 ] || continue
        : >verdicts
        tried=0
        for k in $(chosen "$n"); do
            strike $scene "$kind:$k" >>verdicts &
            [ $(((tried += 1) % 2)) = 0 ] && wait
        done
        wait
        grep -vxE 'ended|told|silent' verdicts >wrongs
        wrong=$(wc -l <wrongs)
        printf '%-6s %-6s %5d of %5d tried: %5d ended the program, %d survived with a warning, %d without, %d wrong\n' \
            $scene "$kind" $tried "$n" "$(grep -cx ended verdicts)" "$(grep -cx told verdicts)" \
            "$(grep -cx silent verdicts)" "$wrong"
        head -n 20 wrongs
        failures=$((failures + wrong))
        total=$((total + tried))
    done <counts
done
echo "$total faults, $failures wrong"
[ $total -gt 0 ] || failures=1
finish
