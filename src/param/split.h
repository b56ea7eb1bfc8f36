/* How tensor-parallel ranks share a parameter: by rows, by columns, or not at all.
 *
 * Let y = x W^T. If the ranks share the outputs y, each has some rows of W and some elements of the
 * bias. If they share the inputs x, each has some columns of W. All other parameters are whole on
 * every rank.
 *
 * Rows come in runs. A run is a stretch of rows of the whole that is shared out by itself: one for
 * most parameters, three for q|k|v stored as one tensor. Rows of a head stay together. With fewer
 * heads than ranks, several ranks that follow each other hold copies of the same head.
 *
 * Example: 4 query heads and 2 key heads on 4 ranks, in one tensor.
 *
 *   rows of the whole    q0 q1 q2 q3 | k0 k1 | v0 v1      three runs
 *   rank 0 has           q0          | k0    | v0         copies = 2 in the runs of k and v
 *   rank 1 has              q1       | k0    | v0
 *   rank 2 has                 q2    |    k1 |    v1
 *   rank 3 has                    q3 |    k1 |    v1
 *
 * Of copies, the first rank counts: ranks 0 and 2 add k0 and k1 to digests and norms, 1 and 3 do
 * not. If each of the copies gives only a summand of the gradient (k0 on rank 0 is used with q0, on
 * rank 1 with q1), the gradient is called partial, and is summed over these ranks. */
#ifndef PARAM_SPLIT_H
#define PARAM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct param_ranks {
    int n, rank; /* how many tensor-parallel ranks, and which of them this is */
    bool
        sequence_parallel; /* between products each rank has some tokens of the micro-batch, so what
                               is whole on all ranks has a partial gradient */
} param_ranks;

typedef enum param_split_kind {
    SPLIT_NONE, /* every rank has all of it: copies on all ranks */
    SPLIT_ROWS,
    SPLIT_COLS /* equal blocks of columns */
} param_split_kind;

enum { PARAM_MAX_RUNS = 3 };

/* A run. Rows of a vector are its elements. */
typedef struct param_run {
    /* said: rows in the whole, and how many heads they are; 0: rows that may be parted anywhere */
    int64_t all, heads;
    /* made by param_split_place */
    int64_t first, n; /* this rank's rows, counted in the whole */
    int copies;       /* so many ranks have these rows */
    bool counted;     /* this rank is the first of them */
    bool partial;
} param_run;

typedef struct param_split {
    /* said */
    param_split_kind kind;
    bool per_head; /* of SPLIT_NONE: each rank uses it for its own heads only (the norm of a head),
                      so its gradient is partial */
    param_run run[PARAM_MAX_RUNS];
    int runs;
    /* made by param_split_place */
    int64_t rows, cols; /* of the whole */
    int64_t col0;       /* of SPLIT_COLS: this rank's first column */
} param_split;

/* ---- saying how (model/declare.c) ---- */

/* By rows: one run of `all` rows, which are `heads` heads, or 0. */
param_split param_split_rows(int64_t all, int64_t heads);
/* Another run behind those of s. */
void param_split_append(param_split *s, int64_t all, int64_t heads);
param_split param_split_cols(void);

/* Whether `ranks` ranks can share a run: heads divide evenly, or each head goes to equally many
 * ranks; of rows without heads each rank gets one at least. */
bool param_run_divides(int64_t all, int64_t heads, int ranks);

/* ---- what follows from it (param_add) ---- */

/* Fills in what this rank has of a parameter of *rows x *cols; `rank` is the parameter's: 2 or 1.
 * *rows and *cols become those of the part. */
void param_split_place(param_split *s, const param_ranks *r, int rank, int64_t *rows,
                       int64_t *cols);

#endif
