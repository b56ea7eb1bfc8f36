/* What one layer computes, as a record: the options of the config, resolved for layer l. The
 * forward pass (transformer.c) and the parameters (declare.c) are made from these records. Families
 * only choose options and names.
 *
 *   x [B*T,C]  the residual stream       H  query heads          F  width of the feed-forward part
 *   C          hidden_size               K  key/value heads      D  width of one head, of queries and keys
 *                                        E  experts              k  of these, those of a token */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include "model/config.h"
#include "param/param.h"

typedef struct attention_layer {
    int64_t H, K, D;
    int kv_copies; /* tensor-parallel ranks that have the same key/value heads; 1 without such */
    bool qkv_bias, out_bias;
    qk_norm_kind qk_norm;
    bool causal;      /* a query sees no key behind it */
    bool relative;    /* a bias by distance, which all layers of a stack share (relative.c) */
    bool rotary;      /* queries and keys are rotated by their positions */
    bool interleaved; /* rotary pairs are neighbours */
    bool local;       /* it has a window, and for that another rotary base (model_rope) */
    double scale;     /* scores are q k^T times this */
    double softcap;   /* scores s become c tanh(s / c); 0: not */
    double clip;      /* queries, keys and values are limited to this; 0: not */
    int64_t window;   /* a query sees so many keys, its own included; 0: all before it */
    int64_t chunk;    /* a query sees keys of its own piece of so many positions; 0: all */
    bool gate;        /* what heads give is multiplied by a sigmoid */
    bool sinks;       /* a learned score of each head joins the softmax */
    /* Latent attention (latent_attention.c); kv_rank 0: there is none. */
    int64_t kv_rank, q_rank; /* widths of the latents; q_rank 0: queries are a product of x */
    int64_t shared; /* columns of a key, its last, that all heads share: D - shared are its own */
    int64_t Dv;     /* width of a value; D but in latent attention */
} attention_layer;

/* In place of attention (Yang et al. 2024, "Gated Delta Networks"): queries, keys and values go through a convolution over time,
 * queries and keys get length 1, DELTA walks over them, and each head is normed and gated by z. */
typedef struct linear_layer {
    int64_t Hk, Hv, Dk,
        Dv; /* heads of queries and keys, of values; widths. Hv 0: it is attention */
    int64_t taps;
} linear_layer;

typedef struct mlp_layer {
    mlp_kind kind; /* act(gate) * up, or act of one product */
    act_kind act;
    int64_t F; /* of one expert, where there are some */
    bool bias;
    double dropout; /* of what goes into the last product */
    int64_t E, k;   /* experts, and how many of them a token goes through; E 0: none */
    int64_t
        slots; /* router soft: mixtures of tokens that an expert reads of a text; 0: tokens choose experts */
    op_router router; /* how it chooses them */
    bool router_bias; /* a bias chooses, too */
    int64_t shared;   /* width of the part beside experts that every token goes through; 0: none */
    bool shared_gate; /* what that gives is multiplied by sigmoid(x w) */
} mlp_layer;

/* A layer has two branches, attention and the feed-forward part. One after the other:
 * x += scale A(norm x); x += scale M(norm x). Parallel: both see the same x. */
typedef struct layer_spec {
    bool cross;       /* a third branch between the two: attention to what the encoder made */
    int stored;       /* the block that holds its weights: layers may share them (block_repeat) */
    bool norm_in;     /* a norm before each branch */
    bool norm_out;    /* a norm after each branch, before it is added */
    bool norm_shared; /* both branches see one norm's output */
    bool parallel;
    double branch_scale; /* what a branch gives is multiplied by this */
    attention_layer attn;
    linear_layer linear;
    mlp_layer mlp;
} layer_spec;

/* Whether any layer is linear. Its state is that of one position: what was read cannot be taken back. */
bool model_has_states(const model_config *mc);
/* Bytes of a sequence's state in a linear layer of a program whose activations are `dt`: what goes into the convolution, and S. With a cache all slots of
 * the one lie before all slots of the other. */
void model_linear_state_parts(const linear_layer *a, dtype dt, int64_t bytes[2]);
enum { MODEL_MOST_AHEAD = 16 }; /* num_nextn_predict_layers */
/* How many layers run: num_hidden_layers * block_repeat. */
int model_layers(const model_config *mc);
/* Of these, the first so many are the encoder's; 0: there is none. */
int model_encoder_layers(const model_config *mc);
/* Slots of a text in layers with soft experts; 0: no layer has such. */
int64_t model_slots(const model_config *mc);
/* The token with which a decoder that looks at an encoder begins. */
int32_t model_decoder_start(const model_config *mc);
/* All layers, and the blocks of the modules of multi-token prediction (ahead.c) behind them. */
int model_blocks(const model_config *mc);
/* Of layer l; from model_layers on of a module's block, which has the options of the last layer. */
layer_spec model_layer(const model_config *mc, int l);
/* Key/value heads of one of tp ranks. Where there are fewer heads than ranks, each rank has one,
 * which others have, too. */
static inline int64_t model_local_kv_heads(const attention_layer *a, int tp) {
    return a->K > tp ? a->K / tp : 1;
}
/* What one of tp ranks has of a linear layer: its value heads, and the key heads that these use, of which others may have copies. */
static inline linear_layer model_local_linear(const linear_layer *a, int tp) {
    linear_layer k = *a;
    k.Hv /= tp;
    k.Hk = a->Hk > tp ? a->Hk / tp : a->Hk > 0;
    return k;
}
/* Columns of a token in the cache of a layer: of all key heads and value heads that one of tp ranks
 * has, or of the latent and the shared part of keys. */
int64_t model_cache_cols(const attention_layer *a, int tp);
/* Whether a language model's head is the embedding. */
static inline bool model_head_is_table(const model_config *mc) {
    return mc->tie_word_embeddings && !mc->num_labels;
}
/* Columns of logits: tokens, or labels. */
static inline int64_t model_logits(const model_config *mc) {
    return mc->num_labels ? mc->num_labels : mc->vocab_size;
}
/* What a head of labels says; not PROBLEM_AUTO. */
static inline problem_kind model_problem(const model_config *mc) {
    if (mc->problem_type != PROBLEM_AUTO) return (problem_kind)mc->problem_type;
    return mc->num_labels == 1 ? PROBLEM_REGRESSION : PROBLEM_SINGLE_LABEL;
}
/* The longest sequence: max_position_embeddings, or what scaled rotary positions reach beyond it.
 */
int64_t model_max_tokens(const model_config *mc);
/* The longest sequence in which neither `doubling` nor logn_attn_length changes anything. */
int64_t model_plain_tokens(const model_config *mc);
/* Rotary positions. Some models have two kinds of layers: those with a window (local) have a base
 * of their own and are not scaled. */
rope_spec model_rope(const model_config *mc, bool local);

#endif
