#include "io/gguf/gguf_config.h"

#include <string.h>

#include "model/config_keys.h"

#define NO GGUF_NEVER
#define MAY GGUF_MAY
#define MUST GGUF_MUST
#define DEEPSEEK (GGUF_EXPERTS_OWN_WIDTH | GGUF_EXPERTS_DEEPSEEK | GGUF_LATENTS)
#define LINEAR (GGUF_EXPERTS_OWN_WIDTH | GGUF_LINEAR)

/* clang-format off */
/* In the order of the members: rotary pairs, one tensor for q, k and v, rope factors, layer norm;
 * every how many layers there is no window (w); parts of feed_forward_length; the head, then biases
 * of q, k and v, of the output, the feed-forward part, the head and norms; then what experts are. */
static const gguf_arch archs[] = {
    /*           pairs  fused  factors layer  w  ffn head  qkv   out   mlp   head  norm experts */
    {"llama",    true,  false, true,  false, 0, 1,  MAY,  MAY,  MAY,  MAY,  NO,   NO,   GGUF_EXPERTS_MAY},
    {"minicpm",  true,  false, true,  false, 0, 1,  MAY,  MAY,  MAY,  MAY,  NO,   NO, 0},
    {"minicpm3", false, false, true,  false, 0, 1,  MAY,  NO,   NO,   NO,   NO,   NO,   GGUF_LATENTS},
    {"smollm3",  true,  false, false, false, 0, 1,  MAY,  MAY,  NO,   NO,   NO,   NO, 0},
    {"olmo",     true,  false, false, true,  0, 1,  MAY,  NO,   NO,   NO,   NO,   NO, 0},
    {"olmo2",    false, false, false, false, 4, 1,  MUST, NO,   NO,   NO,   NO,   NO, 0},
    {"olmoe",    false, false, false, false, 0, 1,  MUST, NO,   NO,   NO,   NO,   NO,   GGUF_EXPERTS_NOT_RENORMALISED},
    {"qwen",     false, true,  false, false, 0, 2,  MUST, MUST, NO,   NO,   NO,   NO, 0},
    {"qwen2",    false, false, false, false, 0, 1,  MAY,  MAY,  NO,   NO,   MAY,  NO, 0},
    {"qwen3",    false, false, false, false, 0, 1,  MAY,  MAY,  NO,   NO,   NO,   NO, 0},
    {"qwen3moe", false, false, false, false, 0, 1,  MAY,  MAY,  NO,   NO,   NO,   NO,   GGUF_EXPERTS_OWN_WIDTH},
    {"qwen3next", false, false, false, false, 0, 1, MAY,  NO,   NO,   NO,   NO,   NO,   LINEAR},
    {"deepseek2", true, false, false, false, 0, 1,  MUST, NO,   NO,   NO,   NO,   NO,   DEEPSEEK},
    {"gemma2",   false, false, false, false, 2, 1,  NO,   NO,   NO,   NO,   NO,   NO, 0},
    {"gemma3",   false, false, false, false, 6, 1,  MAY,  NO,   NO,   NO,   NO,   NO, 0},
    {"openelm",  false, true,  false, false, 0, 1,  NO,   NO,   NO,   NO,   NO,   NO, 0},
    {"phi2",     false, false, false, true,  0, 1,  MUST, MAY,  MUST, MUST, MUST, MUST, 0},
    {"gptneox",  false, true,  false, true,  0, 1,  MUST, MUST, MUST, MUST, NO,   MUST, 0},
    {"t5",       false, false, false, false, 0, 1,  MAY,  NO,   NO,   NO,   NO,   NO,   GGUF_ENCODER},
    {"gpt2",     false, true,  false, true,  0, 1,  MAY,  MUST, MUST, MUST, NO,   MUST, 0},
};
/* clang-format on */

const gguf_arch *gguf_arch_at(int i) {
    return i < ARRAY_LEN(archs) ? &archs[i] : NULL;
}

const gguf_arch *gguf_arch_find(const char *name) {
    for (int i = 0; name && i < ARRAY_LEN(archs); i++)
        if (strcmp(archs[i].name, name) == 0) return &archs[i];
    return NULL;
}

/* A family has experts, or not, by its defaults. */
static bool has_experts(const model_family *family) {
    model_config mc;
    model_config_defaults(&mc, family);
    return mc.num_experts > 0;
}

const model_family *gguf_arch_family(const gguf_arch *arch, bool experts) {
    for (int i = 0; model_family_at(i); i++) {
        const char *name = model_family_at(i)->gguf_arch;
        if (!name || strcmp(name, arch->name) != 0) continue;
        if (has_experts(model_family_at(i)) == experts) return model_family_at(i);
    }
    return NULL;
}

#define NAMES_OF_ALL(MLP_NORM)                                                                     \
    [PART_EMBED] = "token_embd", [PART_POSITIONS] = "position_embd",                               \
    [PART_FINAL_NORM] = "output_norm", [PART_HEAD] = "output",                                     \
    [PART_ATTN_NORM] = "blk.%d.attn_norm", [PART_ATTN_OUT_NORM] = "blk.%d.post_attention_norm",    \
    [PART_MLP_OUT_NORM] = "blk.%d.post_ffw_norm", [PART_O] = "blk.%d.attn_output",                 \
    [PART_Q_NORM] = "blk.%d.attn_q_norm", [PART_K_NORM] = "blk.%d.attn_k_norm",                    \
    [PART_GATE] = "blk.%d.ffn_gate", [PART_UP] = "blk.%d.ffn_up", [PART_DOWN] = "blk.%d.ffn_down", \
    [PART_ROUTER] = "blk.%d.ffn_gate_inp", [PART_EXPERT_GATE] = "blk.%d.ffn_gate_exps",            \
    [PART_EXPERT_UP] = "blk.%d.ffn_up_exps", [PART_EXPERT_DOWN] = "blk.%d.ffn_down_exps",          \
    [PART_ROUTER_BIAS] = "blk.%d.exp_probs_b.bias", [PART_SHARED_GATE] = "blk.%d.ffn_gate_shexp",  \
    [PART_SHARED_UP] = "blk.%d.ffn_up_shexp", [PART_SHARED_DOWN] = "blk.%d.ffn_down_shexp",        \
    [PART_MLP_NORM] = "blk.%d." MLP_NORM, [PART_SHARED_SCALE] = "blk.%d.ffn_gate_inp_shexp",       \
    [PART_Q_A] = "blk.%d.attn_q_a", [PART_Q_A_NORM] = "blk.%d.attn_q_a_norm",                      \
    [PART_Q_B] = "blk.%d.attn_q_b", [PART_KV_A] = "blk.%d.attn_kv_a_mqa",                          \
    [PART_KV_A_NORM] = "blk.%d.attn_kv_a_norm", [PART_KV_B] = "blk.%d.attn_kv_b"

#define NAMES_OF_THREE                                                                             \
    [PART_Q] = "blk.%d.attn_q", [PART_K] = "blk.%d.attn_k", [PART_V] = "blk.%d.attn_v"

/* Of linear layers; what QKVZ is called in older files, newer ones have two tensors (gguf_halves.c). */
#define NAMES_OF_LINEAR                                                                            \
    [PART_LINEAR_QKVZ] = "blk.%d.ssm_in", [PART_LINEAR_BA] = "blk.%d.ssm_ba",                      \
    [PART_LINEAR_CONV] = "blk.%d.ssm_conv1d", [PART_LINEAR_A_LOG] = "blk.%d.ssm_a",                \
    [PART_LINEAR_DT_BIAS] = "blk.%d.ssm_dt.bias", [PART_LINEAR_NORM] = "blk.%d.ssm_norm",          \
    [PART_LINEAR_OUT] = "blk.%d.ssm_out"

void gguf_name_parts(const gguf_arch *arch, bool fused, model_config *mc) {
    static const char *const one[PART_COUNT] = {NAMES_OF_ALL("ffn_norm"), [PART_QKV] =
                                                                              "blk.%d.attn_qkv"};
    static const char *const three[PART_COUNT] = {NAMES_OF_ALL("ffn_norm"), NAMES_OF_THREE};
    static const char *const linear[PART_COUNT] = {NAMES_OF_ALL("post_attention_norm"),
                                                   NAMES_OF_THREE, NAMES_OF_LINEAR};
    mc->names = arch->experts & GGUF_LINEAR ? linear : fused ? one : three;
    if (arch->experts & GGUF_ENCODER) gguf_encoder_name_parts(mc);
}
