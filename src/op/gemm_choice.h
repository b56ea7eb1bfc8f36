/* Matrix products for which `athanor bench gemm --remember` has measured which implementation is faster
 * on this machine. They are kept in the file of the machine (machine.h). Nothing is measured during
 * training, so that a run gives the same bits whatever else the machine was doing when it started. */
#ifndef OP_GEMM_CHOICE_H
#define OP_GEMM_CHOICE_H

#include <jansson.h>

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

/* Adds the choice or replaces the one of the same product. Of 4096 the oldest goes. */
void gemm_choices_put(gemm_choices *c, const gemm_choice *item);
/* NULL: this product was never measured. */
const gemm_choice *gemm_choices_find(const gemm_choices *c, const gemm_args *g);
void gemm_choices_free(gemm_choices *c);

/* From now on products on this device are computed as the policy says: where it is GEMM_REMEMBERED as
 * the rule does, and those of the list as they say. Called before the first product. Not where
 * gemm_use_own was called. */
void gemm_use(dev *d, gemm_policy policy, const gemm_rule *rule, const gemm_choices *products);

/* [{m, n, k, a_trans, b_trans, dt, c_dt, implementation, own_gflops, onednn_gflops}] */
json_t *gemm_choices_json(const gemm_choices *c);
/* Adds those of such a list. ST_FORMAT: it is not one; the message begins with `path`. */
status gemm_choices_from_json(gemm_choices *c, const json_t *list, const char *path,
                              err *e) ATH_MUST_USE;

#endif
