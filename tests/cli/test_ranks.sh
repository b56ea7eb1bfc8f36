#!/usr/bin/env bash
# Training on several ranks: data-parallel layouts compute what one rank does, bit for bit, tensor
# parallelism the same to rounding; what was saved under one layout goes on under another; a signal
# stops all ranks, and the run goes on.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml

expect 0 train d.yaml run=one
results 'step|valid|sample' one >want
[ "$(results step one | grep -o '"digest": "[^"]*"' | sort -u | wc -l)" = 12 ] || fail "no 12 digests"

same() { results 'step|valid|sample' "$1" | cmp -s want - || fail "it differs from one rank"; }
for layout in "2 parallel.zero=1" "4 parallel.zero=3" "4 parallel.dp_replicate=2 parallel.zero=2"; do
    train_on 0 "$layout" run=dp
    same dp
    [ "$(field ranks dp/metrics.jsonl)" = "${layout%% *}" ] || fail "the log does not say how many ranks"
    rm -r dp
done

# Sums over tensor-parallel ranks round otherwise; the first weights are the same.
train_on 0 "4 parallel.tp=2 parallel.sp=true parallel.zero=3" run=tp
digest_of() { event start "$1/metrics.jsonl" | grep -o '"digest": "[^"]*"'; }
[ "$(digest_of tp)" = "$(digest_of one)" ] || fail "tp begins with other weights"
for run in one tp; do results step $run | sed 's/.*"loss": \([^,]*\).*/\1/' >$run.loss; done
paste one.loss tp.loss | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $2) exit 1 }' ||
    fail "the losses of tp are others"

# Gradients lie among activations where a step is one micro-batch: what travels with them while the
# backward goes on must not touch these. Odd widths and slow links give it the occasion.
odd="model.hidden_size=20 model.num_attention_heads=2 model.num_hidden_layers=4
    model.intermediate_size=33 train.seq_len=12 train.micro_batch_size=2 train.deterministic=false
    train.steps=8 eval.every=100 sample.every=100 parallel.bucket_mb=0.001"
export ATHANOR_LINK=300,0
losses() { results step $1 | sed 's/.*"loss": \([^,]*\), "grad_norm": \([^,]*\).*/\1 \2/'; }
train_on 0 1 run=odd $odd
for zero in 0 1; do
    train_on 0 "4 parallel.zero=$zero" run=odd_ranks $odd
    paste <(losses odd) <(losses odd_ranks) | awk '
        function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * b }
        far($1, $3) || far($2, $4) { exit 1 }' || fail "sums of gradients change what lies beside them"
    rm -r odd_ranks
done
unset ATHANOR_LINK

# From layout to layout, with any recompute policy.
train_on 0 "2 parallel.zero=3" run=moved train.steps=4
train_on 0 "4 parallel.zero=1" run=moved train.steps=8 train.recompute=full
train_on 0 1 run=moved
results step one >want.steps
results step moved | cmp -s want.steps - || fail "it differs from one rank"
train_on 0 "2 parallel.tp=2" run=moved_tp train.steps=4
train_on 0 "4 parallel.zero=3" run=moved_tp train.steps=8 # a digest that differs would end it
train_on 0 "2 parallel.tp=2 parallel.sp=true" run=moved_tp

# From somebody's weights: the layout is tried with the sizes of that model, and more layers than a
# trial has are cut off where its config has no list of them.
for model in gemma2 minicpm; do
    golden=$root/tests/golden/models/$model
    printf 'run: %s\nmodel: {from: %s}\ntokenizer: char.json\ndata: {train: set/train}\n' \
        from-$model "$golden" >from.yaml
    echo 'train: {steps: 2, seq_len: 16, global_batch_size: 2, micro_batch_size: 1, precision: fp32, deterministic: true}' >>from.yaml
    expect 0 train from.yaml run=from-one
    expect 0 launch --ranks 2 -- train from.yaml parallel.zero=3
    expect 0 launch --ranks 2 -- train from.yaml parallel.zero=3
    [ "$(grep -c "already has its" err)" = 1 ] || fail "not rank 0 alone speaks"
    expect 0 launch --ranks 2 -- train from.yaml parallel.zero=3 --fresh
    lacks err "layout is not checked"
    losses() { results step "$1" | grep -o '"loss": [^,]*'; }
    [ "$(losses from-one)" = "$(losses from-$model)" ] || fail "two ranks go on from $model otherwise"
    rm -r from-one
done

# SIGTERM to the launcher: all ranks stop after the same step.
"$athanor" launch --ranks 2 -- train d.yaml run=stopped parallel.zero=2 train.steps=100000 \
    >out 2>err </dev/null &
await_step stopped
kill -TERM $!
wait $!
got=$?
last="launch, SIGTERM"
[ $got = 75 ] || fail "exit $got, not 75"
[ "$(grep -c 'state saved' err)" = 1 ] || fail "it is not said once"
at=$(newest_step stopped)
train_on 0 "4 parallel.zero=1" run=stopped train.steps=$((at + 1))
event start stopped/metrics.jsonl | tail -n 1 | grep -q "\"step\": $at," || fail "it does not go on from step $at"

# So does output that nobody reads any more, which rank 0 alone notices.
{ "$athanor" launch --ranks 2 -- train d.yaml run=piped train.steps=100000 --json 2>err </dev/null; echo $? >status; } |
    head -n 3 >out
last="launch | head"
[ "$(cat status)" = 75 ] || fail "exit $(cat status), not 75"
[ -d piped/checkpoints/step-"$(newest_step piped)" ] || fail "nothing was saved"

if command -v mpirun >/dev/null && [ -e "$(dirname "$athanor")/athanor-mpi.so" ]; then
    last="mpirun -n 2 train"
    export ASAN_OPTIONS=detect_leaks=0 # what MPI leaves behind is not ours
    mpi=(timeout 60 mpirun)
    "${mpi[@]}" -n 2 "$athanor" train d.yaml run=mpi parallel.zero=3 >out 2>err </dev/null || fail "exit $?"
    same mpi
fi
finish
