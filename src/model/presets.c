/* Published shapes, as config.json objects. Parameter counts are checked against the published ones
 * by a test. */
#include "model/presets.h"

#include <string.h>

#include "base/status.h"

typedef struct preset {
    const char *name, *json;
} preset;

#define GPT2(L, C, H)                                                                              \
    "{\"model_type\":\"gpt2\",\"num_hidden_layers\":" #L ",\"hidden_size\":" #C                    \
    ",\"num_attention_heads\":" #H ",\"vocab_size\":50257,\"max_position_embeddings\":1024}"
#define LLAMA(L, C, H, K, F, V, T, eps, theta, tied, more)                                         \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":" #L ",\"hidden_size\":" #C                   \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #K ",\"intermediate_size\":" #F     \
    ",\"vocab_size\":" #V ",\"max_position_embeddings\":" #T ",\"rms_norm_eps\":" #eps             \
    ",\"rope_theta\":" #theta ",\"tie_word_embeddings\":" #tied more "}"

static const preset presets[] = {
    {"gpt2", GPT2(12, 768, 12)},
    {"gpt2-medium", GPT2(24, 1024, 16)},
    {"gpt2-large", GPT2(36, 1280, 20)},
    {"gpt2-xl", GPT2(48, 1600, 25)},
    {"smollm2-135m", LLAMA(30, 576, 9, 3, 1536, 49152, 8192, 1e-5, 100000, true,
                           ",\"initializer_range\":0.041666666666666664")},
    {"smollm2-360m", LLAMA(32, 960, 15, 5, 2560, 49152, 8192, 1e-5, 100000, true,
                           ",\"initializer_range\":0.03227486121839514")},
    {"smollm2-1.7b", LLAMA(24, 2048, 32, 32, 8192, 49152, 8192, 1e-5, 130000, true, "")},
    {"tinyllama-1.1b", LLAMA(22, 2048, 32, 4, 5632, 32000, 2048, 1e-5, 10000, false, "")},
    {"microllama-300m", LLAMA(12, 1024, 16, 4, 5632, 32000, 2048, 1e-5, 10000, false, "")},
    {"llama-3.2-1b",
     LLAMA(16, 2048, 32, 8, 8192, 128256, 131072, 1e-5, 500000, true,
           ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32,\"low_freq_factor\":1,"
           "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}")},
};

const char *preset_name(int i) {
    return i < ARRAY_LEN(presets) ? presets[i].name : NULL;
}

const char *preset_json(const char *name) {
    for (int i = 0; i < ARRAY_LEN(presets); i++)
        if (strcmp(presets[i].name, name) == 0) return presets[i].json;
    return NULL;
}
