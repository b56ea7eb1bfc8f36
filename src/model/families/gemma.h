/* What Gemma 2 and Gemma 3 share. */
#ifndef MODEL_FAMILIES_GEMMA_H
#define MODEL_FAMILIES_GEMMA_H

#include "model/families/hf.h"

/* Norms (1 + w) before and after each branch, a gated tanh-GELU, a tied and scaled embedding. */
void gemma_defaults(model_config *mc);
/* The embedding is multiplied by sqrt(C). */
void gemma_derive(model_config *mc);
void gemma_to_hf(const model_config *mc, json_t *o);

#define GEMMA_NAMES                                                                                \
    HF_LLAMA_PRODUCTS, [PART_ATTN_NORM] = "model.layers.%d.input_layernorm",                       \
                       [PART_ATTN_OUT_NORM] = "model.layers.%d.post_attention_layernorm",          \
                       [PART_MLP_NORM] = "model.layers.%d.pre_feedforward_layernorm",              \
                       [PART_MLP_OUT_NORM] = "model.layers.%d.post_feedforward_layernorm"
#define GEMMA_KEYS                                                                                 \
    HF_LLAMA_KEYS                                                                                  \
    "attention_bias query_pre_attn_scalar sliding_window final_logit_softcapping "

#endif
