/* How tensor-parallel ranks share a parameter: by rows, by columns, or not at all.
 *
 * A product whose outputs are shared out has rows of its matrix (and elements of its bias) on each
 * rank, one whose inputs are has columns. q|k|v stored as one tensor is three runs of rows, of each
 * of which a rank has some. A head is never cut: where there are fewer key heads than ranks,
 * several successive ranks hold the same one. What several ranks hold counts once, on the first of
 * them. */
#ifndef PARAM_SPLIT_H
#define PARAM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct param_ranks {
    int n, rank;            /* tensor-parallel ranks, and which this is */
    bool sequence_parallel; /* between products a rank has some of the rows of a batch */
} param_ranks;

typedef enum param_split_kind {
    SPLIT_NONE, /* every rank holds all */
    SPLIT_ROWS,
    SPLIT_COLS
} param_split_kind;

enum { PARAM_MAX_RUNS = 3 };

/* Successive rows of the whole; of a vector: elements. */
typedef struct param_run {
    /* declared: of the whole, and how many equal things of them are never cut (heads; 0: single
     * rows) */
    int64_t all, heads;
    int64_t first, n; /* this rank's, as rows of the whole */
    int copies;       /* so many successive ranks hold these rows */
    bool counted;     /* this is the first of them */
    bool partial;     /* what they have as gradient is to be summed over them */
} param_run;

typedef struct param_split {
    param_split_kind kind;
    bool per_head; /* declared, of SPLIT_NONE: each rank uses it for its own heads only */
    param_run run[PARAM_MAX_RUNS];
    int runs;
    /* made by param_split_place: of the whole, and the first column here */
    int64_t rows, cols, col0;
} param_split;

/* Rows `all` of one run, made of `heads` heads; 0: of single rows. */
param_split param_split_rows(int64_t all, int64_t heads);
/* Another run behind those of s. */
void param_split_append(param_split *s, int64_t all, int64_t heads);
param_split param_split_cols(void);

/* Whether a run can be shared out: each rank gets as many heads as any other, or one head that
 * others have too; single rows need at least one each. */
bool param_run_divides(int64_t all, int64_t heads, int ranks);

/* Fills in what of a parameter of rows x cols (rank 1: one row) this rank has, and makes rows and
 * cols those. */
void param_split_place(param_split *s, const param_ranks *r, int rank, int64_t *rows,
                       int64_t *cols);

#endif
