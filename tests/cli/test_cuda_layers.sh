#!/usr/bin/env bash
# Experts, latent attention, linear layers, T5 and a teacher on the emulated GPU: the losses and tokens of the CPU, and one digest
# over layouts. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
export OMP_NUM_THREADS=1 ATHANOR_CUDA=emulated
make_data
cat >base.yaml <<END
tokenizer: char.json
data: {train: set/train, valid: set/valid}
train: {steps: 20, seq_len: 32, global_batch_size: 4, micro_batch_size: 2, precision: fp32}
optim: {lr: 3.0e-3, schedule: {kind: constant, warmup_steps: 2}}
eval: {every: 20, batches: 1}
sample: {every: 20, prompts: ["the fire"], max_new: 6}
END
common='num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 40, vocab_size: auto, max_position_embeddings: 32'
experts='num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 24'
{
    cat base.yaml
    echo "model: {model_type: deepseek_v3, hidden_size: 32, $common, n_routed_experts: 8, num_experts_per_tok: 3, n_group: 4, topk_group: 2, moe_intermediate_size: 24, n_shared_experts: 1, first_k_dense_replace: 1, kv_lora_rank: 16, q_lora_rank: 12, qk_rope_head_dim: 8, qk_nope_head_dim: 8, v_head_dim: 8}"
} >latents.yaml
{
    cat base.yaml
    echo "model: {model_type: qwen3_next, hidden_size: 24, $common, num_key_value_heads: 2, head_dim: 8, $experts, shared_expert_intermediate_size: 16, router_aux_loss_coef: 0.01, linear_layers: [1, 0], linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8, linear_value_head_dim: 12, linear_conv_kernel_dim: 4}"
} >linear.yaml
{
    cat base.yaml
    echo "model: {model_type: mixtral, hidden_size: 32, $common, num_key_value_heads: 2, num_local_experts: 4, num_experts_per_tok: 2, router_aux_loss_coef: 0.02}"
} >experts.yaml

# losses RUN: of every step, then of validation.
losses() { grep -oE '"(loss|val_loss)": [0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: //'; }
# close RUN LIKE LIMIT: relative distance.
close() {
    [ "$(losses "$1" | wc -l)" -ge 3 ] || fail "$1 has computed nothing"
    paste <(losses "$1") <(losses "$2") | awk -v limit="$3" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= limit)) { print "line " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad }' || fail "$1 has other losses than $2"
}
# both CONFIG LIMIT ARGS...: runs CONFIG-cpu and CONFIG-cuda.
both() {
    local config=$1 limit=$2
    shift 2
    for device in cpu cuda; do
        rm -rf "$config-$device"
        expect 0 train $config.yaml run=$config-$device device=$device "$@"
    done
    close $config-cuda $config-cpu "$limit"
}
same_samples() {
    [ -n "$(event sample "$1-cpu/metrics.jsonl")" ] || fail "$1 writes nothing"
    [ "$(event sample "$1-cuda/metrics.jsonl")" = "$(event sample "$1-cpu/metrics.jsonl")" ] || fail "$1 writes something else"
}

# ---- the losses of the CPU, what a model then writes, and memory as planned ----
for config in latents linear experts; do
    both $config 1e-5
    same_samples $config
    [ "$(event end $config-cuda/metrics.jsonl | grep -oE '"(planned|touched)_peak_bytes": [0-9]+' | sed 's/.*: //' | sort -u | wc -l)" = 1 ] ||
        fail "$config touches other memory than planned"
done
cp -r experts-cpu teacher # the runs of the next steps take the place of these

# ---- limits of experts, the other balances, 16 bits, a teacher ----
short='train.steps=3 eval.every=0 sample.every=0'
both experts 1e-5 $short train.router.capacity_factor=0.8 train.router.balance=global train.router.z_loss=0.01
both linear 1e-5 $short train.router.balance=sequence train.recompute=full
both latents 5e-3 $short train.precision=bf16
both linear 5e-3 $short train.precision=fp16
both experts 1e-5 $short distill.teacher="$(echo teacher/checkpoints/step-*)" distill.weight=0.5 distill.temperature=2 distill.top_k=5

# ---- an encoder and a decoder, with biases by distance ----
sentinels=$(seq -s, -f '<extra_id_%g>' 0 29)
expect 0 tok train text.txt -o t5.json --kind unigram --vocab-size 120 --special "<pad>,</s>,<unk>,$sentinels"
awk '{ printf "{\"source\": \"%s %s %s\", \"target\": \"%s %s\"}\n", $1, $2, $3, $2, $1 }' text.txt | head -n 200 >train.jsonl
cat >t5.yaml <<'YAML'
model: {model_type: t5, hidden_size: 24, num_encoder_layers: 1, num_hidden_layers: 2, num_attention_heads: 2, head_dim: 16, intermediate_size: 32, vocab_size: auto, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0}
tokenizer: t5.json
data: {train: train.jsonl, valid: train.jsonl, template: plain}
train: {steps: 20, seq_len: 24, source_len: 30, global_batch_size: 4, micro_batch_size: 2, precision: fp32}
optim: {lr: 3.0e-3, weight_decay: 0, schedule: {kind: constant, warmup_steps: 2}}
eval: {every: 20, batches: 1}
YAML
both t5 1e-5
both t5 5e-3 train.steps=3 eval.every=0 train.precision=bf16
both t5 1e-5 train.steps=5 eval.every=5 'optim={name: adafactor, lr: 0.01, weight_decay: 0, schedule: {kind: inverse_sqrt, timescale: 10000}}'

# ---- one digest over layouts ----
digests() { grep -o '"digest": "[^"]*"' "$1/metrics.jsonl"; }
short="$short train.deterministic=true train.digest_every=1 device=cuda"
for config in latents linear; do
    expect 0 train $config.yaml run=$config-one $short
    [ "$(digests $config-one | wc -l)" -ge 3 ] || fail "there are no digests"
    expect 0 launch --ranks 2 -- train $config.yaml run=$config-zero $short parallel.zero=3
    cmp -s <(digests $config-one) <(digests $config-zero) || fail "two ranks have other digests than one, $config"
done
expect 0 launch --ranks 2 -- train latents.yaml run=latents-tp $short parallel.tp=2
close latents-tp latents-one 1e-5

# ---- ops that send in the midst of what they compute ----
grep -v '^sample' experts.yaml >shared.yaml
alone="$short train.router.balance=global"
expect 0 train shared.yaml run=shared-one $alone
expect 0 launch --ranks 2 -- train shared.yaml run=shared-ep $alone parallel.ep=2
close shared-ep shared-one 1e-5
expect 0 launch --ranks 2 -- train shared.yaml run=shared-ring $alone parallel.cp=2 parallel.cp_kind=ring
close shared-ring shared-one 1e-5
expect 0 train shared.yaml run=shared-file $alone parallel.offload=optimizer
[ "$(digests shared-one | wc -l)" -ge 3 ] && cmp -s <(digests shared-one) <(digests shared-file) ||
    fail "states in a file give other digests"
expect 0 launch --ranks 2 -- train shared.yaml run=shared-async $alone parallel.tp=2 parallel.tp_async=true
close shared-async shared-one 1e-5

# ---- experts and latents of a GGUF file, read where they lie: after prompts of few and of many tokens ----
"$athanor" tok train text.txt -o bpe.json --kind bpe --vocab-size 300 >log 2>&1 &&
    "$athanor" data build text.txt -o bpe tokenizer=bpe.json valid=0.1 >log 2>&1 || fail "there is no data: $(cat log)"
for config in latents experts; do
    expect 0 train $config.yaml run=$config-small device=cpu tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid sample.every=0 eval.every=0 train.steps=10
    expect 0 export $config-small -o $config.gguf --to gguf --dtype Q8_0
    for prompt in fire "0123456789 of the fire"; do
        for device in cpu cuda; do
            ATHANOR_DEVICE=$device expect 0 generate $config.gguf --prompt "$prompt" --max-new 12 --temperature 0
            cp out $device.txt
        done
        [ -s cpu.txt ] && cmp -s cpu.txt cuda.txt || fail "$config: the GPU goes on otherwise after '$prompt'"
    done
done
# ---- all ops have kernels, and a cluster of GPUs is reckoned with ----
expect 0 bench kernels --list
lacks out " none"
for model in olmoe-1b-7b deepseek-v2-lite; do
    expect 0 plan $model cluster=h100-8 parallel.zero=3 train.seq_len=1024 train.global_batch_size=8 train.micro_batch_size=1
    has out "time on h100"
done
finish
