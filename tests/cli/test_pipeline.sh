#!/usr/bin/env bash
# Pipelines (parallel.pp): stages that send each other activations and gradients train to the bits of one rank in the
# deterministic mode, in the memory that was planned, alone and beside ZeRO and tensor parallelism. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
sed -i 's/num_hidden_layers: 2/num_hidden_layers: 4/; s/steps: 12/steps: 4/; s/every: 10, batches: 2/every: 2, batches: 3/
    s/^sample: .*/sample: {every: 0}/' d.yaml
interleaved="parallel.virtual=2 parallel.pp_schedule=interleaved"
afab=parallel.pp_schedule=afab
h1=parallel.pp_schedule=zb-h1
vee="parallel.virtual=2 parallel.pp_schedule=zb-v"

same() {
    results 'step|valid' "$2" >want
    [ "$(grep -c digest want)" = 4 ] || fail "$2 has no 4 digests"
    results 'step|valid' "$1" | cmp -s want - || fail "$1 differs from $2"
}
numbers() { grep -o "\"$1\": [^]]*" end | sed 's/.*: //'; }
check_memory() {
    event end "$1/metrics.jsonl" >end
    [ -n "$(numbers planned_by_rank)" ] && [ "$(numbers planned_by_rank)" = "$(numbers touched_by_rank)" ] ||
        fail "touched other than was planned: $(cat end)"
}
# as_one "RANKS KEYS..." KEYS...: under a layout it is as run `one`.
as_one() {
    train_on 0 "$1" run=got --fresh "${@:2}"
    same got one
    check_memory got
}

# ---- schedules, ZeRO; embedding and head are one tensor, which two stages have ----
train_on 0 1 run=one
for layout in "2 parallel.pp=2" "4 parallel.pp=4 $afab" "2 parallel.pp=2 $interleaved" "3 parallel.pp=3 train.recompute=full" \
    "4 parallel.pp=2 parallel.zero=1 $interleaved" "4 parallel.pp=2 parallel.zero=2" "4 parallel.pp=2 parallel.zero=3" "4 parallel.pp=2 $afab parallel.zero=2" "4 parallel.pp=2 $afab parallel.zero=3" \
    "4 parallel.pp=2 $interleaved parallel.zero=2" "4 parallel.pp=2 $interleaved parallel.zero=3 train.recompute=full" \
    "4 parallel.pp=2 $h1 parallel.zero=2 train.recompute=selective" "4 parallel.pp=2 $h1 parallel.zero=3" \
    "4 parallel.pp=2 $vee parallel.zero=2" "4 parallel.pp=2 $vee parallel.zero=3 train.recompute=selective" \
    "6 parallel.pp=3 $afab parallel.zero=1 train.global_batch_size=8" "4 parallel.pp=2 train.recompute=selective" \
    "4 parallel.pp=4 $h1 train.recompute=full" "4 parallel.pp=2 $h1 parallel.zero=1" "4 parallel.pp=2 $vee parallel.zero=1" \
    "2 parallel.pp=2 $vee train.recompute=selective"; do
    as_one "$layout"
done
# Four stages of which the last layers cost less than the head: each has a layer all the same.
grep -q '"pp": 2' got/plan.json || fail "the plan does not say how many stages there are"

# ---- chunks of layers that take turns in the same places of memory, also while batches grow ----
eight=(model.num_hidden_layers=8 train.global_batch_size=16 train.micro_batch_size=1)
four="parallel.virtual=4 parallel.pp_schedule=interleaved"
train_on 0 1 run=one --fresh "${eight[@]}"
for layout in "2 parallel.pp=2 $four" "4 parallel.pp=4 $interleaved" "4 parallel.pp=2 $four parallel.zero=2" \
    "2 parallel.pp=2 $four train.recompute=full"; do
    as_one "$layout" "${eight[@]}"
done
eight+=('train.batch_ramp={start: 4, increment: 4, every: 1}')
train_on 0 1 run=one --fresh "${eight[@]}"
as_one "2 parallel.pp=2 $four" "${eight[@]}"
train_on 0 1 run=one --fresh

# ---- tensor parallelism inside: other sums, so to rounding ----
losses() { results step "$1" | sed 's/.*"loss": \([^,]*\), "grad_norm": \([^,]*\).*/\1 \2/'; }
for layout in "4 parallel.pp=2 parallel.tp=2 parallel.sp=true" "8 parallel.pp=2 parallel.tp=2 parallel.zero=3"; do
    train_on 0 "$layout" run=got --fresh
    paste <(losses one) <(losses got) | awk '
        function far(a, b) { return (a > b ? a - b : b - a) > 1e-5 * b }
        far($1, $3) || far($2, $4) { exit 1 }' || fail "the losses are others"
    check_memory got
done

# ---- other models: dropout and learned positions, layers that share weights, experts; 16 bits; modules; states of matrices ----
gpt2='model={model_type: gpt2, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: auto, max_position_embeddings: 64, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}'
moe='model={model_type: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 24, num_experts: 6, num_experts_per_tok: 2, router: sigmoid, router_bias: true, expert_layers: [0, 1, 1, 1], router_aux_loss_coef: 0.1, vocab_size: auto, max_position_embeddings: 64}'
for model in "$gpt2" "$moe train.router.balance=sequence" "model.tie_word_embeddings=false model.block_repeat=2 train.precision=bf16" \
    "model.tie_word_embeddings=false model.num_nextn_predict_layers=1 model.position_type=learned" \
    "model.tie_word_embeddings=true model.num_nextn_predict_layers=2 optim.name=adafactor"; do
    keys=("$model")
    case $model in *train.*) keys=("${model%% train.*}" "train.${model##* train.}") ;; esac
    [ "$model" = "${model#model.tie}" ] || keys=($model)
    train_on 0 1 run=one --fresh "${keys[@]}"
    train_on 0 "2 parallel.pp=2" run=got --fresh "${keys[@]}"
    same got one
    case $model in *adafactor*) zero= ;; *) zero=parallel.zero=2 ;; esac
    for layout in "2 parallel.pp=2 $interleaved" "2 parallel.pp=2 $h1" "2 parallel.pp=2 $vee" \
        ${zero:+"4 parallel.pp=2 $interleaved $zero" "4 parallel.pp=2 $h1 $zero" "4 parallel.pp=2 $vee $zero"}; do
        train_on 0 "$layout" run=got --fresh "${keys[@]}"
        same got one
        check_memory got
    done
done

# ---- batches that grow; what is saved under one layout goes on under another ----
ramp=(train.steps=8 'train.batch_ramp={start: 2, increment: 2, every: 2}' checkpoint.every=2)
train_on 0 1 run=one --fresh "${ramp[@]}"
at=0
for layout in "2 parallel.pp=2" "4 parallel.pp=4 $afab" "2 parallel.zero=3" "4 parallel.pp=2 parallel.zero=3"; do
    at=$((at + 2))
    train_on 0 "$layout" run=moved "${ramp[@]}" train.steps=$at
done
results step one >want
results step moved | cmp -s want - || fail "the run that moved differs"
cmp -s one/checkpoints/step-8/model.safetensors moved/checkpoints/step-8/model.safetensors || fail "other files"

# ---- adapters beside a frozen model, with the embedding of which two stages have a copy ----
lora=(lora.rank=3 lora.train_embeddings=always "model={from: $work/one/checkpoints/step-8}")
train_on 0 1 run=adapted "${lora[@]}"
for layout in "2 parallel.pp=2 $h1" "4 parallel.pp=2 parallel.zero=3" "2 parallel.pp=2 $vee" "4 parallel.pp=2 $vee parallel.zero=2"; do
    train_on 0 "$layout" run=got --fresh "${lora[@]}"
    same got adapted
    check_memory got
    for f in adapter_model.safetensors adapter_config.json; do
        cmp -s {adapted,got}/checkpoints/step-4/$f || fail "another $f"
    done
done
train_on 0 "2 parallel.pp=2" run=adapted "${lora[@]}" train.steps=6
train_on 0 1 run=got --fresh "${lora[@]}" train.steps=6
results step got >want
results step adapted | cmp -s want - || fail "adapters that moved to stages differ"

# ---- what is not finite is named as on one rank ----
explain() {
    rm -rf bad
    "$athanor" "$@" train d.yaml run=bad train.steps=20 $keys $layout >out 2>err </dev/null
    sed -n 's|.*error: step \([0-9]*\): \(rank [0-9]*: \)*|step \1: |p' err
}
for keys in "model.initializer_range=10 optim.z_loss=1" "model.norm_eps=1e-20 model.initializer_range=1e-12"; do
    layout= explain >want
    last="what is not finite: $keys"
    layout=parallel.pp=2 explain launch --ranks 2 -- >other
    cmp -s want other || fail "$(cat other), not $(cat want)"
    cat want >>told
done
[ -s told ] || fail "nothing goes wrong any more"

# ---- the trial before a run; the trace ----
train_on 0 "4 parallel.pp=2" run=tried --fresh parallel.verify=true train.deterministic=false --trace t.json
has err "layout dp2 pp2 1f1b computes what one rank does"
has t.json '"name": "wait for activations of micro-batch 0, chunk 0 to 1"'
has t.json '"kind": "send"'
idle=$(sed -n 's/.*stages waited \([0-9.]*\) % of the time.*/\1/p' err)
awk -v x="${idle:-no}" 'BEGIN { exit !(x > 0 && x < 100) }' || fail "stages waited '$idle' % of the time"

train_on 0 "2 parallel.pp=2 $h1" run=tried --fresh --trace t.json
has t.json '"name": "weight gradients of layers.0"'
has t.json '"name": "backward layers.0"'

# ---- a stage that stands still is named, with what the others wait for ----
"$athanor" launch --ranks 2 -- train d.yaml run=still parallel.pp=2 train.steps=1000000 checkpoint.every=0 \
    eval.every=0 parallel.timeout_s=3 >out 2>err </dev/null &
launcher=$!
await_step still
ranks=($(rank_ids $launcher))
kill -STOP "${ranks[1]}"
await_end $launcher
wait $launcher
last="a stage that stands still"
has err 'athanor: rank 1 holds up the others: rank 0 has waited '
grep -qE '^  rank 0 .*has waited [0-9.]+ s for rank 1 in .*(activations|gradients) of micro-batch [0-9]+, chunk' err ||
    fail "it is not said in what"

# ---- what does not run in stages is refused by name ----
refused() { # TEXT KEYS...
    train_on 2 "2 parallel.pp=2" run=refused "${@:2}"
    has err "$1"
    [ ! -e refused ] || fail "a run was begun"
}
refused "samples are not there with parallel.pp" 'sample.prompts=["the fire"]'
refused "lora.dropout does not run with parallel.pp" lora.rank=2 lora.dropout=0.1 "model={from: $work/one/checkpoints/step-8}"
refused "interleaved stages take micro-batches in groups of 2" $interleaved train.global_batch_size=3
refused "a batch of 3 sequences has 3 for each rank" $interleaved 'train.batch_ramp={start: 3, increment: 1}'
has err "hint: train.batch_ramp.start and .increment that are multiples of 2"
refused "parallel.pp_schedule=zb-v has two chunks of layers on each stage" parallel.pp_schedule=zb-v
refused "need parallel.pp_schedule=interleaved" parallel.virtual=2
refused "must be one of afab, 1f1b, interleaved, zb-h1, zb-v" parallel.pp_schedule=dualpipe
refused "4 layers do not make 8 chunks" $interleaved parallel.virtual=4

# ---- MPI ----
if command -v mpirun >/dev/null && [ -e "$(dirname "$athanor")/athanor-mpi.so" ]; then
    last="mpirun -n 4 train"
    export ASAN_OPTIONS=detect_leaks=0 # what MPI leaves behind is not ours
    timeout 60 mpirun -n 4 "$athanor" train d.yaml run=mpi "${ramp[@]}" \
        parallel.pp=2 parallel.tp=1 parallel.zero=3 >out 2>err </dev/null || fail "exit $?"
    results step one >want
    results step mpi | cmp -s want - || fail "it differs from one rank"
fi
finish
