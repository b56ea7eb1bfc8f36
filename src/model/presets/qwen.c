/* Qwen v1 as MINI_LLM trains it, Qwen 1.5, 2, 2.5 and 3 (dense). */
#include "model/presets/table.h"

/* clang-format off */

/* layers, width, heads, key/value heads, feed-forward width, vocabulary, context, tied, epsilon */
#define QWEN2(L, C, H, K, F, V, T, TIED, EPS) PRESET_JSON({"model_type": "qwen2", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": V, \
    "max_position_embeddings": T, "rms_norm_eps": EPS, "rope_theta": 1000000, \
    "tie_word_embeddings": TIED, "use_sliding_window": false})

/* layers, width, heads, key/value heads, feed-forward width, tied; heads are 128 wide */
#define QWEN3(L, C, H, K, F, TIED) PRESET_JSON({"model_type": "qwen3", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "head_dim": 128, "intermediate_size": F, "vocab_size": 151936, \
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000, \
    "tie_word_embeddings": TIED, "attention_bias": false, "use_sliding_window": false})

const preset presets_qwen[] = {
    {"mini.llm-1.4b", PRESET_JSON({"model_type": "qwen",
        "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16,
        "kv_channels": 128, "intermediate_size": 5504, "vocab_size": 151936, "seq_length": 8192,
        "layer_norm_epsilon": 1e-6, "rotary_emb_base": 10000, "no_bias": true,
        "tie_word_embeddings": false})},
    {"qwen1.5-0.5b", QWEN2(24, 1024, 16, 16, 2816, 151936, 32768, true, 1e-6)},
    {"qwen1.5-1.8b", QWEN2(24, 2048, 16, 16, 5504, 151936, 32768, false, 1e-6)},
    {"qwen1.5-4b", QWEN2(40, 2560, 20, 20, 6912, 151936, 32768, false, 1e-6)},
    {"qwen1.5-7b", QWEN2(32, 4096, 32, 32, 11008, 151936, 32768, false, 1e-6)},
    {"qwen2-0.5b", QWEN2(24, 896, 14, 2, 4864, 151936, 131072, true, 1e-6)},
    {"qwen2-1.5b", QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, true, 1e-6)},
    {"qwen2-7b", QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, false, 1e-6)},
    {"qwen2.5-0.5b", QWEN2(24, 896, 14, 2, 4864, 151936, 32768, true, 1e-6)},
    {"qwen2.5-1.5b", QWEN2(28, 1536, 12, 2, 8960, 151936, 131072, true, 1e-6)},
    {"qwen2.5-3b", QWEN2(36, 2048, 16, 2, 11008, 151936, 32768, true, 1e-6)},
    {"qwen2.5-7b", QWEN2(28, 3584, 28, 4, 18944, 152064, 131072, false, 1e-6)},
    {"qwen2.5-14b", QWEN2(48, 5120, 40, 8, 13824, 152064, 131072, false, 1e-5)},
    {"qwen2.5-32b", QWEN2(64, 5120, 40, 8, 27648, 152064, 131072, false, 1e-5)},
    {"qwen3-0.6b", QWEN3(28, 1024, 16, 8, 3072, true)},
    {"qwen3-1.7b", QWEN3(28, 2048, 16, 8, 6144, true)},
    {"qwen3-4b", QWEN3(36, 2560, 32, 8, 9728, true)},
    {"qwen3-8b", QWEN3(36, 4096, 32, 8, 12288, false)},
    {"qwen3-14b", QWEN3(40, 5120, 40, 8, 17408, false)},
    {"qwen3-32b", QWEN3(64, 5120, 64, 8, 25600, false)},
    {0},
};
