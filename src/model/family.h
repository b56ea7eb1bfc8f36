/* A family: one file that says which parameters a model has and how one forward pass goes, plus one
 * row in family.c. Families are forward only; backward, recompute and memory follow from the
 * recorded program.
 *
 * Reading order: this file, family.c (the list, recording a whole model), llama.c as the example,
 * blocks.c (shared parts). */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/config.h"
#include "param/param.h"
#include "prog/prog.h"

typedef enum model_task {
    TASK_LM,     /* nll per position; in training graphs also all gradients */
    TASK_LOGITS, /* "logits" [n,V] of the rows named by the input "rows" [n,1] */
} model_task;

/* One recording. B sequences of T tokens. With a cache (generation) keys and values of earlier
 * tokens are in SPACE_STATE, Tmax rows per sequence. */
typedef struct model_rec {
    graph *g;
    const model_config *mc;
    const param_store *params;
    model_task task;
    int B, T;
    int Tmax;           /* 0: no cache */
    int64_t n_logits;   /* TASK_LOGITS */
    bool document_mask; /* input "start" is read */
    int64_t chunk_rows;
    float z_loss;
    /* made by model_record before the family runs */
    val ids, pos, start, qpos, rope;
} model_rec;

typedef struct model_family {
    const char *model_type;   /* of config.json */
    const char *architecture; /* "LlamaForCausalLM" */
    const char *keys;         /* space-separated names of keys.def that this family understands */
    const char *activations; /* space-separated words of hidden_act, its names elsewhere included */
    void (*defaults)(model_config *mc);                      /* before keys are read */
    status (*check)(model_config *mc, err *e);               /* derives omitted members */
    void (*declare)(const model_config *mc, param_store *s); /* parameters and init */
    val (*embed)(model_rec *r);                              /* ids -> x [B*T,C] */
    val (*block)(model_rec *r, int layer, val x);            /* x -> x */
    val (*head)(model_rec *r, val x); /* final norm: x -> what the head multiplies */
    const char *(*head_weight)(const model_config *mc);        /* name of the [V,C] matrix */
    void (*write_config)(const model_config *mc, json_t *obj); /* family keys of config.json */
    bool rotary;
} model_family;

const model_family *model_family_find(const char *model_type);
const model_family *model_family_at(int i); /* NULL past the end */

/* Records a whole model: inputs "ids", "pos", "start", "targets" or "rows", "qpos"; outputs "nll"
 * or "logits". */
void model_record(model_rec *r);
/* Bytes of SPACE_STATE that B cached sequences of Tmax tokens need. */
int64_t model_cache_bytes(const model_config *mc, int B, int Tmax, dtype dt);

/* For families: the value of a parameter or pack by name; VAL_NONE when the model does not have it.
 */
val model_param(model_rec *r, const char *fmt, ...) ATH_PRINTF(2, 3);

/* Parameters of the token and position tables and of the head: what "non-embedding" counts leave
 * out. */
int64_t model_embedding_params(const model_config *mc, const param_store *s);

#endif
