/* Runs the same training steps with several layouts of ranks, to see whether a layout changes what
 * is computed. A layout_trial is the shortened config; layout_run trains it with one layout and
 * notes losses, gradient norms and digests in a layout_result; matrix.h compares two results.
 *
 * Reading order: this file, layouts.c (running one layout), matrix.h (which layouts there are, and
 * what must be equal). */
#ifndef TRAIN_LAYOUTS_H
#define TRAIN_LAYOUTS_H

#include "comm/comm.h"
#include "run/config/config.h"
#include "train/lora.h"

struct session;

/* How ranks share the work. */
typedef struct layout {
    int dp, dp_replicate, zero, tp;
    bool sp, async; /* parallel.tp_async */
    int recompute;  /* config_recompute */
    int pp;         /* stages; 0 is 1 */
    int schedule;   /* of these: config_pp_schedule */
    int virtual;    /* chunks of a stage; 0 is 1 */
    int cp;         /* ranks that share tokens; 0 is 1 */
    int cp_kind;    /* how: context_kind */
    int ep;         /* ranks that share out experts; 0 is 1 */
    bool at_once;   /* rows of experts are exchanged in one round */
    int offload;    /* what lies in a file: config_offload */
} layout;

enum { LAYOUT_NAME_MAX = 96 };
/* "dp2 zero3 tp2 sp recompute-full" */
void layout_name(const layout *l, char out[LAYOUT_NAME_MAX]);
int layout_ranks(const layout *l);
/* The precision in which layouts of this run are compared bit by bit: its own (auto: fp32). */
int layout_precision(const config *c);

/* What is trained: the model of a config with its first layers only, at full width, on short
 * sequences. */
typedef struct layout_trial {
    config *c;  /* of the trial, in its own memory: a digest at every step */
    lora lora;  /* what it trains, if these are adapters */
    int depth;  /* layers */
    bool pools; /* routers balance each micro-batch, which is the same in all layouts then */
    int n_params;
    const char **param; /* names */
    arena *memory;
} layout_trial;

/* depth: layers that are kept, 0: all. batch: micro-batches of a step, over all ranks; a multiple
 * of the data-parallel ranks of every layout that will be tried. */
status layout_trial_new(layout_trial **out, const config *c, int depth, int batch,
                        err *e) ATH_MUST_USE;
void layout_trial_free(layout_trial *t);
/* Whether the model divides over so many tensor-parallel ranks; whether what is trained runs in stages,
 * so many chunks of layers in all. */
bool layout_trial_divides(const layout_trial *t, int tp);
bool layout_trial_has_stages(const layout_trial *t, int chunks);
/* Whether the ranks of layout l can share the tokens of what is trained as l.cp and l.cp_kind say. */
bool layout_trial_shares_tokens(const layout_trial *t, const layout *l);
/* Whether what is trained has experts that so many ranks can share out. */
bool layout_trial_spreads_experts(const layout_trial *t, int ep);
/* Whether its steps must have the bits of one rank: no rank has a part of a product's rows or columns, and
 * the rows of an expert that are of one rank are not divided into rounds. */
bool layout_is_exact(const layout *l);

/* How the steps of a trial are run. */
typedef struct layout_way {
    int precision; /* CONFIG_PRECISION_FP32, _BF16 or _FP16 */
    int steps;
    /* false: the deterministic mode, whose sums are exact. true: as most runs are: sums of floats; without stages
     * one micro-batch, so that gradients share memory with activations; and a slow link, so that
     * gradients travel while the backward pass goes on. */
    bool ordinary;
    /* For tests, which break something here that the comparison must find: called on each rank,
     * with 0 after weights are initialised, and with i before step i. NULL: not used. */
    void (*between)(struct session *s, int step);
} layout_way;

typedef struct layout_step {
    double loss, norm;
    uint64_t digest; /* after the update */
} layout_step;

typedef struct layout_result {
    uint64_t initial; /* digest of the weights before the first step */
    uint64_t *digest; /* [params] the same for each parameter */
    double *norm;     /* [params] norm of its gradient in the first step */
    layout_step *steps;
    int n_steps; /* done */
    layout_way way;
    int64_t peak_bytes; /* planned, on the rank that needs most */
    double seconds;     /* in steps */
} layout_result;
layout_result *layout_result_new(const layout_trial *t, const layout_way *way);

/* Trains on random ids with a layout; every rank is a thread with one OpenMP thread. Returns the
 * error of the first rank that failed. */
status layout_run(const layout_trial *t, const layout *l, const layout_way *way, layout_result *r,
                  err *e) ATH_MUST_USE;
/* The same as one rank of a world that has the layout's ranks; NULL: alone. */
status layout_run_rank(const layout_trial *t, const layout *l, const layout_way *way,
                       comm_world *world, layout_result *r, err *e) ATH_MUST_USE;

#endif
