/* GPT-2 and its from-scratch versions, Pythia, Phi. */
#include "model/presets/table.h"

/* clang-format off */

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

const preset presets_gpt[] = {
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
    {0},
};
