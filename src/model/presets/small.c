/* Families made for small models: MobileLLM, MiniCPM, OpenELM, SmolLM3. */
#include "model/presets/table.h"

/* clang-format off */

/* layers, width, heads, key/value heads, feed-forward width */
#define MOBILELLM(L, C, H, K, F) PRESET_JSON({"model_type": "mobilellm", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": 32000, \
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000, \
    "share_embedding": true, "layer_sharing": false})

/* layers, width, heads, key/value heads, feed-forward width, vocabulary */
#define MINICPM(L, C, H, K, F, V) PRESET_JSON({"model_type": "minicpm", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": V, \
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000, \
    "initializer_range": 0.1, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, \
    "tie_word_embeddings": true})

/* layers, width, width of a head; the rest grows with depth */
#define OPENELM(L, C, D) PRESET_JSON({"model_type": "openelm", "num_transformer_layers": L, \
    "model_dim": C, "head_dim": D, "num_gqa_groups": 4, "qkv_multipliers": [0.5, 1.0], \
    "ffn_multipliers": [0.5, 4.0], "ffn_dim_divisor": 256, "vocab_size": 32000, \
    "max_context_length": 2048, "rope_freq_constant": 10000, \
    "share_input_output_layers": true})

const preset presets_small[] = {
    {"mobilellm-125m", MOBILELLM(30, 576, 9, 3, 1536)},
    {"mobilellm-350m", MOBILELLM(32, 960, 15, 5, 2560)},
    {"mobilellm-600m", MOBILELLM(40, 1152, 18, 6, 3072)},
    {"mobilellm-1b", MOBILELLM(54, 1280, 20, 5, 3584)},
    {"mobilellm-1.5b", MOBILELLM(54, 1600, 25, 5, 4352)},
    {"minicpm-1.2b", MINICPM(52, 1536, 24, 8, 3840, 73440)},
    {"minicpm-2.4b", MINICPM(40, 2304, 36, 36, 5760, 122753)},
    {"openelm-270m", OPENELM(16, 1280, 64)},
    {"openelm-450m", OPENELM(20, 1536, 64)},
    {"openelm-1.1b", OPENELM(28, 2048, 64)},
    {"openelm-3b", OPENELM(36, 3072, 128)},
    {"smollm3-3b", PRESET_JSON({"model_type": "smollm3",
        "num_hidden_layers": 36, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 11008, "vocab_size": 128256,
        "max_position_embeddings": 65536, "rms_norm_eps": 1e-6, "rope_theta": 5000000,
        "no_rope_layer_interval": 4, "tie_word_embeddings": true})},
    {0},
};
