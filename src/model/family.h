/* A family is a published architecture: Llama, GPT-2, Gemma 3. It is one file of data, which says
 * what options it has, what its config.json calls them and what its tensors are called, and one row
 * in family.c. It computes nothing: options become a record for each layer (layer.h), and there is
 * one forward pass for all families.
 *
 *   config.json or a user's YAML
 *        |  config_read.c, by what the family says of keys
 *        v
 *   model_config (config.h) ---> model_declare: names and shapes of the parameters (declare.c)
 *                          \---> model_record: the forward pass (transformer.c)
 *
 * Reading order: this file; families/llama.c as the example; family.c (the list); config_file.h
 * (reading a config); declare.c; transformer.c. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/layer.h"
#include "prog/prog.h"

/* The tensors of a model by what they do. Suffixes .weight and .bias tell two tensors of a part. */
typedef enum model_part {
    PART_EMBED,
    PART_POSITIONS,
    PART_RELATIVE, /* biases by distance of the decoder, or of the only stack; of the encoder */
    PART_ENCODER_RELATIVE,
    PART_FINAL_NORM,
    PART_ENCODER_NORM, /* of what the encoder made */
    PART_HEAD,
    PART_SCORE,         /* the head of num_labels outputs, in the place of PART_HEAD */
    PART_ATTN_NORM,     /* before attention; before both branches where they share one */
    PART_ATTN_OUT_NORM, /* after attention, before it is added to the residual stream */
    PART_MLP_NORM,
    PART_MLP_OUT_NORM,
    PART_QKV, /* one tensor q|k|v in files; else there are the three */
    PART_Q,
    PART_K,
    PART_V,
    PART_O,
    PART_Q_A, /* latent attention: what queries are made of, its norm, and what makes them of it */
    PART_Q_A_NORM,
    PART_Q_B,
    PART_KV_A, /* the same of keys and values; the last rows make the part that all heads share */
    PART_KV_A_NORM,
    PART_KV_B,
    PART_CROSS_NORM, /* attention to the encoder: as those of attention */
    PART_CROSS_OUT_NORM,
    PART_CROSS_Q,
    PART_CROSS_K,
    PART_CROSS_V,
    PART_CROSS_O,
    PART_Q_NORM,
    PART_K_NORM,
    PART_SINKS,       /* a score of each head */
    PART_LINEAR_QKVZ, /* of the gated delta rule: queries, keys, values and gates in one tensor */
    PART_LINEAR_BA,
    PART_LINEAR_CONV,
    PART_LINEAR_A_LOG,
    PART_LINEAR_DT_BIAS,
    PART_LINEAR_NORM,
    PART_LINEAR_OUT,
    PART_GATE_UP, /* one tensor gate|up in files; else there are the two */
    PART_GATE,
    PART_UP,       /* also the first product of a plain feed-forward part */
    PART_PLAIN_UP, /* where files have another name for that */
    PART_DOWN,
    PART_ROUTER, /* whose product with a token says how well each expert fits it */
    PART_EXPERT_GATE,
    PART_EXPERT_UP,
    PART_EXPERT_DOWN,
    PART_ROUTER_BIAS, /* its whole name, since it is no ".bias" in files */
    PART_SHARED_GATE, /* of the part beside experts that every token goes through */
    PART_SHARED_UP,
    PART_SHARED_DOWN,
    PART_SHARED_SCALE, /* whose product with a token says how much that part counts */
    PART_AHEAD_EMBED_NORM, /* of a module of multi-token prediction (ahead.c): of the token's embedding */
    PART_AHEAD_NORM,       /* of the hidden state */
    PART_AHEAD_JOIN,       /* of both, side by side */
    PART_AHEAD_HEAD_NORM, /* before the head */
    PART_LORA_A, /* adapters (adapters.c), named after the matrix beside which they stand */
    PART_LORA_B,
    PART_COUNT
} model_part;

/* Of one expert: there are as many such tensors in a layer as experts. */
static inline bool model_part_of_expert(int part) {
    return part >= PART_EXPERT_GATE && part <= PART_EXPERT_DOWN;
}

enum { BY_TRANSFORMERS = 1, BY_VLLM = 2, BY_OLLAMA = 4 };

typedef struct model_family {
    const char *model_type; /* of config.json */
    /* Another model_type with the same keys and tensors; NULL: there is none. */
    const char *also_called;
    const char *architecture; /* "LlamaForCausalLM" */
    const char *classifier;   /* "LlamaForSequenceClassification"; NULL: transformers has none */
    /* Lists of words, separated by spaces. */
    const char *keys;     /* options (names of keys.def) that its config.json has, by these names or
                               their aliases */
    const char *own_keys; /* keys of its config.json that are no options; from_hf makes options of
                               them */
    const char *inert_keys;  /* keys of its config.json that change nothing we compute, beside those
                               of all families (config_file.c) */
    const char *own_names;   /* its names for rope_theta, partial_rotary_factor, rms_norm_eps and
                               hidden_act, where they are not these */
    const char *lists;       /* options of `keys` that config.json can give for each layer */
    bool no_rope_scaling;    /* its config.json has no rope_scaling */
    rope_kind own_scaling;   /* but says this kind by keys of its own */
    const char *activations; /* space-separated words of hidden_act */
    const char
        *names[PART_COUNT]; /* of tensors, without ".weight"; %d is the stored layer, a second
                                      one the expert */
    const char
        *encoder_names[PART_COUNT]; /* of its layers, where it has one; %d counts from its first */
    bool transposed;                /* files hold matrices of layers as [in,out] (Conv1D) */
    bool qkv_by_head;               /* the rows of q|k|v in files are ROWS_BY_HEAD (param.h) */
    bool pad_row_fixed;             /* pad_token_id as input gives its embedding no gradient */
    const char *gguf_arch;          /* general.architecture of llama.cpp; NULL: none */
    /* Programs that load a folder of it by themselves, as far as their lists say
     * (interchange/where_runs.h): BY_TRANSFORMERS and so forth, added with |. */
    unsigned loaded_by;
    /* Sets the options that it has when config.json says nothing: those of transformers' class.
     * Called before keys are read. */
    void (*defaults)(model_config *mc);
    /* Takes own keys out of o and puts options into it. An option that is in o already stays: the
     * user said it, or an extension of ours. What is left and is no option stops the reading.
     * file: o began as somebody's config.json. NULL: there are no own keys. */
    status (*from_hf)(json_t *o, int64_t layers, bool file, err *e);
    void (*derive)(model_config *mc); /* called after keys are read; may be NULL */
    /* Writes the family's keys of config.json. */
    void (*to_hf)(const model_config *mc, json_t *o);
    /* Whether config.json has a word for the value of an option of `keys`. NULL: for all values. */
    bool (*can_say)(const model_config *mc, const char *option);
} model_family;

/* Options that every config.json has. */
#define MODEL_KEYS_OF_ALL                                                                          \
    "vocab_size hidden_size num_hidden_layers num_attention_heads max_position_embeddings "        \
    "initializer_range tie_word_embeddings pad_token_id "

const model_family *model_family_find(const char *model_type);
const model_family *model_family_at(int i); /* NULL past the end */

/* ---- parameters (declare.c) ---- */

/* Whether tp tensor-parallel ranks can share tables, heads and widths; ST_USAGE names what does not divide.
 * Called before parameters are declared for such ranks. */
status model_check_ranks(const model_config *mc, int tp, err *e) ATH_MUST_USE;
/* Whether such ranks have equally many rows of each table. */
bool model_ranks_are_alike(const model_config *mc, int tp);
/* Adds all parameters of the model to a store. */
void model_declare(const model_config *mc, param_store *s);

/* A chunk of a model: layers first .. end - 1. The one with layer 0 has the embedding, too, and the
 * one with the last layer the head. */
typedef struct model_layer_range {
    int first, end;
} model_layer_range;
model_layer_range model_all_layers(const model_config *mc);
/* Chunk i of `chunks`. Their lengths differ by a stored layer at most; layers that share their
 * parameters stay together. */
model_layer_range model_chunk(const model_config *mc, int chunks, int i);
/* Adds the parameters that n chunks read, which ascend, in the order of a whole model. */
void model_declare_chunks(const model_config *mc, const model_layer_range *chunk, int n,
                          param_store *s);

/* Adapters (adapters.c has the mathematics): small matrices that are trained while the model's own
 * weights are frozen. */
enum { MODEL_MOST_RANK = 65536 };
typedef struct model_adapters {
    int rank; /* 0: there are none, and the whole model is trained */
    double alpha;
    bool rslora; /* scaled by alpha / sqrt(rank), not alpha / rank (Kalajdzievski 2023) */
    /* Names of the matrices of layers that get adapters, without ".weight": whole, or what stands
     * behind a dot ("q_proj"). n_targets 0: all. */
    const char *const *targets;
    int n_targets;
    float dropout;        /* of what goes into A */
    bool embedding, head; /* these are trained, too, as a whole; a tied head is the embedding */
} model_adapters;
double model_adapters_scale(const model_adapters *ad);
/* Whether a matrix, by its name in files, has adapters; whether it is trained itself. */
bool model_has_adapter(const model_adapters *ad, const param *p);
/* Whether it is in 4 bits where the frozen model is: matrices of layers, but no routers. */
bool model_is_quantised(const param *p);
bool model_trains_whole(const model_adapters *ad, const param *p);
/* ST_USAGE: a target is no matrix of a layer; the hint lists them. */
status model_check_targets(const model_adapters *ad, const param_store *s, err *e) ATH_MUST_USE;
/* The last words of the names of matrices with adapters, each once: "q_proj". In the arena. */
const char **model_adapter_names(arena *a, const model_adapters *ad, const param_store *s, int *n);
/* Instead of model_declare: adds all parameters of the model, in its order, frozen but for those
 * that are trained as a whole; then two matrices for each matrix with adapters. ST_USAGE: a target
 * is no matrix of the model. */
status model_declare_adapted(const model_config *mc, const model_adapters *ad, param_store *s,
                             err *e) ATH_MUST_USE;
/* The same of some chunks of the layers; whether there are such targets is not asked. */
status model_declare_adapted_chunks(const model_config *mc, const model_layer_range *chunk, int n,
                                    const model_adapters *ad, param_store *s, err *e) ATH_MUST_USE;

/* ---- the forward pass (transformer.c) ---- */

/* What a program gives. nll: the negative log-likelihood of each target, fp32 [B*T,1]. */
typedef enum model_task {
    TASK_LM,     /* nll; in training also the gradients of its sum */
    TASK_NLL,    /* nll; in training its gradient comes from outside, after the forward pass, as the
                    input "grad.nll" */
    TASK_LOGITS, /* "logits" [n,V], fp32, of the rows that the input "rows" [n,1] names */
    TASK_SCORE,  /* nll [n,1] of the "targets" [n,1] after the rows that "rows" [n,1] names */
    TASK_FILL, /* fills the cache; "y" [1,C] has the row that "rows" [1,1] names, before the head */
    /* "y" [B*T,C]: the rows as the last layer leaves them. With layers model_layers + k .. + k + 1, the
     * k-th module of multi-token prediction, from 0 on: "x" [B*T,C] is such a "y" of the model or of
     * the module before, "ids" are the tokens k + 1 places further on */
    TASK_BODY,
    TASK_TEACH, /* "logits" [B*T,V], fp32, of all rows */
    TASK_HEAD,  /* "logits" [B*T,V], fp32, of the rows "x" [B*T,C] that TASK_BODY of the same layers
                  gave: norm and head */
    TASK_ENCODE, /* an encoder: keys and values for attention to it go to the cache; "y" [B*S,C], what it made */
} model_task;

/* A cache of pages that sequences share (PAGE_STORE). The rows of a program, T of B = 1, may belong
 * to any of them. */
typedef struct model_pages {
    int page;   /* tokens of a page; 0: there is no such cache */
    int pages;  /* of the cache */
    int seqs;   /* rows of the input "pages": sequences at a time */
    int of_seq; /* its columns: pages of a sequence at most */
} model_pages;

/* Which load of its experts a router is to keep even, while it trains; each adds router_aux_loss_coef times a loss.
 *   micro     that of the micro-batch, all layers pooled, as transformers computes it (Fedus et al. 2021, eq. 4)
 *   sequence  that of each sequence of a layer (DeepSeek-V3, eq. 17 to 20)
 *   global    that of all tokens of the step in a layer, on all ranks (Qiu et al. 2025) */
#define ROUTER_BALANCES(W)                                                                         \
    W(BALANCE_MICRO, "micro")                                                                      \
    W(BALANCE_SEQUENCE, "sequence")                                                                \
    W(BALANCE_GLOBAL, "global")                                                                    \
    W(BALANCE_NONE, "none")
typedef enum router_balance { ROUTER_BALANCES(LIST_ENUMERATOR) } router_balance;

/* How routers are trained. */
typedef struct model_routing {
    router_balance balance;
    float z_loss; /* weight of the squared log-partition of their logits */
    bool tallies; /* each layer with experts gives its tally (ROUTER_TALLY) */
    /* An expert takes at most ceil(capacity_factor * T k / E) picks of each sequence of T tokens, and the
     * others are dropped (Fedus et al. 2021, eq. 3). 0: none is. */
    double capacity_factor;
} model_routing;

/* How a model learns from the logits of another (HEAD_DISTILL). */
typedef struct model_lesson {
    float weight; /* of the other's share in the loss; 0: there is none */
    float temperature;
    int64_t
        stored; /* tokens of which its log-probabilities are known; 0: its logits are made beside */
} model_lesson;

/* What layers hide of the keys before a query, beside documents; 0: nothing. */
typedef struct model_mask {
    int64_t window, chunk;
} model_mask;
enum { MODEL_MOST_MASKS = 4 };
/* All kinds of masks of a model's attention, each once; more than MODEL_MOST_MASKS: there are too many. */
int model_masks(const model_config *mc, model_mask out[MODEL_MOST_MASKS]);

/* What is to be recorded: B sequences of T tokens; where context-parallel ranks share tokens, T are
 * this rank's. With a cache, as for generation, keys and values
 * of earlier tokens are in SPACE_STATE: for each layer [B,K,Tmax,D] of keys, then of values. */
typedef struct model_rec {
    graph *g;
    const model_config *mc;
    const param_store *params;
    const model_adapters *adapters; /* of a store that has some; NULL, or of rank 0: none */
    model_task task;
    model_layer_range layers; /* end 0: all */
    bool head_elsewhere;      /* of a chunk without it: the head is on another rank */
    int B, T;
    int S;              /* tokens of a source that an encoder reads */
    int Tmax;           /* 0: no cache */
    int Smax;           /* of sources, with a cache */
    int slots;          /* sequences that the cache has room for, of which the first B are used; 0:
                           B */
    int positions;      /* that tokens may have; 0: as many as the cache holds, or T */
    model_pages paged;  /* instead of Tmax, with `positions` */
    bool cache_f16;     /* the cache is f16, in programs of f32; else as activations are */
    int64_t n_logits;   /* of TASK_LOGITS and TASK_SCORE: how many rows */
    bool document_mask; /* attention ends at the beginning of a document, which the input "start"
                           [B*T,1] says for each token */
    int64_t chunk_rows; /* rows of logits that the loss makes at a time; 0: automatic */
    float z_loss;       /* weight of the squared log-partition in the loss */
    model_routing routing;
    model_lesson lesson; /* of TASK_LM in training */
    int64_t sample_rows; /* TASK_NLL: rows of each sample over which the loss is a mean; 0: one */
    /* made by model_record, for its own use */
    val ids, pos, start, qpos, span, at, place, pages;
    struct {
        val ids, pos, start, end; /* of the source */
        val seen_start, seen_end; /* which of its tokens each token of the decoder sees */
        val slots_end;            /* how many tokens the slots of soft experts mix */
        val made; /* what the encoder made of it, as all tensor-parallel ranks have it */
    } source;
    struct {
        val order, end, first[MODEL_MOST_MASKS]; /* where ranks share tokens (context.c) */
    } context;
    val relative[2];     /* biases by distance: of the encoder, of the decoder */
    val rope[2];         /* tables of global and local layers */
    val rope_q[2];       /* those of their queries: others, or the same */
    int64_t cache_bytes; /* given to layers so far */
    int64_t cross_bytes; /* the same for keys and values of sources, which lie behind */
    int n_routers;       /* of these layers */
    val load;            /* of their routers so far, if a loss is to keep it even */
} model_rec;

/* Records the forward pass in r->g; an error stays in the graph, and prog_finish tells it.
 *
 *   input    "ids"  int32 [B*T,1]   of the chunk with layer 0; of any other: "x" [B*T,C], what the
 *                                   chunk before gave
 *            "pos"  int32 [B*T,1]   position of each token in its sequence
 *            "start", "qpos"        with document_mask, and with a cache
 *            "context.*"            where ranks share tokens (context.c)
 *            "span" [B,2]           with a cache and linear layers: qpos, and how many of the T rows are no padding
 *            "at" [T,1], "place" [T,2], "pages" [seqs,of_seq]    with a cache of pages
 *            "source", "source_pos", "source_start", "source_end" [B*S,1]    of an encoder: ids, positions, and which tokens
 *                                   of its source each token sees, from .. to (a document, without padding)
 *            "slots_end" [B*P,1]    of an encoder with soft experts, of P slots: how many tokens its source has, which is
 *                                   alone in its row
 *            "seen_start", "seen_end" [B*T,1]    of a decoder: which tokens of the source each token sees
 *            "targets"              of the chunk with the last layer, TASK_LM, TASK_NLL, TASK_SCORE
 *            "teacher" [B*T,V]      of the chunk with the last layer, with a lesson: another model's logits; with
 *                                   lesson.stored [B*T,k], of "teacher.tokens"
 *            "rows"                 of TASK_LOGITS, TASK_SCORE, TASK_FILL
 *            "counts.L" [1,E]       of layer L with BALANCE_GLOBAL, before the backward: how many tokens of
 *                                   the step picked each expert
 *   output   "nll" or "logits"      of the chunk with the last layer; of any other: "y" [B*T,C]
 *            "tally.L" [4,E]        of layer L, with routing.tallies
 *   training, between chunks: "grad.y" comes in and "grad.x" goes out */
void model_record(model_rec *r);
/* Random ops (dropout) in the layers before this one: random_ops_before of a chunk's graph. */
uint32_t model_random_ops_before(const model_config *mc, int layer);
/* Bytes of SPACE_STATE that B cached sequences of Tmax tokens need on one of tp ranks; dt: of keys and values; `activations`: of the program,
 * and so of states. */
int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt,
                          dtype activations);
/* The same of a cache of pages, with those of the first `modules` modules of multi-token prediction. */
int64_t model_paged_bytes(const model_config *mc, int tp, const model_pages *pages, int modules,
                          dtype dt, dtype activations);
/* The same for keys and values of B sources of Smax tokens; 0 without an encoder. They lie behind those of
 * the decoder's own tokens. */
int64_t model_source_cache_bytes(const model_config *mc, int tp, int B, int Smax, dtype dt);

/* Parameters of the token and position tables and of the head: what "non-embedding" counts leave
 * out. */
int64_t model_embedding_params(const model_config *mc, const param_store *s);
/* Whether it belongs to a module of multi-token prediction; how many parameters these have together,
 * beside the embedding and the head that they share. */
bool model_param_is_ahead(const model_config *mc, const param *p);
int64_t model_ahead_params(const model_config *mc, const param_store *s);
/* Parameters that a token goes through, as published counts have them: the layers with the experts that it picks, the
 * embedding and the head. Modules, position tables, the last norm, a head's bias and the biases that choose experts do not
 * count. */
int64_t model_active_params(const model_config *mc, const param_store *s);

#endif
