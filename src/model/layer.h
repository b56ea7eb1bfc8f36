/* What one layer computes, as a record: the options of the config resolved for layer l. One
 * transformer (transformer.c) reads it; families only choose options and names. Further kinds of
 * attention or feed-forward part (latent attention, experts) are further members here. */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include "model/config.h"
#include "param/param.h"

typedef struct attention_layer {
    int64_t H, K, D;
    int kv_copies; /* tensor-parallel ranks that have the same key heads */
    bool qkv_bias, out_bias;
    qk_norm_kind qk_norm;
    bool rotary, interleaved;
    bool local; /* rotary base and scaling of the layers with a window */
    double scale, softcap, clip;
    int64_t window;
} attention_layer;

typedef struct mlp_layer {
    mlp_kind kind;
    act_kind act;
    int64_t F;
    bool bias;
} mlp_layer;

typedef struct layer_spec {
    int stored;                          /* block that holds its weights */
    bool norm_in, norm_out, norm_shared; /* before branches, after them; one before both */
    bool parallel;
    double branch_scale;
    attention_layer attn;
    mlp_layer mlp;
} layer_spec;

/* Layers that run: num_hidden_layers * block_repeat. */
int model_layers(const model_config *mc);
layer_spec model_layer(const model_config *mc, int l);
/* The longest sequence: max_position_embeddings, or what scaled rotary positions reach beyond it.
 */
int64_t model_max_tokens(const model_config *mc);
/* Rotary positions of the layers with (local) and without a window of their own base. */
rope_spec model_rope(const model_config *mc, bool local);

#endif
