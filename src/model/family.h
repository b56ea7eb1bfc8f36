/* A family: one file of data that says which options a published architecture has, what its
 * config.json calls them and what its tensors are called, plus one row in family.c. What is
 * computed follows from the options (layer.h, transformer.c).
 *
 * Reading order: this file, families/llama.c as the example, family.c (the list), declare.c
 * (parameters and the forward pass from the options). */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/layer.h"
#include "prog/prog.h"

/* The tensors of a model by what they do. */
typedef enum model_part {
    PART_EMBED,
    PART_POSITIONS,
    PART_FINAL_NORM,
    PART_HEAD,
    PART_ATTN_NORM,     /* before attention; before both branches where they share one */
    PART_ATTN_OUT_NORM, /* after it, inside the residual */
    PART_MLP_NORM,
    PART_MLP_OUT_NORM,
    PART_QKV, /* one tensor q|k|v; else the three */
    PART_Q,
    PART_K,
    PART_V,
    PART_O,
    PART_Q_NORM,
    PART_K_NORM,
    PART_GATE_UP, /* one tensor gate|up; else the two */
    PART_GATE,
    PART_UP, /* also the first product of a plain feed-forward part */
    PART_DOWN,
    PART_COUNT
} model_part;

typedef struct model_family {
    const char *model_type;   /* of config.json */
    const char *architecture; /* "LlamaForCausalLM" */
    /* Space-separated: options (names of keys.def) that its config.json says under these names or
     * their aliases; keys of its config.json that from_hf turns into options; and keys that its
     * other readers ignore, beside those of all families (config_file.c). */
    const char *keys, *own_keys, *inert_keys;
    const char *numbers;  /* its names for rope_theta, partial_rotary_factor and rms_norm_eps where
                           * they are not these */
    const char *lists;    /* options of `keys` that config.json can say for each layer */
    bool no_rope_scaling; /* config.json cannot say it */
    const char *activations;       /* space-separated words of hidden_act */
    const char *names[PART_COUNT]; /* of tensors, without ".weight"; %d is the stored layer */
    bool transposed;               /* files hold matrices of layers as [in,out] (Conv1D) */
    bool qkv_by_head;              /* ROWS_BY_HEAD */
    bool pad_row_fixed;            /* no gradient from inputs at pad_token_id */
    const char *gguf_arch;         /* general.architecture of llama.cpp; NULL: none */
    /* Which other programs load a folder of it by themselves (facts and dates: interchange/where_runs.h). */
    bool in_transformers, in_vllm, in_ollama;
    void (*defaults)(model_config *mc); /* before keys are read: those of transformers' class */
    /* Turns own keys into options, in place; a key left over stops. An option that is there already
     * stands: our extension or the user said it. file: o began as somebody's config.json. NULL:
     * there are no own keys. */
    status (*from_hf)(json_t *o, int64_t layers, bool file, err *e);
    void (*derive)(model_config *mc); /* after keys are read; may be NULL */
    /* The family's keys of config.json. */
    void (*to_hf)(const model_config *mc, json_t *o);
    /* Whether the value of an option of `keys` can be said. NULL: all values can. */
    bool (*can_say)(const model_config *mc, const char *option);
} model_family;

/* Options that every config.json has. */
#define MODEL_KEYS_OF_ALL                                                                          \
    "vocab_size hidden_size num_hidden_layers num_attention_heads max_position_embeddings "        \
    "initializer_range tie_word_embeddings pad_token_id "

const model_family *model_family_find(const char *model_type);
const model_family *model_family_at(int i); /* NULL past the end */

/* ---- what follows from the options (declare.c, transformer.c) ---- */

/* Whether heads and widths divide over so many tensor-parallel ranks; ST_USAGE names what does not.
 * Asked before parameters are declared for them. */
status model_check_ranks(const model_config *mc, int tp, err *e) ATH_MUST_USE;
/* Declares all parameters. */
void model_declare(const model_config *mc, param_store *s);

/* A run of layers, first .. end - 1: what a chunk of a model computes. With layer 0 it has the
 * embedding, with the last one the head. */
typedef struct model_layer_range {
    int first, end;
} model_layer_range;
model_layer_range model_all_layers(const model_config *mc);
/* Run i of `chunks`, which all have as many layers as any other, or one more. Layers that share
 * their parameters are not parted. */
model_layer_range model_chunk(const model_config *mc, int chunks, int i);
/* The parameters that these layers read. */
void model_declare_layers(const model_config *mc, model_layer_range layers, param_store *s);

typedef enum model_task {
    TASK_LM,     /* nll per position; in training graphs also all gradients */
    TASK_NLL,    /* the same nll, whose gradient is given after the forward: input "grad.nll" */
    TASK_LOGITS, /* "logits" [n,V] of the rows named by the input "rows" [n,1] */
} model_task;

/* Low-rank matrices that are trained beside frozen ones (adapters.h). */
typedef struct model_adapters {
    int rank; /* 0: there are none */
    double alpha;
} model_adapters;

/* One recording. B sequences of T tokens. With a cache (generation) keys and values of earlier
 * tokens are in SPACE_STATE, Tmax rows per sequence. */
typedef struct model_rec {
    graph *g;
    const model_config *mc;
    const param_store *params;
    const model_adapters *adapters; /* where the store has some */
    model_task task;
    model_layer_range layers; /* end 0: all */
    int B, T;
    int Tmax;           /* 0: no cache */
    bool cache_f16;     /* the cache is f16, in programs of f32; else as activations are */
    int64_t n_logits;   /* TASK_LOGITS */
    bool document_mask; /* input "start" is read */
    int64_t chunk_rows;
    float z_loss;
    /* made by model_record */
    val ids, pos, start, qpos;
    val rope[2];         /* tables of global and local layers */
    int64_t cache_bytes; /* given to layers so far */
} model_rec;

/* Records a model: inputs "ids", "pos", "start", "targets" or "rows", "qpos"; outputs "nll" or
 * "logits". Without layer 0 it takes the activations "x" [B*T,C] instead of "ids", without the last
 * layer it gives "y" instead of "nll". In training the gradients "grad.x" go out, and "grad.y" come
 * in. */
void model_record(model_rec *r);
/* For graph_options.random_ops_before. */
uint32_t model_random_ops_before(int layer);
/* Bytes of SPACE_STATE that B cached sequences of Tmax tokens need on one of tp ranks. */
int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt);

/* Parameters of the token and position tables and of the head: what "non-embedding" counts leave
 * out. */
int64_t model_embedding_params(const model_config *mc, const param_store *s);

#endif
