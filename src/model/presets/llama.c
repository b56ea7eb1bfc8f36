/* Llama and what computes the same function. */
#include "model/presets/table.h"

/* clang-format off */

/* layers, width, heads, key/value heads, feed-forward width, vocabulary, context, rotary base,
 * tied, more */
#define LLAMA(L, C, H, K, F, V, T, THETA, TIED, ...) PRESET_JSON({"model_type": "llama", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": V, \
    "max_position_embeddings": T, "rms_norm_eps": 1e-5, "rope_theta": THETA, \
    "tie_word_embeddings": TIED, __VA_ARGS__})
#define NORMAL "initializer_range": 0.02
#define SCALED(FACTOR) "rope_scaling": {"rope_type": "llama3", "factor": FACTOR, \
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

/* Weights of llama2.c as they lie: rotary pairs are neighbours. Also baby-llama2-chinese. */
#define LLAMA2C(L, C, H, F, V, T) \
    LLAMA(L, C, H, H, F, V, T, 10000, true, "rope_interleaved": true, "init_scheme": "gpt2")

const preset presets_llama[] = {
    {"llama-2-7b", LLAMA(32, 4096, 32, 32, 11008, 32000, 4096, 10000, false, NORMAL)},
    {"llama-2-13b", LLAMA(40, 5120, 40, 40, 13824, 32000, 4096, 10000, false, NORMAL)},
    {"llama-2-70b", LLAMA(80, 8192, 64, 8, 28672, 32000, 4096, 10000, false, NORMAL)},
    {"llama-3-8b",
     LLAMA(32, 4096, 32, 8, 14336, 128256, 8192, 500000, false, NORMAL)},
    {"llama-3-70b",
     LLAMA(80, 8192, 64, 8, 28672, 128256, 8192, 500000, false, NORMAL)},
    {"llama-3.1-8b",
     LLAMA(32, 4096, 32, 8, 14336, 128256, 131072, 500000, false, SCALED(8.0))},
    {"llama-3.1-70b",
     LLAMA(80, 8192, 64, 8, 28672, 128256, 131072, 500000, false, SCALED(8.0))},
    {"llama-3.1-405b",
     LLAMA(126, 16384, 128, 8, 53248, 128256, 131072, 500000, false, SCALED(8.0))},
    {"llama-3.2-1b",
     LLAMA(16, 2048, 32, 8, 8192, 128256, 131072, 500000, true, SCALED(32.0))},
    {"llama-3.2-3b",
     LLAMA(28, 3072, 24, 8, 8192, 128256, 131072, 500000, true, SCALED(32.0))},
    {"tinyllama-1.1b", LLAMA(22, 2048, 32, 4, 5632, 32000, 2048, 10000, false, NORMAL)},
    {"microllama-300m", LLAMA(12, 1024, 16, 4, 5632, 32000, 2048, 10000, false, NORMAL)},
    {"smollm2-135m",
     LLAMA(30, 576, 9, 3, 1536, 49152, 8192, 100000, true,
           "initializer_range": 0.041666666666666664, "init_scheme": "width")},
    {"smollm2-360m",
     LLAMA(32, 960, 15, 5, 2560, 49152, 8192, 100000, true, NORMAL,
           "init_scheme": "width")},
    {"smollm2-1.7b",
     LLAMA(24, 2048, 32, 32, 8192, 49152, 8192, 130000, true, NORMAL,
           "init_scheme": "gpt2")},
    {"ct-llm-2b", LLAMA(32, 2048, 16, 16, 5504, 125696, 4096, 10000, false, NORMAL)},
    {"ct-llm-2b-tied", LLAMA(32, 2048, 16, 16, 5504, 125696, 4096, 10000, true, NORMAL)},
    {"pangu-pi-1b-pro", LLAMA(20, 1792, 14, 14, 4778, 48000, 2048, 10000, false, NORMAL)},
    {"baby-llama2-zh-92m", LLAMA2C(8, 512, 8, 1376, 64793, 512)},
    {"baby-llama2-zh-92m-smallvocab", LLAMA2C(8, 512, 8, 1376, 21131, 512)},
    {"baby-llama2-zh-218m", LLAMA2C(12, 1024, 8, 2752, 64793, 1024)},
    {"llama2.c-stories15m", LLAMA2C(6, 288, 6, 768, 32000, 256)},
    {"llama2.c-stories110m", LLAMA2C(12, 768, 12, 2048, 32000, 1024)},
    {0},
};
