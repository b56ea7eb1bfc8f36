#!/usr/bin/env bash
# Checkpoints of several ranks: the files of one rank, loadable under any other layout. Deterministic
# mode, in which all data-parallel layouts compute the same. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 ATHANOR_TIMEOUT=60
make_data
write_config c.yaml
fixed="train.deterministic=true train.steps=8 train.micro_batch_size=2 sample.every=0 eval.every=0"

# ranks N RUN KEYS...
ranks() {
    local n=$1 run=$2
    shift 2
    expect 0 launch --ranks "$n" -- train c.yaml $fixed run="$run" "$@"
}
# same_files A B STEP
same_files() {
    for f in model.safetensors config.json tokenizer.json state/optimizer.safetensors \
        state/master.safetensors; do
        [ -e $1/checkpoints/step-$3/$f ] || continue
        cmp $1/checkpoints/step-$3/$f $2/checkpoints/step-$3/$f || fail "$f of $1 and $2 differs"
    done
    [ -z "$(ls -A $2/checkpoints | grep '^\.')" ] || fail "$2 has leftovers"
}
same_steps() {
    results step $1 >want
    results step $2 | cmp -s want - || fail "runs $1 and $2 differ"
}

for precision in fp32 bf16; do
    p=$precision
    expect 0 train c.yaml $fixed run=$p train.precision=$p
    ranks 2 $p-z1 train.precision=$p parallel.zero=1
    ranks 4 $p-z3 train.precision=$p parallel.zero=3
    for run in $p-z1 $p-z3; do
        same_steps $p $run
        for step in 4 8; do same_files $p $run $step; done
    done
done

# Each part of a run under another layout; waited for, and in the background.
p=bf16
expect 0 train c.yaml $fixed run=cut train.precision=$p train.steps=1
ranks 2 cut train.precision=$p parallel.zero=2 train.steps=3 checkpoint.async=false
ranks 4 cut train.precision=$p parallel.zero=3 parallel.dp_replicate=2 train.steps=5
ranks 2 cut train.precision=$p parallel.zero=0 train.steps=7
expect 0 train c.yaml $fixed run=cut train.precision=$p
same_steps $p cut
same_files $p cut 8
expect 0 verify checkpoint cut/checkpoints/step-8

# Replicas with tensor parallelism read and write what they hold.
expect 0 launch --ranks 2 -- train c.yaml train.steps=2 run=tp parallel.tp=2
expect 0 train c.yaml train.steps=3 run=tp
expect 0 launch --ranks 4 -- train c.yaml train.steps=4 run=tp parallel.tp=2 parallel.zero=2
expect 0 verify checkpoint tp/checkpoints/step-4

# What fails on rank 0, wherever it does, costs nothing that stood before.
told=0
for n in $(seq 20); do
    last="launch, mkdir $n fails"
    ATHANOR_FAULT=mkdir:$n "$athanor" launch --ranks 2 -- train c.yaml $fixed run=cut \
        train.precision=$p train.steps=9 parallel.zero=1 >out 2>err </dev/null && break
    grep -q 'checkpoints/step-9 was not written: ' err && told=$((told + 1))
    expect 0 verify checkpoint cut/checkpoints/step-8
done
[ $told -gt 0 ] || fail "no save failed"
expect 0 verify checkpoint cut/checkpoints/step-9
finish
