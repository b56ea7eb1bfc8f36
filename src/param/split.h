/* How tensor-parallel ranks share a parameter: by rows, by columns, or not at all.
 *
 * Let y = x W^T. If the ranks share the outputs y, each has some rows of W and some elements of the
 * bias. If they share the inputs x, each has some columns of W. All other parameters are whole on
 * every rank.
 *
 * Rows come in runs. A run is a stretch of rows of the whole that is shared out by itself: one for
 * most parameters, three for q|k|v stored as one tensor. All rows of a head are on the same rank.
 * With fewer heads than ranks, several successive ranks hold copies of the same head.
 *
 * Example: 4 query heads and 2 key/value heads on 4 ranks, in one tensor.
 *
 *   rows of the whole    q0 q1 q2 q3 | k0 k1 | v0 v1      three runs
 *   rank 0 has           q0          | k0    | v0         copies = 2 in the runs of k and v
 *   rank 1 has              q1       | k0    | v0
 *   rank 2 has                 q2    |    k1 |    v1
 *   rank 3 has                    q3 |    k1 |    v1
 *
 * Only the first rank of those that hold a copy counts it: ranks 0 and 2 add k0 and k1 to digests
 * and norms, ranks 1 and 3 do not. A rank may compute only a summand of the gradient of its copy
 * (k0 is used with q0 on rank 0, with q1 on rank 1). Such a gradient is called partial, and is
 * summed over the ranks that hold the copies. */
#ifndef PARAM_SPLIT_H
#define PARAM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct param_ranks {
    int n, rank; /* how many tensor-parallel ranks, and which of them this is */
    /* Between products, each rank has some tokens of the micro-batch. A parameter that is whole on
     * all ranks then has a partial gradient. */
    bool sequence_parallel;
    /* Ranks that hold different experts of each layer, and which of them this is; 0: one. */
    int experts, expert_rank;
} param_ranks;

typedef enum param_split_kind {
    SPLIT_NONE, /* every rank has all of it: copies on all ranks */
    SPLIT_ROWS,
    SPLIT_COLS /* equal blocks of columns */
} param_split_kind;

enum { PARAM_MAX_RUNS = 4 };

/* A run. Rows of a vector are its elements. */
typedef struct param_run {
    /* set by the caller: rows in the whole, and how many heads these are. heads 0: rows without
     * heads, which may be divided anywhere */
    int64_t all, heads;
    /* set by param_split_place */
    int64_t first, n; /* this rank's rows, counted in the whole */
    int copies;       /* how many ranks have these same rows */
    bool counted;     /* this rank is the first of them */
    bool partial;     /* each of them computes a summand of the gradient */
} param_run;

typedef struct param_split {
    /* set by the caller */
    param_split_kind kind;
    bool per_head; /* with SPLIT_NONE: each rank uses the parameter for its own heads only (the norm
                      of a head), or for its part of experts, so the gradient is partial */
    param_run run[PARAM_MAX_RUNS];
    int runs;
    /* set by param_split_place */
    int64_t rows, cols; /* of the whole */
    int64_t col0;       /* with SPLIT_COLS: this rank's first column */
} param_split;

/* ---- saying how (model/declare.c) ---- */

/* By rows: one run of `all` rows, which are those of `heads` heads; 0: rows without heads. */
param_split param_split_rows(int64_t all, int64_t heads);
/* Adds a run behind those of s. */
void param_split_append(param_split *s, int64_t all, int64_t heads);
param_split param_split_cols(void);

/* Whether `ranks` ranks can share a run. With heads: every rank gets the same number of heads, or
 * every head goes to the same number of ranks. Without heads: every rank gets at least one row. */
bool param_run_divides(int64_t all, int64_t heads, int ranks);

/* ---- what this rank then has (param_add) ---- */

/* Fills in what this rank has of a parameter of *rows x *cols; `rank` is the parameter's: 2 or 1.
 * *rows and *cols become those of the part. */
void param_split_place(param_split *s, const param_ranks *r, int rank, int64_t *rows,
                       int64_t *cols);

#endif
