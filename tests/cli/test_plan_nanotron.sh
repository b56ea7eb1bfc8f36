# A config of nanotron: what is taken over plans as it says. $1 is the program.
. "$(dirname "$0")/lib.sh"

cat >theirs.yaml <<'Y'
general: {project: smollm3, run: x, seed: 6}
model:
  dtype: bfloat16
  model_config: {hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 16, num_attention_heads: 32, num_key_value_heads: 8,
    vocab_size: 128256, max_position_embeddings: 4096, tie_word_embeddings: true, rope_theta: 50000.0, rms_norm_eps: 1.0e-05, is_llama_config: true}
optimizer:
  accumulate_grad_in_fp32: true
  weight_decay: 0.1
  zero_stage: 1
  learning_rate_scheduler: {learning_rate: 0.0005, lr_warmup_steps: 2000}
parallelism: {dp: 8, tp: 2, pp: 2, expert_parallel_size: 1, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true, recompute_layer: false}
tokens: {sequence_length: 4096, micro_batch_size: 3, batch_accumulation_per_replica: 16, train_steps: 20000}
Y
expect 0 plan nanotron theirs.yaml -o ours.yaml
has out 'not taken over'
expect 0 plan nanotron theirs.yaml -o same.yaml --json
grep -q '^{"path": "same.yaml", "config": {.*"global_batch_size": 384.*}}$' out || fail "$(cat out)"
cmp ours.yaml same.yaml || fail "--json writes another file"
expect 0 plan ours.yaml cluster=h100-32 --json
[ "$(field total out)" = 1235814400 ] || fail "another model: $(cat out)"
has out '"tp": 2'
calc "$(field bubble out) > 0 && $(field devices out) == 32" || fail "$(cat out)"
expect 0 config print ours.yaml
grep -q 'global_batch_size: 384' out || fail "not 3 x 8 x 16 sequences"
grep -q 'sp: true' out || fail "no sequence parallelism"
expect 3 plan nanotron ours.yaml
has err 'no config of nanotron'
sed 's/expert_parallel_size: 1/expert_parallel_size: 4/' theirs.yaml >experts.yaml
expect 2 plan nanotron experts.yaml
has err expert_parallel_size

# What our keys say as well: format, betas, clipping, schedule; where nothing is said, nanotron's default.
expect 0 config print ours.yaml
for line in 'precision: bf16' 'kind: linear' 'warmup_steps: 2000' 'decay_steps: 18000' 'min_lr: 0.0005' 'clip_norm: 0.0 ' 'no_decay: \[\]' 'pp_schedule: "*1f1b'; do
    grep -q "$line" out || fail "no $line"
done
cat >rate.txt <<'Y'
  clip_grad: 0.5
  optimizer_factory: {name: adamW, adam_beta1: 0.8, adam_beta2: 0.99, adam_eps: 1.0e-07}
  weight_decay_exclude_named_params: [.*token_embedding.*]
  learning_rate_scheduler: {learning_rate: 0.0005, lr_warmup_steps: 2000, lr_warmup_style: linear, lr_decay_style: 1-sqrt,
    lr_decay_starting_step: 15000, lr_decay_steps: 5000, min_decay_lr: 1.0e-05}
Y
sed '/learning_rate_scheduler/d' theirs.yaml | sed '/zero_stage/r rate.txt' >full.yaml
sed 's/dtype: bfloat16/dtype: float32/; s/pp_engine: 1f1b, //; s/is_llama_config: true/is_qwen2_config: true, attention_bias: true, hidden_act: silu/' full.yaml >other.yaml
expect 0 plan nanotron other.yaml -o ours2.yaml
expect 0 config print ours2.yaml
for line in 'precision: fp32' 'pp_schedule: afab' 'model_type: qwen2' 'kind: wsd' 'decay: "*1-sqrt' 'decay_steps: 5000' 'warmup_steps: 2000' \
    'min_lr: 1.0e-05' 'clip_norm: 0.5' 'eps: 1.0e-07' 'betas: .*0.8.*0.99' 'embed_tokens'; do
    grep -q "$line" out || fail "no $line"
done
# refuses SED NAME: a config that is changed so.
refuses() {
    sed "$1" full.yaml >odd.yaml
    ! cmp -s full.yaml odd.yaml || fail "nothing is changed by $1"
    expect 2 plan nanotron odd.yaml
    has err "$2"
}
# What nanotron has no default for is not guessed.
for key in tp pp batch_accumulation_per_replica train_steps; do
    sed -E "s/[, ]*\b$key: [0-9]+//" full.yaml >odd.yaml
    expect 3 plan nanotron odd.yaml
    has err ".$key, which has no default in nanotron"
done
refuses 's/dp: 8/dp: -2/' 'parallelism.dp is not a whole number from 1'
refuses 's/micro_batch_size: 3/micro_batch_size: 4611686018427387904/' 'tokens.micro_batch_size is not'
refuses 's/tp: 2/tp: "2"/' 'parallelism.tp is not'
refuses 's/hidden_size: 2048/hidden_size: 512.0/' 'model.model_config.hidden_size is not'
refuses 's/batch_accumulation_per_replica: 16/batch_accumulation_per_replica: 0/' 'batch_accumulation_per_replica is not'
refuses 's/zero_stage: 1/zero_stage: 4/' 'optimizer.zero_stage is not'
refuses 's/tie_word_embeddings: true/tie_word_embeddings: 1/' 'tie_word_embeddings is not true or false'
refuses 's/rope_theta: 50000.0/rope_theta: x/' 'rope_theta is not a number'
refuses 's/is_llama/hidden_act: gelu, is_llama/' 'hidden_act has no counterpart here but for silu'
refuses 's/is_llama/rope_scaling: linear, is_llama/' 'rope_scaling is not a group of keys'
refuses 's/is_llama/sliding_window_size: wide, is_llama/' 'sliding_window_size is not a whole number'
refuses 's/is_llama/flex_attention_mask: prefix, is_llama/' 'flex_attention_mask is no mask that is known'
refuses 's/is_llama/moe_config: {num_experts: 8, layers: [99]}, is_llama/' 'moe_config.layers is not a list of layers'
refuses 's/is_llama/moe_config: {num_experts: 8, layers: 3}, is_llama/' 'moe_config.layers is not a list of layers'
refuses 's/num_hidden_layers: 16/num_hidden_layers: 2000000000/' 'num_hidden_layers is not a whole number from 1 to 4096'
refuses 's/accumulate_grad_in_fp32: true/accumulate_grad_in_fp32: false/' 'accumulate_grad_in_fp32 has no counterpart here but for true'
refuses 's/recompute_layer: false/recompute_granularity: some/' 'recompute_granularity is neither full nor selective'
refuses 's/is_llama/attention_bias: true, is_llama/' 'attention_bias has no counterpart here but in a Qwen 2'
refuses 's/adam_beta1: 0.8, //' 'adam_beta2 is there without the other one'
refuses 's/name: adamW/name: sgd/' 'optimizer_factory.name has no counterpart here but for adamW'
refuses 's/dtype: bfloat16/dtype: float8/' 'model.dtype is float8'
refuses 's/1-sqrt/square/' 'lr_decay_style is square'
refuses 's/lr_decay_steps: 5000/lr_decay_steps: 5050/' 'end behind the last step'
refuses 's/REDUCE_SCATTER/RING/' 'tp_mode is neither'
refuses 's/\[.*token_embedding.*\]/[.*gate.*]/' 'has the pattern .*gate.*, which has no counterpart'

# takes SED LINE...: what a config that is changed so comes to.
takes() {
    sed "$1" full.yaml >odd.yaml
    ! cmp -s full.yaml odd.yaml || fail "nothing is changed by $1"
    shift
    expect 0 plan nanotron odd.yaml -o odd2.yaml
    cp err told
    expect 0 config print odd2.yaml
    for line; do
        grep -q "$line" out || fail "no $line: $(cat out)"
    done
    expect 0 plan odd2.yaml cluster=h100-32 --json
}
# SmolLM3's: each fourth layer without positions; its decay begins one step behind the last of the plateau.
takes 's/is_llama_config: true/is_qwen2_config: true, no_rope_layer: 4/; s/lr_decay_starting_step: 15000/lr_decay_starting_step: 15001/' \
    'model_type: smollm3' 'no_rope_layers: \[1, 1, 1, 0, 1' 'decay_steps: 5000'
takes 's/is_llama/rope_scaling: {rope_type: llama3, factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192}, is_llama/' \
    'rope_type: llama3' 'factor: 32'
takes 's/is_llama/sliding_window_size: 512, rope_interleaved: true, _use_doc_masking: true, z_loss_enabled: true, z_loss_coefficient: 1.0e-05, is_llama/' \
    'sliding_window: 513' 'rope_interleaved: true' 'document_mask: true' 'z_loss: 1.0e-05'
takes 's/is_llama_config: true/is_qwen2_config: true, moe_config: {num_experts: 8, top_k: 1, layers: [-1], moe_intermediate_size: 512, enable_shared_expert: true, shared_expert_intermediate_size: 1024, token_dispatcher_type: alltoall}/; s/dp: 8/dp: 16/; s/pp: 2/pp: 1/' \
    'model_type: qwen2_moe' 'num_experts: 8' 'num_experts_per_tok: 1 ' 'moe_intermediate_size: 512' 'shared_expert_intermediate_size: 1024' 'shared_expert_gate: true'
# Rows that nanotron adds to the table, its older places and words, patterns.
takes 's/vocab_size: 128256/vocab_size: 50000/; s/^model:/model:\n  make_vocab_size_divisible_by: 128/' 'vocab_size: 50176'
takes 's/optimizer_factory: {name: adamW, /{/; s/  {adam_beta1: 0.8, adam_beta2: 0.99, adam_eps: 1.0e-07}/  adam_beta1: 0.8\n  adam_beta2: 0.99\n  adam_eps: 1.0e-07/' \
    'betas: .*0.8.*0.99' 'eps: 1.0e-07'
takes 's/recompute_layer: false/recompute_granularity: FULL, context_parallel_size: 2/; s/dp: 8/dp: 4/' 'recompute: full' 'cp_kind: allgather' 'cp: 2'
takes 's/\[.*token_embedding.*\]/[.*norm.*, .*bias.*]/; s/5000, min/5000, min/; s/tp: 2/tp: 4/; s/dp: 8/dp: 4/' 'no_decay: .*norm.*bias'
# What nanotron has no word for is told, null is nothing.
takes 's/is_llama/mla_rank: 8, other: null, is_llama/' 'model_type: llama'
grep -q 'model.model_config.mla_rank is no key of nanotron that is known' told || fail "an unknown key is silent"
grep -q 'other' told && fail "null is told"
# A decay that ends early: the least rate until the last step. One that ends late: as far as it comes.
takes 's/lr_decay_steps: 5000/lr_decay_steps: 1000/' '"steps": 16000' '"rest", "optim": {"lr": 1.0e-05'
takes 's/lr_decay_steps: 5000/lr_decay_steps: 0/' '"steps": 15000' '"rest", "optim": {"lr": 1.0e-05'
takes 's/lr_decay_steps: 5000/lr_decay_steps: 10000/; s/1-sqrt/linear/' 'min_lr: 0.000255' 'decay_steps: 5000'
takes 's/lr_decay_starting_step: 15000/lr_decay_starting_step: 30000/' 'decay_steps: 0' 'min_lr: 0.0005'
takes 's/lr_warmup_steps: 2000/lr_warmup_steps: 90000/; s/lr_decay_.*_step: 15000, lr_decay_steps: 5000, //; s/train_steps: 20000/train_steps: 20_000/' \
    'warmup_steps: 90000' 'decay_steps: 0' ' steps: 20000 '
takes 's/sequence_length: 4096/sequence_length: 8192/; s/is_llama/interleaved_rotary: true, is_llama/' 'max_position_embeddings: 8192' 'rope_interleaved: true'
sed 's/hidden_size/d_model/' full.yaml >mamba.yaml
expect 3 plan nanotron mamba.yaml
has err 'it is no Llama or Qwen 2 of nanotron'
finish
