/* Gemma 3, the text part: five layers with a window to one without. */
#include "model/presets/table.h"

/* clang-format off */

/* layers, width, heads, key/value heads, width of a head, feed-forward width, what scores are
 * divided by the root of, vocabulary, context, window, rotary scaling where there is no window */
#define GEMMA3(L, C, H, K, D, F, SCALAR, V, T, W, SCALING) \
    PRESET_JSON({"model_type": "gemma3_text", "num_hidden_layers": L, "hidden_size": C, \
    "num_attention_heads": H, "num_key_value_heads": K, "head_dim": D, "intermediate_size": F, \
    "query_pre_attn_scalar": SCALAR, "vocab_size": V, "max_position_embeddings": T, \
    "sliding_window": W, "sliding_window_pattern": 6, "rms_norm_eps": 1e-6, \
    "rope_theta": 1000000, "rope_local_base_freq": 10000, \
    "rope_scaling": SCALING, "tie_word_embeddings": true})
#define BY_8 {"rope_type": "linear", "factor": 8.0}

const preset presets_gemma[] = {
    {"gemma-3-270m", GEMMA3(18, 640, 4, 1, 256, 2048, 256, 262144, 32768, 512, null)},
    {"gemma-3-1b", GEMMA3(26, 1152, 4, 1, 256, 6912, 256, 262144, 32768, 512, null)},
    {"gemma-3-4b", GEMMA3(34, 2560, 8, 4, 256, 10240, 256, 262208, 131072, 1024, BY_8)},
    {"gemma-3-12b", GEMMA3(48, 3840, 16, 8, 256, 15360, 256, 262208, 131072, 1024, BY_8)},
    {"gemma-3-27b", GEMMA3(62, 5376, 32, 16, 128, 21504, 168, 262208, 131072, 1024, BY_8)},
    {0},
};
