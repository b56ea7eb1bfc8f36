/* The same steps under several layouts: whether the layout changes the mathematics.
 *
 * Reading order: this file, layouts.c (running one layout), matrix.h (which layouts, and
 * what is compared). */
#ifndef TRAIN_LAYOUTS_H
#define TRAIN_LAYOUTS_H

#include "comm/comm.h"
#include "run/config/config.h"

struct session;

/* What distinguishes a layout. */
typedef struct layout {
    int dp, dp_replicate, zero, tp;
    bool sp;
    int recompute; /* config_recompute */
} layout;

enum { LAYOUT_NAME_MAX = 96 };
/* "dp2 zero3 tp2 sp recompute-full" */
void layout_name(const layout *l, char out[LAYOUT_NAME_MAX]);
int layout_ranks(const layout *l);

/* What of a config is tried: its model's first layers at full width, on short sequences. */
typedef struct layout_trial {
    config *c; /* of the trial, in its own memory: a digest at every step */
    int depth; /* layers */
    int n_params;
    const char **param; /* names */
    arena *memory;
} layout_trial;

/* batch: sequences of a step, a multiple of what any layout has as ranks; micro-batches are equal
 * in all. depth 0: all layers. */
status layout_trial_new(layout_trial **out, const config *c, int depth, int batch,
                        err *e) ATH_MUST_USE;
void layout_trial_free(layout_trial *t);
/* Whether the model divides over so many tensor-parallel ranks. */
bool layout_trial_divides(const layout_trial *t, int tp);

/* How its steps are run. */
typedef struct layout_way {
    int precision; /* CONFIG_PRECISION_FP32 or _BF16 */
    int steps;
    bool ordinary; /* sums of floats, as a run without train.deterministic has them; one
                      micro-batch, so that gradients share their memory with activations, and a slow
                      link, so that they travel while the backward goes on */
    /* NULL, or what happens to each rank between its steps: 0 when its weights have been drawn, and
     * i before step i. By this tests make the mistakes that a comparison must notice. */
    void (*between)(struct session *s, int step);
} layout_way;

typedef struct layout_step {
    double loss, norm;
    uint64_t digest; /* after the update */
} layout_step;

typedef struct layout_result {
    uint64_t initial; /* digest of the weights before the first step */
    uint64_t *digest; /* [params] the same of each */
    double *norm;     /* [params] of its gradient in the first step */
    layout_step *steps;
    int n_steps; /* done */
    layout_way way;
    int64_t peak_bytes; /* of the arena of the worst rank */
    double seconds;     /* in steps */
} layout_result;
layout_result *layout_result_new(const layout_trial *t, const layout_way *way);

/* Trains on random ids under a layout, every rank a thread with one OpenMP thread. The failure of
 * the first rank that failed. */
status layout_run(const layout_trial *t, const layout *l, const layout_way *way, layout_result *r,
                  err *e) ATH_MUST_USE;
/* The same as one rank of a world that has the layout's ranks; NULL: alone. */
status layout_run_rank(const layout_trial *t, const layout *l, const layout_way *way,
                       comm_world *world, layout_result *r, err *e) ATH_MUST_USE;

#endif
