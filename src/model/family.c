/* The list of families. */
#include "model/family.h"

#include <string.h>

extern const model_family family_deepseek_v2, family_deepseek_v3, family_minicpm3;
extern const model_family family_gemma2, family_gemma3, family_gpt2, family_gpt_neox, family_llama,
    family_minicpm, family_mistral, family_mixtral, family_mobilellm, family_olmo, family_olmo2,
    family_olmoe, family_openelm, family_phi, family_qwen, family_qwen2, family_qwen2_moe,
    family_qwen3, family_qwen3_moe, family_qwen3_next, family_smollm3, family_t5, family_mt5;

static const model_family *const families[] = {
    &family_llama,      &family_gpt2,        &family_gpt_neox,    &family_olmo,
    &family_olmo2,      &family_qwen,        &family_qwen2,       &family_qwen3,
    &family_smollm3,    &family_phi,         &family_openelm,     &family_gemma2,
    &family_gemma3,     &family_mobilellm,   &family_minicpm,     &family_mistral,
    &family_mixtral,    &family_olmoe,       &family_qwen2_moe,   &family_qwen3_moe,
    &family_qwen3_next, &family_deepseek_v2, &family_deepseek_v3, &family_minicpm3,
    &family_t5,         &family_mt5,
};

const model_family *model_family_at(int i) {
    return i < ARRAY_LEN(families) ? families[i] : NULL;
}

const model_family *model_family_find(const char *model_type) {
    for (int i = 0; i < ARRAY_LEN(families); i++) {
        const char *also = families[i]->also_called;
        bool is = strcmp(families[i]->model_type, model_type) == 0;
        if (is || (also && strcmp(also, model_type) == 0)) return families[i];
    }
    return NULL;
}
