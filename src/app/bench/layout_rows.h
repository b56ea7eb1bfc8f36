/* The rows of `athanor bench layouts`: a CSV file with the columns of published tables of throughput (docs/planning.md), which
 * `plan fit` and `plan validate` read. A row is one layout with what became of it.
 *
 * The file is written anew, and whole, after each row. Its last column is a digest of the config with the layout: a row that is
 * there is known by it, and is not run again. */
#ifndef APP_LAYOUT_ROWS_H
#define APP_LAYOUT_ROWS_H

#include "base/strbuf.h"
#include "plan/clock/search.h"

/* A layout of the config, with what its plan says. */
typedef struct layout_case {
    sketch_layout l;
    int ranks;
    int64_t batch;          /* sequences of a step */
    const char *const *key; /* [n_keys] "parallel.tp=2": what makes the config this layout */
    int n_keys;
    const char *name;  /* for people: "dp 2, ZeRO-1, micro-batch 4 x 2" */
    const char *model; /* its columns from `model` to `seq` */
    const char *extra; /* kv_heads, tied_emb */
    const char *precision;
    double planned_bytes;
    double
        predicted; /* tokens a second of all ranks, by the planner's clock; 0: for no known cluster */
    char too_large[192]; /* why it does not fit; "": it does */
    char digest[17];
} layout_case;

/* What became of it. */
typedef struct layout_outcome {
    const char *state; /* "ok", "oom", "timeout", "crash", "diverged" */
    char device[DEV_NAME_MAX], note[192];
    double step_s, tok_per_s, mfu, hfu, peak_bytes, peak_flops;
} layout_outcome;

typedef struct layout_rows {
    const char *path, *table; /* table: the config's name */
    strbuf text;
} layout_rows;

/* Reads what is there already. ST_USAGE: the file is another table. */
status layout_rows_open(layout_rows *r, const char *path, const char *table, err *e) ATH_MUST_USE;
bool layout_rows_have(const layout_rows *r, const layout_case *k);
status layout_rows_add(layout_rows *r, const layout_case *k, const layout_outcome *o,
                       err *e) ATH_MUST_USE;
/* Writes the file as it is: that it can be written is known before anything runs. */
status layout_rows_write(const layout_rows *r, err *e) ATH_MUST_USE;
void layout_rows_close(layout_rows *r);

/* The case of a plan: sizes, columns, prediction. The strings are the arena's. on: NULL: nothing is predicted. */
void layout_case_describe(layout_case *k, arena *a, const plan *p, const cluster *on);

#endif
