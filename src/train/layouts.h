/* The same steps under several layouts, with threads as ranks: whether the layout changes the
 * mathematics. `athanor verify layouts`. */
#ifndef TRAIN_LAYOUTS_H
#define TRAIN_LAYOUTS_H

#include "run/config.h"

/* What distinguishes a layout: other keys are the config's. */
typedef struct layout {
    int dp, dp_replicate, zero, tp;
    bool sp;
    int64_t micro_batch; /* sequences; 0: as in the config */
    int recompute;       /* config_recompute; -1: as in the config */
} layout;

enum { LAYOUT_NAME_MAX = 96 };
/* "dp2 zero3 tp2 sp micro4 recompute-full" */
void layout_name(const layout *l, char out[LAYOUT_NAME_MAX]);
int layout_ranks(const layout *l);

typedef struct layout_step {
    double loss, norm;
    uint64_t digest; /* after the update */
} layout_step;

typedef struct layout_result {
    int ranks;
    uint64_t initial; /* digest of the weights before the first step */
    layout_step *steps;
    int n_steps;        /* done */
    int64_t peak_bytes; /* of the arena of the worst rank */
    double seconds;     /* in steps */
} layout_result;

/* Trains `steps` steps on random ids under a layout, every rank a thread with one OpenMP thread.
 * result->steps has room for them. The failure of the first rank that failed. */
status layout_run(const config *c, const layout *l, int steps, layout_result *result,
                  err *e) ATH_MUST_USE;

#endif
