# train.deterministic: the same weights, losses and norms with any number of threads, whatever is
# recomputed, after an interruption, and whatever computes matrix products elsewhere; close to the
# fast mode; and what does not fit is told. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
fixed="train.deterministic=true train.steps=10 sample.every=0 eval.every=0"

# same RUN LIKE: the steps of two runs are the same, digests, losses and norms.
same() {
    results step "$2" >want
    results step "$1" | cmp -s want - || fail "runs $1 and $2 differ"
    [ "$(grep -o '"digest": "[^"]*"' want | sort -u | wc -l)" = 10 ] || fail "$2: no 10 digests"
}

for precision in fp32 bf16; do
    p=$precision
    expect 0 train c.yaml $fixed run=$p train.precision=$p train.threads=1
    expect 0 train c.yaml $fixed run=$p-full train.precision=$p train.threads=2 train.recompute=full
    same $p-full $p
    ATHANOR_GEMM=onednn expect 0 train c.yaml $fixed run=$p-sel train.precision=$p \
        train.threads=3 train.recompute=selective
    same $p-sel $p

    # Interrupted twice.
    for steps in 3 7 10; do
        expect 0 train c.yaml $fixed run=$p-cut train.precision=$p train.steps=$steps
    done
    same $p-cut $p

    # The fast mode rounds other sums; where that makes another bf16, which is so on some processors,
    # steps carry it on.
    expect 0 train c.yaml $fixed run=$p-fast train.precision=$p train.deterministic=false
    for run in $p $p-fast; do results step $run | sed 's/.*"loss": \([^,]*\).*/\1/' >$run.loss; done
    near=$([ $p = bf16 ] && echo 1e-2 || echo 1e-4)
    paste $p.loss $p-fast.loss |
        awk -v near=$near '{ d = $1 - $2; if (d < 0) d = -d; if (d > near * $2) exit 1 }' ||
        fail "$p: the losses are not those of the fast mode"
done
cmp -s fp32.loss bf16.loss && fail "the two precisions compute the same"

expect 0 train c.yaml $fixed run=gpt2 "$gpt2_model" train.threads=1
expect 0 train c.yaml $fixed run=gpt2-full "$gpt2_model" train.threads=2 train.recompute=full
same gpt2-full gpt2

# Memory: int64 gradients, in one piece also where a step is one micro-batch.
expect 0 plan c.yaml train.micro_batch_size=8 train.deterministic=true --json
fixed_bytes=$(field grad_bytes out)
expect 0 plan c.yaml train.micro_batch_size=8 --json
[ "$fixed_bytes" = $((2 * $(field grad_bytes out))) ] || fail "the plan does not count 8 bytes"
expect 0 train c.yaml $fixed run=whole train.micro_batch_size=8

# A gradient that is finite and too large for the sums.
expect 5 train c.yaml $fixed run=large optim.z_loss=1000 model.initializer_range=3
has err "a contribution to the gradient of model.embed_tokens.weight is beyond 1024"
finish
