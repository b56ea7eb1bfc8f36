#!/usr/bin/env bash
# Adapters beside a base model in 4 bits (lora.base_dtype=nf4): memory as planned and less of it, losses near those beside
# the weights in full, resumed with the same bits, on ranks, on the emulated GPU; and what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 ATHANOR_CUDA=emulated
make_data
write_config c.yaml
model="{model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 128, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: true}"
expect 0 train c.yaml run=full "model=$model" train.steps=30
sed '/^tokenizer/d; s/^model:.*/model: {from: base}/; s/^train:.*/train: {steps: 12, seq_len: 32, global_batch_size: 8, micro_batch_size: 4, digest_every: 1}\nlora: {rank: 3, alpha: 6, base_dtype: nf4}/' c.yaml >lora.yaml
expect 0 export full -o base --to hf --dtype BF16

# ---- what is planned ----
expect 0 plan lora.yaml
has out "frozen, in 4 bits"
has out "14 matrices of the layers, NF4, 4."
has out ", f32, recompute"
expect 0 plan lora.yaml --json
four=$(field quantised_bytes out) rest=$(field mapped_bytes out)
expect 0 plan lora.yaml --json lora.base_dtype=stored train.precision=fp32
calc "abs($(field mapped_bytes out) - $rest - 2 * 73728) < 1" || fail "other matrices are in 4 bits"
calc "$four < 0.6 * 73728" || fail "$four bytes of 4 bits"

# A search counts what is frozen as a plan does, and leaves out what does not split blocks.
"$athanor" plan cluster h100-8 >gpus.yaml
expect 0 plan search lora.yaml cluster=gpus.yaml train.global_batch_size=32 --most 50
! grep 'dp [0-9].*, tp ' out || fail "blocks of 4 bits are split"
expect 0 plan search lora.yaml cluster=gpus.yaml train.global_batch_size=32 --write -o best.yaml --json
first() { grep -o "\"$1\": [0-9.e-]*" out | head -n 1 | sed 's/.*: //'; }
bytes=$(first needed_bytes)
expect 0 plan best.yaml --json
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(cat out)"

# ---- learns about what it learns beside the weights in full; memory is what was planned ----
losses() { grep '"event": "step"' "$1/metrics.jsonl" | grep -o '"loss": [^,]*' | sed 's/.*: //'; }
# near A B LIMIT: relative distance of the losses of every step.
near() {
    [ "$(losses "$1" | wc -l)" = 12 ] || fail "$1 has not run"
    paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= most)) { print "line " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad }' || fail "$1 and $2 differ"
}
as_planned() {
    [ "$(event end "$1/metrics.jsonl" | grep -oE '"(planned|touched)_peak_bytes": [0-9]+' | sed 's/.*: //' | sort -u | wc -l)" = 1 ] ||
        fail "$1 touches other memory than planned"
}
expect 0 train lora.yaml run=four
has out "frozen, in 4 bits"
as_planned four
expect 0 train lora.yaml run=wide lora.base_dtype=stored train.precision=fp32
near four wide 0.05
[ "$(losses four)" != "$(losses wide)" ] || fail "4 bits change nothing"
expect 0 train lora.yaml run=gpu device=cuda
near gpu four 1e-5
as_planned gpu

# ---- experts and latent attention, which reads its matrices head by head when it writes ----
expect 0 train c.yaml run=latents train.steps=4 "model={model_type: deepseek_v3, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: auto, max_position_embeddings: 64, n_routed_experts: 4, num_experts_per_tok: 2, n_group: 1, topk_group: 1, moe_intermediate_size: 64, n_shared_experts: 1, first_k_dense_replace: 1, kv_lora_rank: 64, q_lora_rank: 64, qk_rope_head_dim: 16, qk_nope_head_dim: 32, v_head_dim: 32}"
expect 0 plan lora.yaml model.from=latents
has out "28 matrices of the layers, NF4"
for device in cpu cuda; do
    expect 0 train lora.yaml run=latents-$device model.from=latents device=$device
done
near latents-cuda latents-cpu 1e-5
[ -n "$(event sample latents-cpu/metrics.jsonl)" ] || fail "it writes nothing"
[ "$(event sample latents-cuda/metrics.jsonl)" = "$(event sample latents-cpu/metrics.jsonl)" ] || fail "it writes something else on the GPU"

# ---- a resumed run has the same bits, and only in the same format ----
expect 0 train lora.yaml run=parts train.steps=7
expect 0 train lora.yaml run=parts
results step four >want
results step parts | cmp -s want - || fail "a resumed run differs"
expect 2 train lora.yaml run=parts train.steps=14 lora.base_dtype=stored
has err "lora.base_dtype"

# ---- ranks ----
expect 0 verify layouts lora.yaml --ranks 2 --steps 3
has out "ok: "

# ---- the adapter is one of the model in full, into which it is merged ----
expect 0 export four -o merged --to hf
has out "verified: logits differ by at most"
has out "in 4 bits (NF4), and is merged into the weights in full"
expect 0 train lora.yaml run=more lora.rank=0 lora.from=four train.steps=1
near_first() { awk -v a="$(losses more | head -n 1)" -v b="$(losses four | tail -n 1)" 'BEGIN { exit !(a < 1.2 * b) }'; }
near_first || fail "it goes on from elsewhere"

# ---- a folder that bitsandbytes has quantised: the same numbers as in full ----
cp -r "$root/tests/golden/nf4/model" bnb
expect 0 import bnb -o bnb-wide --dtype F32
has out "verified: logits differ by at most"
for base in bnb bnb-wide; do
    expect 0 train lora.yaml run=of-$base model.from=$base tokenizer=char.json lora.base_dtype=stored train.precision=fp32
done
near of-bnb of-bnb-wide 1e-6
expect 0 train lora.yaml run=of-blocks model.from=bnb tokenizer=char.json
has out "7 matrices of the layers, NF4"
near of-blocks of-bnb 0.01
expect 0 export of-blocks -o of-blocks-merged --to hf
has out "verified: logits differ by at most"
lacks out "in full"
sed 's/"bnb_4bit_quant_type": "nf4"/"bnb_4bit_quant_type": "fp4"/' "$root/tests/golden/nf4/model/config.json" >bnb/config.json
expect 3 import bnb -o no
has err "the weights are quantised by 'bitsandbytes' other than nf4, which is not read"
cp "$root/tests/golden/nf4/model/config.json" bnb
LC_ALL=C sed 's/nested_absmax/nested_absmix/' "$root/tests/golden/nf4/model/model.safetensors" >bnb/model.safetensors
expect 3 import bnb -o no
has err "is in 4 bits of bitsandbytes with other factors"

# ---- refused, each by its name ----
expect 2 train lora.yaml run=no lora.rank=0
has err "without adapters all are trained"
expect 2 train lora.yaml run=no train.precision=bf16
has err "activations beside 4 bits are fp32"
expect 2 launch --ranks 2 -- train lora.yaml run=no parallel.tp=2
has err "blocks of 4 bits are not split by parallel.tp"
printf 'GGUF' >base.gguf
expect 2 train lora.yaml run=no model.from=base.gguf
has err "a GGUF file is read in blocks of its own"
expect 0 train c.yaml run=odd "model={model_type: llama, hidden_size: 48, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 64, vocab_size: auto, max_position_embeddings: 64}" train.steps=1
expect 2 train lora.yaml run=no model.from=odd
has err "model.layers.0.self_attn.q_proj.weight has rows of 48, and blocks of NF4 are of 64"
finish
