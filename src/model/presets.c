/* The published shapes. A preset is an object for model_config_read, with the keys of its family's
 * config.json and options beside them (init_scheme). What all models of a family have (norms,
 * biases, activation, the pattern of layers) is not repeated, so that another number of layers goes
 * through. */
#include "model/presets.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

/* In JSON these are words; as macros of C17 they would become numbers. */
#undef true
#undef false

/* The object as text. Its members are written as in JSON; parameters of a macro around it are put
 * in. */
#define PRESET_JSON(...) #__VA_ARGS__

/* clang-format off */

/* ---- GPT-2 and its from-scratch versions, Pythia, Phi ---- */

/* layers, width, heads, vocabulary, context, more */
#define GPT2(L, C, H, V, T, ...) PRESET_JSON({"model_type": "gpt2", \
    "n_layer": L, "n_embd": C, "n_head": H, "vocab_size": V, "n_positions": T, __VA_ARGS__})

/* layers, width, heads, feed-forward width, vocabulary, initial weights */
#define PYTHIA(L, C, H, F, V, INIT) PRESET_JSON({"model_type": "gpt_neox", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, "intermediate_size": F, \
    "vocab_size": V, "max_position_embeddings": 2048, "rotary_pct": 0.25, \
    "rotary_emb_base": 10000, "use_parallel_residual": true, "layer_norm_eps": 1e-5, \
    "tie_word_embeddings": false, "init_scheme": INIT})

/* layers, width, heads, feed-forward width, rotated share, dropout of the branches */
#define PHI(L, C, H, F, ROTARY, DROPOUT) PRESET_JSON({"model_type": "phi", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, "intermediate_size": F, \
    "vocab_size": 51200, "max_position_embeddings": 2048, "partial_rotary_factor": ROTARY, \
    "rope_theta": 10000, "layer_norm_eps": 1e-5, "tie_word_embeddings": false, \
    "resid_pdrop": DROPOUT})

/* ---- Llama and what computes the same function ---- */

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

/* ---- Families made for small models: MobileLLM, MiniCPM, OpenELM, SmolLM3 ---- */

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

/* ---- OLMo 1 and 2 ---- */

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

/* ---- Qwen v1 as MINI_LLM trains it, Qwen 1.5, 2, 2.5 and 3 (dense) ---- */

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

/* ---- experts ---- */

/* 60 experts of width 1408, of which a token goes through 4, and a shared part of four times that */
#define QWEN1_5_MOE PRESET_JSON({"model_type": "qwen2_moe", "num_hidden_layers": 24, \
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, \
    "intermediate_size": 5632, "moe_intermediate_size": 1408, \
    "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, \
    "norm_topk_prob": false, "vocab_size": 151936, "max_position_embeddings": 8192, \
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": false, \
    "use_sliding_window": false})

/* layers, width, heads, key/value heads, expert width, experts, those of a token */
#define QWEN3_MOE(L, C, H, K, F, E, TOP) PRESET_JSON({"model_type": "qwen3_moe", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "head_dim": 128, "intermediate_size": 6144, \
    "moe_intermediate_size": F, "num_experts": E, "num_experts_per_tok": TOP, \
    "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 40960, \
    "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": false, \
    "use_sliding_window": false})

/* layers, width, heads, key/value heads, expert width, context */
#define MIXTRAL(L, C, H, K, F, T) PRESET_JSON({"model_type": "mixtral", \
    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H, \
    "num_key_value_heads": K, "intermediate_size": F, "num_local_experts": 8, \
    "num_experts_per_tok": 2, "vocab_size": 32000, "max_position_embeddings": T, \
    "rms_norm_eps": 1e-5, "rope_theta": 1000000, "tie_word_embeddings": false, \
    "sliding_window": null})

#define OLMOE PRESET_JSON({"model_type": "olmoe", "num_hidden_layers": 16, \
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, \
    "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8, \
    "norm_topk_prob": false, "vocab_size": 50304, "max_position_embeddings": 4096, \
    "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "clip_qkv": null})

/* ---- latent attention: DeepSeek (config.json of deepseek-ai on Hugging Face), and who took its form (Moonlight and
 * Kimi K2 of moonshotai, which are DeepSeek-V3 in other sizes; MiniCPM3-4B of openbmb) ---- */

#define YARN(BY, FROM, SLOW, MSCALE) {"rope_type": "yarn", "factor": BY, \
    "original_max_position_embeddings": FROM, "beta_fast": SLOW, "beta_slow": 1, \
    "mscale": MSCALE, "mscale_all_dim": MSCALE}

#define DEEPSEEK_V2_LITE(YARN) PRESET_JSON({"model_type": "deepseek_v2", "num_hidden_layers": 27, \
    "hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 10944, \
    "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, \
    "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": null, \
    "kv_lora_rank": 512, "topk_method": "greedy", "routed_scaling_factor": 1.0, \
    "vocab_size": 102400, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, \
    "rope_theta": 10000, "rope_scaling": YARN, \
    "tie_word_embeddings": false})

/* layers, width, heads, dense width, expert width, experts, shared, of a token, dense layers, rank of
 * queries, groups, groups kept, scale of experts, vocabulary, context, base, epsilon */
#define DEEPSEEK_V3(L, C, H, F, FE, E, S, TOP, DENSE, RANK, G, KEPT, SCALE, V, T, THETA, EPS, ...) \
    PRESET_JSON({"model_type": "deepseek_v3", "num_hidden_layers": L, "hidden_size": C, \
    "num_attention_heads": H, "intermediate_size": F, "moe_intermediate_size": FE, \
    "n_routed_experts": E, "n_shared_experts": S, "num_experts_per_tok": TOP, \
    "first_k_dense_replace": DENSE, "q_lora_rank": RANK, "kv_lora_rank": 512, "n_group": G, \
    "topk_group": KEPT, "routed_scaling_factor": SCALE, "norm_topk_prob": true, \
    "vocab_size": V, "max_position_embeddings": T, "rope_theta": THETA, "rms_norm_eps": EPS, \
    "tie_word_embeddings": false __VA_OPT__(,) __VA_ARGS__})

#define MINICPM3 PRESET_JSON({"model_type": "minicpm3", "num_hidden_layers": 62, \
    "hidden_size": 2560, "num_attention_heads": 40, "intermediate_size": 6400, \
    "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, \
    "v_head_dim": 64, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, \
    "vocab_size": 73448, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, \
    "rope_theta": 10000, "tie_word_embeddings": true})
/* ---- T5: an encoder and a decoder ---- */

/* layers of each, width, heads, width of a head, feed-forward width */
#define T5(L, C, H, D, F) PRESET_JSON({"model_type": "t5", "num_layers": L, "d_model": C, \
    "num_heads": H, "d_kv": D, "d_ff": F, "vocab_size": 32128})
#define T5_GATED(TYPE, L, C, H, F, V) PRESET_JSON({"model_type": TYPE, "num_layers": L, \
    "d_model": C, "num_heads": H, "d_kv": 64, "d_ff": F, "vocab_size": V, \
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})
#define T5_V1_1(L, C, H, F) T5_GATED("t5", L, C, H, F, 32128)
#define MT5(L, C, H, F) T5_GATED("mt5", L, C, H, F, 250112)

/* ---- Gemma 3, the text part: five layers with a window to one without ---- */

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

static const struct {
    const char *name, *json;
} presets[] = {
    {"gpt2", GPT2(12, 768, 12, 50257, 1024, "bias": true)},
    {"gpt2-medium", GPT2(24, 1024, 16, 50257, 1024, "bias": true)},
    {"gpt2-large", GPT2(36, 1280, 20, 50257, 1024, "bias": true)},
    {"gpt2-xl", GPT2(48, 1600, 25, 50257, 1024, "bias": true)},
    {"nanogpt-124m-scratch",
     GPT2(12, 768, 12, 50304, 1024, "bias": false, "activation_function": "gelu")},
    {"nanogpt-shakespeare.char",
     GPT2(6, 384, 6, 65, 256, "bias": false, "activation_function": "gelu",
          "embd_pdrop": 0.2, "attn_pdrop": 0.2, "resid_pdrop": 0.2)},
    {"rasbt-gpt-124m",
     GPT2(12, 768, 12, 50257, 1024, "qkv_bias": false, "tie_word_embeddings": false,
          "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1)},
    {"pythia-14m", PYTHIA(6, 128, 4, 512, 50304, "small_wang")},
    {"pythia-31m", PYTHIA(6, 256, 8, 1024, 50304, "small_wang")},
    {"pythia-70m", PYTHIA(6, 512, 8, 2048, 50304, "small_wang")},
    {"pythia-160m", PYTHIA(12, 768, 12, 3072, 50304, "small_wang")},
    {"pythia-410m", PYTHIA(24, 1024, 16, 4096, 50304, "small_wang")},
    {"pythia-1b", PYTHIA(16, 2048, 8, 8192, 50304, "small_wang")},
    {"pythia-1.4b", PYTHIA(24, 2048, 16, 8192, 50304, "small_wang")},
    {"pythia-2.8b", PYTHIA(32, 2560, 32, 10240, 50304, "small_wang")},
    {"pythia-6.9b", PYTHIA(32, 4096, 32, 16384, 50432, "normal")}, /* an oversight, kept */
    {"pythia-12b", PYTHIA(36, 5120, 40, 20480, 50688, "normal")},
    {"phi-1-small", PHI(20, 1024, 16, 4096, 0.5, 0)},
    {"phi-1", PHI(24, 2048, 32, 8192, 0.5, 0)},
    {"phi-1.5", PHI(24, 2048, 32, 8192, 0.5, 0)},
    {"phi-2", PHI(32, 2560, 32, 10240, 0.4, 0.1)},
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
    {"olmo-1b", OLMO(16, 2048, 16, 8192, true)},
    {"olmo-7b", OLMO(32, 4096, 32, 11008, false)},
    {"olmo-2-1b", OLMO2(16, 2048, 16, 16, 8192)},
    {"olmo-2-7b", OLMO2(32, 4096, 32, 32, 11008)},
    {"olmo-2-13b", OLMO2(40, 5120, 40, 40, 13824)},
    {"olmo-2-32b", OLMO2(64, 5120, 40, 8, 27648)},
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
    {"qwen1.5-moe-a2.7b", QWEN1_5_MOE},
    {"qwen3-30b-a3b", QWEN3_MOE(48, 2048, 32, 4, 768, 128, 8)},
    {"qwen3-235b-a22b", QWEN3_MOE(94, 4096, 64, 4, 1536, 128, 8)},
    {"mixtral-8x7b", MIXTRAL(32, 4096, 32, 8, 14336, 32768)},
    {"mixtral-8x22b", MIXTRAL(56, 6144, 48, 8, 16384, 65536)},
    {"olmoe-1b-7b", OLMOE},
    {"deepseek-v2-lite", DEEPSEEK_V2_LITE(YARN(40, 4096, 32, 0.707))},
    {"deepseek-v3", DEEPSEEK_V3(61, 7168, 128, 18432, 2048, 256, 1, 8, 3, 1536, 8, 4, 2.5, 129280,
                                163840, 10000, 1e-6, "rope_scaling": YARN(40, 4096, 32, 1.0))},
    {"moonlight-16b-a3b", DEEPSEEK_V3(27, 2048, 16, 11264, 1408, 64, 2, 6, 1, null, 1, 1, 2.446,
                                      163840, 8192, 50000, 1e-5)},
    {"kimi-k2", DEEPSEEK_V3(61, 7168, 64, 18432, 2048, 384, 1, 8, 1, 1536, 1, 1, 2.827, 163840,
                            131072, 50000, 1e-6, "rope_scaling": YARN(32, 4096, 1, 1.0))},
    {"minicpm3-4b", MINICPM3},
    {"t5-small", T5(6, 512, 8, 64, 2048)},
    {"t5-base", T5(12, 768, 12, 64, 3072)},
    {"t5-large", T5(24, 1024, 16, 64, 4096)},
    {"t5-3b", T5(24, 1024, 32, 128, 16384)},
    {"t5-11b", T5(24, 1024, 128, 128, 65536)},
    {"t5-v1.1-small", T5_V1_1(8, 512, 6, 1024)},
    {"t5-v1.1-base", T5_V1_1(12, 768, 12, 2048)},
    {"t5-v1.1-large", T5_V1_1(24, 1024, 16, 2816)},
    {"t5-v1.1-xl", T5_V1_1(24, 2048, 32, 5120)},
    {"t5-v1.1-xxl", T5_V1_1(24, 4096, 64, 10240)},
    {"mt5-small", MT5(8, 512, 6, 1024)},
    {"mt5-base", MT5(12, 768, 12, 2048)},
    {"mt5-large", MT5(24, 1024, 16, 2816)},
    {"mt5-xl", MT5(24, 2048, 32, 5120)},
    {"mt5-xxl", MT5(24, 4096, 64, 10240)},
    {"chatlm-mini", PRESET_JSON({"model_type": "t5", "num_layers": 10, "d_model": 768,
        "num_heads": 12, "d_kv": 64, "d_ff": 3072, "vocab_size": 29298})},
    {"gemma-3-270m", GEMMA3(18, 640, 4, 1, 256, 2048, 256, 262144, 32768, 512, null)},
    {"gemma-3-1b", GEMMA3(26, 1152, 4, 1, 256, 6912, 256, 262144, 32768, 512, null)},
    {"gemma-3-4b", GEMMA3(34, 2560, 8, 4, 256, 10240, 256, 262208, 131072, 1024, BY_8)},
    {"gemma-3-12b", GEMMA3(48, 3840, 16, 8, 256, 15360, 256, 262208, 131072, 1024, BY_8)},
    {"gemma-3-27b", GEMMA3(62, 5376, 32, 16, 128, 21504, 168, 262208, 131072, 1024, BY_8)},
};

/* Names of other tables: with the size, or written in another way. */
static const struct {
    const char *name, *listed;
} aliases[] = {
    {"deepseek-v2-lite-16b", "deepseek-v2-lite"},
    {"deepseek-v3-671b", "deepseek-v3"},
    {"kimi-k2-1t", "kimi-k2"},
    {"t5v1.1-small", "t5-v1.1-small"},
    {"t5v1.1-base", "t5-v1.1-base"},
    {"t5v1.1-large", "t5-v1.1-large"},
    {"chatlm-0.2b", "chatlm-mini"},
};

/* clang-format on */

const char *preset_name(int i) {
    return i < ARRAY_LEN(presets) ? presets[i].name : NULL;
}

/* A space stands for a hyphen. */
static bool same_name(const char *name, const char *given) {
    while (*name && (*name == *given || (*name == '-' && *given == ' '))) name++, given++;
    return *name == *given;
}

const char *preset_listed_name(const char *name) {
    for (int i = 0; i < ARRAY_LEN(aliases); i++)
        if (same_name(aliases[i].name, name)) return aliases[i].listed;
    return name;
}

const char *preset_json(const char *name) {
    const char *listed = preset_listed_name(name);
    for (int i = 0; i < ARRAY_LEN(presets); i++)
        if (same_name(presets[i].name, listed)) return presets[i].json;
    return NULL;
}

const char *preset_nearest(const char *name) {
    const char *names[ARRAY_LEN(presets)];
    for (int i = 0; i < ARRAY_LEN(presets); i++) names[i] = presets[i].name;
    int near = text_nearest(name, names, ARRAY_LEN(presets));
    return near >= 0 ? names[near] : NULL;
}
