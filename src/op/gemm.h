/* Matrix products: C = A B (+ bias) (+ C or a residual), in f32, bf16 or f16 storage with
 * f32 accumulation.
 *
 * Two implementations: own packed kernels (op/cpu/gemm_tile.c, with AMX gemm_amx.c), one per instruction set, and oneDNN
 * (op/gemm_onednn.c); gemm.c chooses by what was measured (machine.h). The own kernels compute
 * every element of C as one chain of multiply-adds in the order of k, cut only at multiples of a
 * fixed block, so the bits do not depend on the number of threads. All four layouts cost the same
 * where both operands are packed, which A is not where C has few columns (gemm_tile.c). bf16 operands stay bf16 if the machine can multiply bf16;
 * otherwise packing widens them, as it does f16. For one or two rows of A, B is not packed (op/cpu/gemv.c). */
#ifndef OP_GEMM_H
#define OP_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "dev/dev.h"

typedef struct gemm_args {
    int64_t m, n, k;
    const void *a, *b; /* A [m,k], or [k,m] when a_trans; B [k,n], or [n,k] when b_trans */
    int64_t lda, ldb;
    bool a_trans, b_trans;
    dtype ab_dt; /* f32, bf16 or f16, both operands */
    /* How B is stored, if not as ab_dt says: f16, bf16 or blocks, in a product of f32. DT_F32: as ab_dt says. Only the own kernels read other formats, not gemm_run. */
    dtype b_stored;
    void *c; /* C [m,n], f32 or as ab_dt says */
    int64_t ldc;
    dtype c_dt;
    const float *bias; /* [n], or NULL */
    const void *res;   /* [m,n] like C, added to the product; NULL for none */
    int64_t ldr;
    bool accumulate; /* add to C; then there is no res */
} gemm_args;

/* Workspace for such a call on this device, which may be meta. Of its args sizes, transposition and formats count. */
int64_t gemm_ws_bytes(dev *d, const gemm_args *g);
/* ws: of that size, 64-byte aligned. */
void gemm_run(dev *d, const gemm_args *g, void *ws);

typedef enum gemm_impl { GEMM_OWN, GEMM_ONEDNN, GEMM_IMPLS } gemm_impl;
const char *gemm_impl_name(gemm_impl impl);

/* The three layouts of a linear layer, with operands as they lie in memory. */
typedef enum gemm_layout {
    GEMM_FORWARD,         /* y = x w^T */
    GEMM_BACKWARD_INPUT,  /* dx = dy w */
    GEMM_BACKWARD_WEIGHT, /* dw += dy^T x, in f32 */
    GEMM_LAYOUTS
} gemm_layout;
const char *gemm_layout_name(gemm_layout layout);
/* C [m,n] with operands of one format, which lie so; C of weights is f32. Matrices are whole: ld is what they have in a row. */
static inline gemm_args gemm_args_of(gemm_layout which, int64_t m, int64_t n, int64_t k, dtype dt) {
    bool weight = which == GEMM_BACKWARD_WEIGHT, forward = which == GEMM_FORWARD;
    return (gemm_args){.m = m,
                       .n = n,
                       .k = k,
                       .a_trans = weight,
                       .lda = weight ? m : k,
                       .b_trans = forward,
                       .ldb = forward ? k : n,
                       .ab_dt = dt,
                       .c_dt = weight ? DT_F32 : dt,
                       .ldc = n,
                       .accumulate = weight};
}

/* Which implementation computes products by their layout: the probe's choice (machine.h). Smaller
 * products than GEMM_RULE_LEAST (m * n * k) are our own: there it is threads that decide, and the
 * probe measures on one. */
enum { GEMM_RULE_LEAST = 1 << 25 };
typedef struct gemm_rule {
    gemm_impl of[2][GEMM_LAYOUTS]; /* [operands are bf16][layout] */
} gemm_rule;

/* How implementations are chosen on this device: ATHANOR_GEMM=own|onednn says so for all products;
 * otherwise a product of its own that was remembered decides, else the rule. */
typedef enum gemm_policy {
    GEMM_REMEMBERED,
    GEMM_ALL_OWN,
    GEMM_ALL_ONEDNN,
    GEMM_POLICIES
} gemm_policy;
typedef struct gemm_setting {
    gemm_policy policy;
    gemm_rule rule; /* own everywhere unless GEMM_REMEMBERED */
    int by_onednn;  /* products of their own that were remembered for oneDNN */
} gemm_setting;
gemm_setting gemm_get_setting(dev *d);
/* What ATHANOR_GEMM says; GEMM_REMEMBERED where it says nothing, or a word that there is not (ST_USAGE). */
status gemm_asked(gemm_policy *out, err *e) ATH_MUST_USE;
const char *gemm_policy_name(gemm_policy policy); /* its word in ATHANOR_GEMM: "remembered" */
bool gemm_find_policy(const char *name, gemm_policy *out); /* false: there is none of that name */
/* From now on the own kernels compute every product on this device, whatever was measured: the bits
 * are the same with any number of threads. On a CUDA device: cuda_product_use_first. */
void gemm_use_own(dev *d);

/* While `on`, our own kernels compute every product of which their bits are wanted, whatever was
 * measured; afterwards that holds again. Not what ATHANOR_GEMM has given to oneDNN. */
void gemm_hold_own(dev *d, bool on);

/* Runs one implementation, to measure it. False, and nothing was done: it has no such product, or
 * needs more workspace. */
bool gemm_run_with(dev *d, gemm_impl impl, const gemm_args *g, void *ws);

#endif
