#!/usr/bin/env bash
# Several ranks on emulated GPUs: through the host's memory where they share one, and by NCCL where each has its own. One digest
# over layouts, the losses of the CPU, and ranks that are killed or stand still. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
. "$root/tests/cli/ranks.sh"
export OMP_NUM_THREADS=1 ATHANOR_CUDA=emulated TMPDIR=$work # where the emulated NCCL leaves the files of a rank that is killed
make_data
cat >base.yaml <<END
tokenizer: char.json
data: {train: set/train, valid: set/valid}
train: {steps: 3, seq_len: 16, global_batch_size: 8, micro_batch_size: 2, precision: fp32, digest_every: 1}
optim: {lr: 3.0e-3, schedule: {kind: constant, warmup_steps: 2}}
eval: {every: 3, batches: 1}
END
common='num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: auto, max_position_embeddings: 32'
(cat base.yaml && echo "model: {model_type: llama, hidden_size: 32, intermediate_size: 64, $common}") >dense.yaml
(cat base.yaml && echo "model: {model_type: mixtral, hidden_size: 32, intermediate_size: 40, num_local_experts: 4, num_experts_per_tok: 2, router_aux_loss_coef: 0.02, $common}") >experts.yaml

digests() { grep -o '"digest": "[^"]*"' "$1/metrics.jsonl"; }
losses() { grep -oE '"(loss|val_loss)": [0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: //'; }
# close RUN LIKE: losses within 1e-5.
close() {
    [ "$(losses "$1" | wc -l)" -ge 3 ] || fail "$1 has computed nothing"
    paste <(losses "$1") <(losses "$2") | awk '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= 1e-5)) { print "line " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad }' || fail "$1 has other losses than $2"
}
# ranks GPUS RUN RANKS CONFIG ARGS...
ranks() {
    local gpus=$1 run=$2 n=$3 config=$4
    shift 4
    ATHANOR_CUDA_COUNT=$gpus expect 0 launch --ranks "$n" -- train "$config" run="$run" device=cuda "$@"
    local by="host memory"
    [ "$gpus" -ge "$n" ] && by=NCCL
    event start "$run/metrics.jsonl" | grep -q "\"transport\": \"$by" || fail "$run does not go by $by"
}

# ---- one digest in deterministic mode, whatever the layout and the way ----
exact=train.deterministic=true
expect 0 train dense.yaml run=one device=cuda $exact
[ "$(digests one | wc -l)" -ge 3 ] || fail "there are no digests"
ranks 1 host-zero 2 dense.yaml $exact parallel.zero=3
ranks 2 nccl-zero 2 dense.yaml $exact parallel.zero=2
ranks 4 nccl-stages 4 dense.yaml $exact parallel.pp=2 parallel.zero=1
for run in host-zero nccl-zero nccl-stages; do
    cmp -s <(digests one) <(digests $run) || fail "$run has other digests than one rank"
done

# ---- the losses of the CPU ----
expect 0 train experts.yaml run=cpu device=cpu train.router.balance=global
ranks 1 host-experts 2 experts.yaml train.router.balance=global parallel.ep=2 parallel.zero=3
ranks 4 nccl-experts 4 experts.yaml train.router.balance=global parallel.ep=2 parallel.tp=2 parallel.sp=true parallel.zero=2
close host-experts cpu
close nccl-experts cpu
ranks 2 nccl-rounds 2 experts.yaml train.router.balance=global parallel.ep=2 parallel.ep_load=0.5
close nccl-rounds cpu
expect 0 train dense.yaml run=dense-cpu device=cpu
for way in 1 2; do
    ranks $way async-$way 2 dense.yaml parallel.tp=2 parallel.tp_async=true
    ranks $way async-sp-$way 2 dense.yaml parallel.tp=2 parallel.sp=true parallel.tp_async=true
    ranks $way ring-$way 2 dense.yaml parallel.cp=2 parallel.cp_kind=ring
    for run in async-$way async-sp-$way ring-$way; do close $run dense-cpu; done
done

# Blocks of OLMo 2 read the residual stream itself, so that a sum of gradients joins one that is there, which NCCL leaves to a kernel.
expect 0 train dense.yaml run=olmo-cpu device=cpu model.model_type=olmo2
ranks 2 olmo 2 dense.yaml model.model_type=olmo2 parallel.tp=2 parallel.sp=true parallel.tp_async=true
close olmo olmo-cpu

# ---- layouts of every kind: all of two ranks that share a GPU, some of four that have one each ----
expect 0 verify layouts dense.yaml --ranks 2 --steps 1 device=cuda
ATHANOR_CUDA_COUNT=4 ATHANOR_CUDA_SEED=5 expect 0 verify layouts experts.yaml --ranks 4 --random 5 --seed 3 --steps 1 device=cuda train.router.balance=global

# ---- what cannot be ----
ATHANOR_NCCL=on expect 2 launch --ranks 2 -- train dense.yaml run=none device=cuda
has err "ATHANOR_NCCL is on, but ranks 0 and 1 share a GPU"
ATHANOR_NCCL=yes expect 2 launch --ranks 2 -- train dense.yaml run=none device=cuda
has err 'ATHANOR_NCCL is "yes", which is not auto, on or off'
ATHANOR_CUDA_COUNT=2 expect 2 launch --ranks 2 -- train dense.yaml run=none device=cuda parallel.reduce_dtype=bf16
has err "NCCL, by which these ranks send, has no sums in fp32 of numbers in bf16"
ATHANOR_CUDA_COUNT=2 ATHANOR_NCCL=off expect 0 launch --ranks 2 -- train dense.yaml run=narrow device=cuda parallel.reduce_dtype=bf16 train.steps=1
event start narrow/metrics.jsonl | grep -q '"transport": "host memory"' || fail "ATHANOR_NCCL=off does not keep NCCL out"

# ---- a rank that fails alone in a trial says why, and the others wait neither for it nor for its NCCL ----
ATHANOR_TIMEOUT=30 ATHANOR_CUDA_COUNT=2 ATHANOR_CUDA_FAULT=full:1 expect 6 launch --ranks 2 -- verify layouts dense.yaml --steps 1 device=cuda
has err "rank 1 failed: the run needs"
has err "and 0.0 MiB are free on the GPU"

# ---- a trace: calls of NCCL, with what they sent ----
spans() { grep -oE '"(weights|gradients) of [^"]*"' "$1" | sort | uniq -c; }
for gpus in 1 2; do
    ATHANOR_CUDA_COUNT=$gpus expect 0 launch --ranks 2 -- train dense.yaml run=traced-$gpus device=cuda parallel.zero=1 train.digest_every=0 --trace trace-$gpus.json
done
grep -q '"gradients of ' trace-2.json || fail "the trace has no collective"
cmp -s <(spans trace-1.json) <(spans trace-2.json) || fail "the trace has other collectives than through the host's memory"

# ---- a rank that is killed, and one that stands still: nobody waits for ever ----
# disturb SIGNAL WANTED: sends it to rank 1 of a run that goes on for ever.
disturb() {
    last="a rank that gets SIG$1"
    rm -rf run
    ATHANOR_CUDA_COUNT=2 "$athanor" launch --ranks 2 -- train dense.yaml run=run device=cuda train.steps=1000000 eval.every=0 \
        checkpoint.every=0 parallel.timeout_s=5 parallel.zero=3 >out 2>err </dev/null &
    launcher=$!
    await_step run
    pids=($(rank_ids $launcher))
    kill -"$1" "${pids[1]}"
    await_end $launcher
    wait $launcher
    got=$?
    [ $got = 6 ] || fail "exit $got, not 6"
    has err "$2"
}
disturb KILL "rank 1 was killed by signal 9"
disturb STOP "rank 1 holds up the others"
finish
