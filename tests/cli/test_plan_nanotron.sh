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
    'min_lr: 1e-05' 'clip_norm: 0.5' 'eps: 1e-07' 'betas: .*0.8.*0.99' 'embed_tokens'; do
    grep -q "$line" out || fail "no $line"
done
# refuses SED NAME: a config that is changed so.
refuses() {
    sed "$1" full.yaml >odd.yaml
    ! cmp -s full.yaml odd.yaml || fail "nothing is changed by $1"
    expect 2 plan nanotron odd.yaml
    has err "$2"
}
refuses 's/dp: 8/dp: -2/' 'parallelism.dp is not a whole number from 1'
refuses 's/micro_batch_size: 3/micro_batch_size: 4611686018427387904/' 'tokens.micro_batch_size is not'
refuses 's/tp: 2/tp: "2"/' 'parallelism.tp is not'
refuses 's/hidden_size: 2048/hidden_size: 512.0/' 'model.model_config.hidden_size is not'
refuses 's/batch_accumulation_per_replica: 16/batch_accumulation_per_replica: 0/' 'batch_accumulation_per_replica is not'
refuses 's/zero_stage: 1/zero_stage: 4/' 'optimizer.zero_stage is not'
refuses 's/tie_word_embeddings: true/tie_word_embeddings: 1/' 'tie_word_embeddings is not true or false'
refuses 's/rope_theta: 50000.0/rope_theta: x/' 'rope_theta is not a number'
refuses 's/is_llama/hidden_act: gelu, is_llama/' 'hidden_act has no counterpart here but for silu'
refuses 's/is_llama/rope_scaling: {factor: 2}, is_llama/' 'rope_scaling has no counterpart'
refuses 's/is_llama/sliding_window_size: 64, is_llama/' 'sliding_window_size has no counterpart'
refuses 's/is_llama/attention_bias: true, is_llama/' 'attention_bias has no counterpart here but in a Qwen 2'
refuses 's/adam_beta1: 0.8, //' 'adam_beta2 is there without the other one'
refuses 's/clip_grad: 0.5/adam_beta1: 0.5/' 'optimizer.adam_beta1 has no counterpart'
refuses 's/name: adamW/name: sgd/' 'optimizer_factory.name has no counterpart here but for adamW'
refuses 's/dtype: bfloat16/dtype: float8/' 'model.dtype is float8'
refuses 's/1-sqrt/square/' 'lr_decay_style is square'
refuses 's/lr_decay_steps: 5000/lr_decay_steps: 50/' 'do not end with the last step'
refuses 's/REDUCE_SCATTER/RING/' 'tp_mode is neither'
refuses 's/\[.*token_embedding.*\]/[.*norm.*]/' 'a pattern other than'
finish
