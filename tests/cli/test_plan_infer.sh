# Models that only generate: published sizes of caches, bounds of speed. $1 is the program.
. "$(dirname "$0")/lib.sh"

expect 0 plan infer smollm3-3b cluster=l4 --context 131072 --json
[ "$(field cache_bytes out)" = 9663676416.0 ] || fail "not 9 GiB: $(cat out)"
[ "$(field cache_bytes_per_token out)" = 73728.0 ] || fail "not 73,728 a token"
# A token reads the weights and the cache once, at 300 GB/s.
calc "$(field token_ms out) > 1e3 * (5.9e9 + 9.6e9) / 3e11" || fail "faster than memory: $(cat out)"
calc "$(field token_ms out) < 3e3 * (5.9e9 + 9.6e9) / 3e11" || fail "thrice as slow as memory: $(cat out)"
has out '"fits": true'
expect 0 plan infer llama-3-8b model.num_key_value_heads=32 cluster=laptop --context 8192 --json
[ "$(field cache_bytes out)" = 4294967296.0 ] || fail "not 4 GiB: $(cat out)"
has out '"fits": false'
# Four bits for a weight: less memory, and less time for each token; several texts read them once.
expect 0 plan infer llama-3-8b cluster=laptop --store Q4_K --json
one=$(field token_ms out)
calc "$(field weight_bytes out) < 4.6e9" || fail "$(cat out)"
expect 0 plan infer llama-3-8b cluster=laptop --store Q4_K --texts 4 --json
calc "$(field token_ms out) < 2.5 * $one && $(field token_ms out) > $one" || fail "four texts: $(cat out)"
# Of experts a token reads those that it picks.
expect 0 plan infer qwen3-30b-a3b cluster=h100 --json
calc "$(field token_ms out) < 1e3 * 30e9 / 3.35e12" || fail "all experts are read: $(cat out)"
expect 0 plan infer smollm2-135m cluster=phone
has out 'keys and values'
expect 2 plan infer smollm2-135m
has err 'cluster=phone'
# Rows that are no whole blocks are in f16, as an export has them: as many bytes as without blocks, but for vectors.
expect 0 plan infer smollm2-135m cluster=laptop --store BF16 --json
whole=$(field weight_bytes out)
expect 0 plan infer smollm2-135m cluster=laptop --store Q4_K --json
calc "$(field weight_bytes out) < 1.01 * $whole" || fail "$(field weight_bytes out) bytes in Q4_K, $whole in BF16"
expect 2 plan infer smollm2-135m cluster=l4 --store Q3
# Of one device, however many there are; a model with an encoder is refused, and more tokens than positions reach.
expect 0 plan infer smollm2-135m cluster=h100-64
has out '(one device of h100)'
expect 2 plan infer smollm2-135m cluster=h100-64 parallel.tp=8
has err "'parallel.tp=8' does nothing"
for key in train.seq_len=4096 train.micro_batch_size=2 optim.lr=1; do
    expect 2 plan infer smollm2-135m cluster=l4 $key
    has err "nothing is trained: '$key' does nothing"
done
# Layers with a window: this program keeps all keys, and what others keep is told. 10 of 62 layers have none, 52 one of 1,024.
expect 0 plan infer gemma-3-27b cluster=h100 --context 131072 --json
[ "$(field cache_bytes out)" = 66571993088.0 ] || fail "$(cat out)"
[ "$(field windowed_cache_bytes out)" = $((8192 * (10 * 131072 + 52 * 1024))).0 ] || fail "$(cat out)"
# A token reads of such a layer no more than its window: two bytes of 27.0B weights and 10.4 GiB, at 3,350 GB/s.
calc "$(field token_ms out) < 1.8e3 * (5.4e10 + 1.12e10) / 3.35e12" || fail "all keys are read: $(field token_ms out)"
calc "$(field token_ms out) > 1e3 * (5.4e10 + 1.12e10) / 3.35e12" || fail "faster than memory: $(field token_ms out)"
expect 0 plan infer gemma-3-27b cluster=h100 --context 131072
has out '10.41 GiB in runtimes that keep of a layer no more than its window; this program keeps all'
expect 0 plan infer gemma-3-27b cluster=h100 --context 1024
lacks out window
expect 2 plan infer t5-small cluster=l4
has err num_encoder_layers
expect 0 plan infer smollm2-135m cluster=l4 --context 8192
! grep -q warning out || fail "8192 is what it was trained with"
expect 0 plan infer smollm2-135m cluster=l4 --context 8193
has out 'warning: the model has positions for 8192 tokens'
expect 0 plan infer smollm2-135m cluster=l4 --context 8193 --json
has out '"stretched": true'
expect 2 plan infer smollm2-135m cluster=l4 --context 10000000
has err 'the model has positions for 8192'
expect 2 plan infer gpt2 cluster=l4 --context 1025
printf 'GGUF\003\000\000\000' >m.gguf
expect 2 plan infer m.gguf cluster=l4
has err 'a GGUF file is no model of a preset'
expect 2 plan infer smollm2-135m cluster=l4 --context 100 --prompt 100
finish
