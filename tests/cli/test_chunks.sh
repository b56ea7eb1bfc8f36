#!/usr/bin/env bash
# Chunks of layers (parallel.virtual) and micro-batches under way together (parallel.pp_schedule=afab):
# they compute what one program does that trains one micro-batch after the other, bit for bit, in the
# memory that was planned, and may change when a run goes on. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
export OMP_NUM_THREADS=1
golden=$root/tests/golden/models
make_data
sed 's/.*/{"text": "&"}/' text.txt >text.jsonl # a document is shorter than two sequences
expect 0 data build text.jsonl -o docs tokenizer=char.json valid=0.1
cat >c.yaml <<'YAML'
run: one
tokenizer: char.json
data: {train: docs/train, valid: docs/valid}
train: {steps: 3, seq_len: 16, global_batch_size: 10, micro_batch_size: 2, digest_every: 1, precision: fp32, deterministic: true}
optim: {lr: 1.0e-3, schedule: {kind: constant}}
checkpoint: {every: 0}
YAML
# Four layers with dropout in every place that there is, and a validation, a sample and a saved
# snapshot on the way.
gpt2='model={model_type: gpt2, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: false, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}'
linear='model={model_type: llama, hidden_size: 32, num_hidden_layers: 4, linear_layers: [1, 0, 1, 1], linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8, linear_value_head_dim: 8, linear_conv_kernel_dim: 4, num_attention_heads: 4, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 64, attn_pdrop: 0.1, resid_pdrop: 0.1}'
llama='model={model_type: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: false}'
works=(train.steps=4 eval.every=2 eval.batches=2 checkpoint.every=2 'sample={every: 2, prompts: ["the fire"], max_new: 6}')

computed='step|valid|sample'
afab=parallel.pp_schedule=afab
# same RUN LIKE: the two have computed the same.
same() {
    results "$computed" "$2" >want
    [ -s want ] || fail "$2 has computed nothing"
    results "$computed" "$1" | cmp -s want - || fail "$1 differs from $2"
}
# check_memory RUN: it has touched what was planned for it, to the byte, on every rank. Products of experts
# need the less workspace the fewer rows pick them, so with these a page or two may stay untouched.
check_memory() {
    event end "$1/metrics.jsonl" | tail -n 1 >end
    planned=$(field planned_peak_bytes end)
    untouched=$((planned - $(field touched_peak_bytes end)))
    [ -n "$planned" ] && [ "$untouched" -ge 0 ] && [ "$untouched" -le "${slack:-0}" ] ||
        fail "$1: touched $(field touched_peak_bytes end), planned $planned"
    [ "${slack:-0}" -gt 0 ] || [ "$(grep -o '"touched_by_rank": [^]]*' end | sed 's/.*: //')" = \
        "$(grep -o '"planned_by_rank": [^]]*' end | sed 's/.*: //')" ] ||
        fail "$1: ranks touched other than was planned: $(cat end)"
}
# chunks LAYOUT...: run `got` under it is as run `one`.
chunks() {
    expect 0 train c.yaml run=got --fresh "$@"
    same got one
    check_memory got
}

# ---- every family ----
layers_of() { grep -oE '"(num_hidden_layers|n_layer|num_transformer_layers)": *[0-9]+' "$1/config.json" | grep -oE '[0-9]+$'; }
recompute=(none selective full)
precision=(fp32 bf16)
k=0
for m in "$golden"/*/; do
    layers=$(layers_of "$m")
    even= slack=0
    grep -q router_aux_loss_coef "$m/config.json" && slack=8192 &&
        even=", router_aux_loss_coef: 0" # it is pooled over all layers
    base=("model={from: $m$even}" train.precision=${precision[k++ % 2]})
    expect 0 train c.yaml --fresh "${base[@]}"
    for v in $(seq 1 $((layers < 4 ? layers : 4))); do
        case $m in # the others try half of it
            */gemma2/ | */gpt2-nanogpt/ | */mobilellm-shared/ | */olmo2/ | */openelm/) schedules="1f1b afab" ;;
            *) schedules=$([ $((v % 2)) = 0 ] && echo 1f1b || echo afab) ;;
        esac
        for schedule in $schedules; do
            chunks "${base[@]}" parallel.virtual=$v parallel.pp_schedule=$schedule \
                train.recompute=${recompute[k++ % 3]}
        done
    done
done

slack=0

# ---- without the deterministic mode ----
# The order of sums is the same, except where embedding and head are one tensor: their micro-batches
# come in turns when one is under way at a time, and all those of the head come first otherwise.
fast=train.deterministic=false
for m in llama-bias-untied olmo2 phi neox-parallel; do
    for p in fp32 bf16; do
        base=("model={from: $golden/$m}" $fast train.precision=$p)
        expect 0 train c.yaml --fresh "${base[@]}"
        chunks "${base[@]}" parallel.virtual=2
        chunks "${base[@]}" parallel.virtual=2 $afab
    done
done
base=("model={from: $golden/gemma2}" $fast)
expect 0 train c.yaml --fresh "${base[@]}"
chunks "${base[@]}" parallel.virtual=3
expect 0 train c.yaml run=got --fresh "${base[@]}" $afab
paste <(results step one) <(results step got) | sed -E 's/.*"loss": ([^,]*).*"loss": ([^,]*).*/\1 \2/' |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }' || fail "the losses are others"

# ---- dropout, validation, samples, saves; documents; batches of one micro-batch; dropped tokens ----
for model in "$gpt2" "$llama"; do
    for keys in "" train.micro_batch_size=10 "train.micro_batch_size=1 data.document_mask=false" \
        "$fast checkpoint.async=false" "optim.z_loss=1e-3 train.head_chunk_rows=8 train.precision=bf16"; do
        base=("$model" "${works[@]}" $keys)
        expect 0 train c.yaml --fresh "${base[@]}"
        chunks "${base[@]}" parallel.virtual=3
        chunks "${base[@]}" parallel.virtual=4 $afab train.recompute=full
        chunks "${base[@]}" $afab train.recompute=selective
    done
done

# ---- batches that grow, stages of several lengths ----
ramp=("$gpt2" train.steps=10 'train.batch_ramp={start: 2, increment: 4, every: 3}')
expect 0 train c.yaml --fresh "${ramp[@]}"
chunks "${ramp[@]}" $afab
chunks "${ramp[@]}" $afab parallel.virtual=4
chunks "${ramp[@]}" parallel.virtual=2

# ---- what is not finite, or too large for exact sums, has one explanation ----
# Whether a run comes so far depends on the processor's sums, but not on how it is cut up.
explain() { # KEYS...: the error, or all steps
    rm -rf bad
    "$athanor" train c.yaml run=bad train.steps=20 "$@" >out 2>err </dev/null
    last="athanor train c.yaml run=bad $*"
    grep -o 'error: .*' err || results step bad
}
tied=${llama/tie_word_embeddings: false/tie_word_embeddings: true}
for keys in "optim.lr=10 optim.clip_norm=0" "model.initializer_range=10 optim.z_loss=1" \
    "model.norm_eps=1e-20 model.initializer_range=1e-12"; do
    for model in "$llama" "$tied"; do
        explain "$model" $keys >whole
        [ -s whole ] || fail "it says nothing"
        cat whole >>told
        for layout in parallel.virtual=2 "parallel.virtual=3 $afab" $afab; do
            explain "$model" $keys $layout | cmp -s - whole || fail "not $(cat whole)"
        done
    done
done
grep -q 'error: ' told || fail "nothing goes wrong any more"

# ---- going on under another layout ----
base=("$gpt2" "${works[@]}" train.steps=8)
expect 0 train c.yaml --fresh "${base[@]}"
at=0
for layout in parallel.virtual=4 $afab "parallel.virtual=3 $afab" ""; do
    at=$((at + 2))
    expect 0 train c.yaml run=moved "${base[@]}" train.steps=$at $layout
done
same moved one

# ---- several ranks ----
# ranks N LAYOUT...: run `got` on N ranks under a layout.
ranks() {
    local n=$1
    shift
    expect 0 launch --ranks "$n" --timeout 30 -- train c.yaml run=got --fresh train.threads=1 \
        parallel.verify=false "$@"
}
for model in "$gpt2" "model={from: $golden/gemma2}"; do
    base=("$model" train.global_batch_size=12 train.micro_batch_size=1 checkpoint.every=2 checkpoint.async=false)
    expect 0 train c.yaml --fresh "${base[@]}"
    for layout in "2 parallel.zero=0 parallel.virtual=3" "2 parallel.zero=0 $afab" \
        "2 parallel.zero=1 parallel.virtual=4 $afab" "2 parallel.zero=2 parallel.virtual=3" \
        "2 parallel.zero=3 parallel.virtual=3" "2 parallel.zero=3 parallel.virtual=4 train.recompute=full" \
        "3 parallel.zero=1 parallel.virtual=2 $afab" \
        "2 parallel.zero=2 parallel.virtual=4 $afab" "2 parallel.zero=3 $afab train.recompute=full" \
        "4 parallel.zero=2 parallel.dp_replicate=2 parallel.virtual=2"; do
        ranks ${layout} "${base[@]}" parallel.bucket_mb=0.001
        same got one
        check_memory got
    done
done
# Tensor parallelism adds up otherwise, whatever the chunks.
base=("$llama" train.global_batch_size=12 $fast)
ranks 2 parallel.tp=2 parallel.sp=true "${base[@]}"
rm -rf one && mv got one
ranks 2 parallel.tp=2 parallel.sp=true "${base[@]}" parallel.virtual=2
same got one
ranks 2 parallel.tp=2 parallel.sp=true "${base[@]}" parallel.virtual=3 $afab
same got one
check_memory got
ranks 4 parallel.tp=2 parallel.zero=3 "${base[@]}" parallel.virtual=3
check_memory got

# A layout is tried as it is before it trains: with its chunks.
expect 0 train c.yaml --fresh "$llama" train.global_batch_size=12
expect 0 launch --ranks 2 --timeout 30 -- train c.yaml run=got --fresh "$llama" train.global_batch_size=12 \
    parallel.virtual=4 $afab --json
has out "layout"
same got one

# ---- the plan in another process ----
for keys in "parallel.virtual=3" "parallel.virtual=4 $afab" "$afab train.precision=bf16"; do
    expect 0 plan c.yaml "$gpt2" "${works[@]}" $keys --json
    peak=$(grep -o '"peak_bytes": [0-9]*' out | head -n 1 | sed 's/.*: //')
    expect 0 train c.yaml run=got --fresh "$gpt2" "${works[@]}" $keys
    check_memory got
    [ "$planned" = "$peak" ] || fail "the plan says $peak, the run planned $planned"
done
expect 0 plan c.yaml "$gpt2" parallel.dp=2 parallel.zero=1 parallel.virtual=4 $afab train.global_batch_size=12 --json
peak=$(grep -o '"peak_bytes": [0-9]*' out | head -n 1 | sed 's/.*: //')
ranks 2 "$gpt2" parallel.zero=1 parallel.virtual=4 $afab train.global_batch_size=12
check_memory got
tr -d '[],' <<<"$(grep -o '"planned_by_rank": [^]]*' end)" | tr ' ' '\n' | grep -qx "$peak" ||
    fail "the plan says $peak: $(cat end)"
# ... and what differs is planned differently: frames are of micro-batches and chunks.
for keys in "" parallel.virtual=4 $afab "parallel.virtual=4 $afab" "$afab train.global_batch_size=20"; do
    expect 0 plan c.yaml "$llama" $keys --json
    grep -o '"peak_bytes": [0-9]*' out | head -n 1
done | sort | uniq -d | grep . && fail "two settings have the same plan"

# ---- a trace, a profile ----
expect 0 train c.yaml run=got --fresh "$llama" parallel.virtual=4 $afab --trace t.json
if command -v python3 >/dev/null; then
    python3 -m json.tool t.json >/dev/null || fail "t.json is not JSON"
fi
for i in 0 1 2 3; do
    for pass in forward backward; do
        has t.json "\"name\": \"$pass layers.$i\""
    done
done
# profile KEYS...: what each part of the model computes in a step, without times. Activations are
# copied from chunk to chunk.
profile() {
    expect 0 bench train c.yaml "$llama" model.vocab_size=300 --steps 1 --warmup 0 --profile --json "$@"
    grep -o '"name": "[^"]*", "pass": "[^{}]*"bytes": [^,]*' out | sed -E 's/"(ms|share)": [^,]*, //g' |
        grep -v -e '"pass": "-"' -e '"copy of gradients"' | sort
}
profile >whole
profile parallel.virtual=4 >chunked
cmp -s whole chunked || fail "profile: $(diff whole chunked)"
profile parallel.virtual=3 $afab >chunked
cmp -s whole chunked || fail "profile: $(diff whole chunked)"

# ---- stages of other lengths ----
mkdir stages && cd stages || exit 1
make_stages
expect 0 train stages.yaml run=want train.steps=27 train.deterministic=true
for layout in parallel.virtual=2 $afab "parallel.virtual=2 $afab"; do
    expect 0 train stages.yaml run=got --fresh train.steps=27 train.deterministic=true $layout
    computed want >want.events
    computed got | cmp -s - want.events || fail "it is computed otherwise"
    check_memory got
done
at=0
for layout in $afab "parallel.virtual=2 $afab" parallel.virtual=2; do
    at=$((at + 9))
    train_to $at moved train.deterministic=true $layout
done
computed moved | cmp -s - want.events || fail "going on under other layouts changes it"
cd ..

# What a stage changes is another program, though its rows are as long as before.
cat c.yaml - >two.yaml <<'YAML'
stages:
  - {name: one, until: {steps: 2}}
  - {name: two, train: {seq_len: 16}}
YAML
second() { # RUN KEYS...: RUN.last is its last step, the only one of the second stage
    expect 0 train two.yaml run="$1" "$llama" parallel.virtual=2 $afab "${@:2}"
    results step "$1" | tail -n 1 >"$1.last"
}
second two-plain
for keys in model.rope_theta=50 data.document_mask=false; do
    second "two-$keys" "stages.1.$keys"
    cmp -s two-plain.last "two-$keys.last" && fail "it has no effect in a second stage"
done
expect 0 train two.yaml run=moved2 "$llama" train.steps=2
expect 0 train two.yaml run=moved2 "$llama" stages.1.model.rope_theta=50
results step moved2 | cmp -s - <(results step two-model.rope_theta=50) || fail "a stage begun anew differs"

# ---- losses that are known after the forward ----
loss_of() { # KEYS...
    expect 0 bench train c.yaml "$llama" model.vocab_size=100 train.objective=dpo --steps 3 --warmup 0 --json "$@"
    grep -o '"name": "loss", "value": [^,]*' out
}
whole=$(loss_of)
for keys in parallel.virtual=3 "parallel.virtual=4 $afab" $afab; do
    [ "$(loss_of $keys)" = "$whole" ] || fail "the loss is not $whole"
done

# ---- linear layers have no dropout of attention ----
expect 0 train c.yaml run=one --fresh "$linear"
chunks "$linear" parallel.virtual=2

# ---- what cannot be ----
expect 2 train c.yaml run=no "$llama" parallel.virtual=5
has err "4 layers do not make 5 chunks"
has err "parallel.virtual=4 or less"
has err "parallel.virtual"
[ ! -e no ] || fail "a refused run left a folder"
expect 2 plan c.yaml "$llama" parallel.virtual=5
expect 2 plan c.yaml "$llama" parallel.pp_schedule=interleaved
has err "parallel.pp_schedule=interleaved has several stages, and parallel.pp is 1"
has err "hint: parallel.pp_schedule=1f1b, or"
expect 2 train c.yaml run=no "$llama" parallel.virtual=0
has err parallel.virtual
expect 2 train c.yaml run=no "$llama" parallel.virtual=2 parallel.pp=2
has err "stages with several chunks of layers need parallel.pp_schedule=interleaved"
expect 2 train c.yaml run=no "$llama" parallel.pp_schedule=zigzag
has err "1f1b"
finish
