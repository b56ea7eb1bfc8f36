/* OLMo 1 and 2. */
#include "model/presets/table.h"

/* clang-format off */

/* layers, width, heads, feed-forward width, tied */
#define OLMO(L, C, H, F, TIED) PRESET_JSON({"model_type": "olmo", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, "intermediate_size": F, \
    "vocab_size": 50304, "max_position_embeddings": 2048, "rope_theta": 10000, \
    "tie_word_embeddings": TIED, "init_scheme": "mitchell"})

/* layers, width, heads, key/value heads, feed-forward width */
#define OLMO2(L, C, H, K, F) PRESET_JSON({"model_type": "olmo2", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": 100352, \
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 500000, \
    "tie_word_embeddings": false, "initializer_range": 0.02, "init_scheme": "truncated"})

const preset presets_olmo[] = {
    {"olmo-1b", OLMO(16, 2048, 16, 8192, true)},
    {"olmo-7b", OLMO(32, 4096, 32, 11008, false)},
    {"olmo-2-1b", OLMO2(16, 2048, 16, 16, 8192)},
    {"olmo-2-7b", OLMO2(32, 4096, 32, 32, 11008)},
    {"olmo-2-13b", OLMO2(40, 5120, 40, 40, 13824)},
    {"olmo-2-32b", OLMO2(64, 5120, 40, 8, 27648)},
    {0},
};
