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
finish
