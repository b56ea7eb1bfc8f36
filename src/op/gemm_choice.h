/* Which implementation computes a matrix product on this machine: what `athanor bench gemm
 * --remember` has measured. Nothing is measured during training, so that a run gives the same bits
 * whatever else the machine was doing when it started.
 *
 * The file is JSON: {"machine", "isa", "threads", "products": [{m, n, k, a_trans, b_trans, dt,
 * c_dt, implementation, own_gflops, onednn_gflops}]}. A file of another machine, instruction set or
 * number of threads counts as empty. */
#ifndef OP_GEMM_CHOICE_H
#define OP_GEMM_CHOICE_H

#include "op/gemm.h"

typedef struct gemm_choice {
    int64_t m, n, k;
    bool a_trans, b_trans;
    dtype ab_dt, c_dt;
    gemm_impl impl;
    double gflops[GEMM_IMPLS]; /* as measured; 0: no such product */
} gemm_choice;

typedef struct gemm_choices {
    gemm_choice *item;
    int n, cap;
} gemm_choices;

/* The faster implementation; but the other one only if it is at least 3 % faster than the own one,
 * whose bits do not depend on the number of threads. */
gemm_impl gemm_choice_faster(const double gflops[GEMM_IMPLS]);

/* ATHANOR_GEMM_FILE, else athanor/gemm.json in XDG_CACHE_HOME or ~/.cache; false: there is no home.
 */
bool gemm_choices_path(char *out, size_t bytes);
/* ST_OK with no items when there is no file, or one of another machine; ST_FORMAT for a damaged
 * one. */
status gemm_choices_read(gemm_choices *c, const dev *d, const char *path, err *e) ATH_MUST_USE;
status gemm_choices_write(const gemm_choices *c, const dev *d, const char *path,
                          err *e) ATH_MUST_USE;
/* Adds the choice or replaces the one of the same product. */
void gemm_choices_put(gemm_choices *c, const gemm_choice *item);
/* NULL: this product was never measured. */
const gemm_choice *gemm_choices_find(const gemm_choices *c, const gemm_args *g);
void gemm_choices_free(gemm_choices *c);

#endif
