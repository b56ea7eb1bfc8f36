#include "io/gguf/gguf_config.h"

#include <string.h>

static const gguf_arch archs[] = {
    {.name = "llama",
     .pairs = true,
     .has_rope_factors = true,
     .head = GGUF_MAY,
     .qkv_bias = GGUF_MAY,
     .out_bias = GGUF_MAY,
     .mlp_bias = GGUF_MAY},
    {.name = "minicpm",
     .pairs = true,
     .has_rope_factors = true,
     .head = GGUF_MAY,
     .qkv_bias = GGUF_MAY,
     .out_bias = GGUF_MAY,
     .mlp_bias = GGUF_MAY},
    {.name = "smollm3", .pairs = true, .head = GGUF_MAY, .qkv_bias = GGUF_MAY},
    {.name = "olmo", .pairs = true, .layer_norm = true, .head = GGUF_MAY},
    {.name = "olmo2", .window_every = 4, .head = GGUF_MUST},
    {.name = "qwen", .fused = true, .ffn_parts = 2, .head = GGUF_MUST, .qkv_bias = GGUF_MUST},
    {.name = "qwen2", .head = GGUF_MAY, .qkv_bias = GGUF_MAY, .head_bias = GGUF_MAY},
    {.name = "qwen3", .head = GGUF_MAY, .qkv_bias = GGUF_MAY},
    {.name = "gemma2", .window_every = 2},
    {.name = "gemma3", .window_every = 6, .head = GGUF_MAY},
    {.name = "openelm", .fused = true},
    {.name = "phi2",
     .layer_norm = true,
     .head = GGUF_MUST,
     .qkv_bias = GGUF_MAY,
     .out_bias = GGUF_MUST,
     .mlp_bias = GGUF_MUST,
     .head_bias = GGUF_MUST,
     .norm_bias = GGUF_MUST},
    {.name = "gptneox",
     .fused = true,
     .layer_norm = true,
     .head = GGUF_MUST,
     .qkv_bias = GGUF_MUST,
     .out_bias = GGUF_MUST,
     .mlp_bias = GGUF_MUST,
     .norm_bias = GGUF_MUST},
    {.name = "gpt2",
     .fused = true,
     .layer_norm = true,
     .head = GGUF_MAY,
     .qkv_bias = GGUF_MUST,
     .out_bias = GGUF_MUST,
     .mlp_bias = GGUF_MUST,
     .norm_bias = GGUF_MUST},
};

const gguf_arch *gguf_arch_at(int i) {
    return i < ARRAY_LEN(archs) ? &archs[i] : NULL;
}

const gguf_arch *gguf_arch_find(const char *name) {
    for (int i = 0; name && i < ARRAY_LEN(archs); i++)
        if (strcmp(archs[i].name, name) == 0) return &archs[i];
    return NULL;
}

const model_family *gguf_arch_family(const gguf_arch *arch) {
    for (int i = 0; model_family_at(i); i++) {
        const char *name = model_family_at(i)->gguf_arch;
        if (name && strcmp(name, arch->name) == 0) return model_family_at(i);
    }
    return NULL;
}

#define NAMES_OF_ALL                                                                               \
    [PART_EMBED] = "token_embd", [PART_POSITIONS] = "position_embd",                               \
    [PART_FINAL_NORM] = "output_norm", [PART_HEAD] = "output",                                     \
    [PART_ATTN_NORM] = "blk.%d.attn_norm", [PART_ATTN_OUT_NORM] = "blk.%d.post_attention_norm",    \
    [PART_MLP_NORM] = "blk.%d.ffn_norm", [PART_MLP_OUT_NORM] = "blk.%d.post_ffw_norm",             \
    [PART_O] = "blk.%d.attn_output", [PART_Q_NORM] = "blk.%d.attn_q_norm",                         \
    [PART_K_NORM] = "blk.%d.attn_k_norm", [PART_GATE] = "blk.%d.ffn_gate",                         \
    [PART_UP] = "blk.%d.ffn_up", [PART_DOWN] = "blk.%d.ffn_down"

const char *const *gguf_part_names(bool fused) {
    static const char *const one[PART_COUNT] = {NAMES_OF_ALL, [PART_QKV] = "blk.%d.attn_qkv"};
    static const char *const three[PART_COUNT] = {
        NAMES_OF_ALL, [PART_Q] = "blk.%d.attn_q", [PART_K] = "blk.%d.attn_k",
        [PART_V] = "blk.%d.attn_v"};
    return fused ? one : three;
}
