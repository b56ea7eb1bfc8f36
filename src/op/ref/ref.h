/* What every reference kernel shares. Each file of this folder is compiled once per storage format:
 *
 *   STORE  a stored activation or matrix element: float, bf16, f16 or double
 *   REAL   elementwise arithmetic, and storage of norm weights, biases, statistics and parameter
 *          gradients: float, or double for f64
 *   ACC    every sum: double, added in index order, rounded once when it is stored
 *
 * Loops are parallel only over results: each result is summed by one thread in a fixed order, so
 * the bits do not depend on the number of threads. */
#ifndef OP_REF_REF_H
#define OP_REF_REF_H

#include <math.h>

#include "op/op.h"

#define REF_CAT_(a, b, c) a##b##_##c
#define REF_CAT(a, b, c) REF_CAT_(a, b, c)
/* The symbol of an op's kernels in this variant: op_ref_LINEAR_bf16. */
#define REF_IMPL(ID) REF_CAT(op_ref_, ID, KERNEL_SUFFIX)

typedef double ACC;

#if REF_F64
typedef double STORE;
typedef double REAL;
#define REF_FN(name) name
static inline REAL load(STORE s) {
    return s;
}
static inline STORE store(ACC r) {
    return r;
}
#else
typedef float REAL;
#define REF_FN(name) name##f
#if REF_F32
typedef float STORE;
static inline REAL load(STORE s) {
    return s;
}
static inline STORE store(ACC r) {
    return (STORE)r;
}
#elif REF_BF16
typedef uint16_t STORE;
static inline REAL load(STORE s) {
    return bf16_to_f32(s);
}
static inline STORE store(ACC r) {
    return f32_to_bf16((float)r);
}
#elif REF_F16
typedef uint16_t STORE;
static inline REAL load(STORE s) {
    return f16_to_f32(s);
}
static inline STORE store(ACC r) {
    return f32_to_f16((float)r);
}
#endif
#endif

static inline REAL r_exp(REAL x) {
    return REF_FN(exp)(x);
}
static inline REAL r_log(REAL x) {
    return REF_FN(log)(x);
}
static inline REAL r_tanh(REAL x) {
    return REF_FN(tanh)(x);
}
static inline REAL r_erf(REAL x) {
    return REF_FN(erf)(x);
}

/* The call, `c`, must be in scope. */
#define PARALLEL_FOR _Pragma("omp parallel for schedule(static) num_threads(ref_threads(c))")
#define PARALLEL_FOR_2                                                                             \
    _Pragma("omp parallel for schedule(static) num_threads(ref_threads(c)) collapse(2)")
#define PARALLEL_FOR_3                                                                             \
    _Pragma("omp parallel for schedule(static) num_threads(ref_threads(c)) collapse(3)")

static inline int ref_threads(const op_call *c) {
    return dev_threads(c->run->dev);
}

static inline STORE *row_of(const tensor *t, int64_t n) {
    return (STORE *)t->data + n * t->ld;
}
static inline REAL *real_row_of(const tensor *t, int64_t n) {
    return (REAL *)t->data + n * t->ld;
}
static inline int32_t int_at(const tensor *t, int64_t n) {
    return ((int32_t *)t->data)[n * t->ld];
}

/* Writes a gradient of an activation, or adds to it. */
static inline void put(STORE *p, ACC v, bool add) {
    *p = store(add ? (ACC)load(*p) + v : v);
}
/* The same for the gradient of a parameter. */
static inline void put_real(REAL *p, ACC v, bool add) {
    *p = (REAL)(add ? (ACC)*p + v : v);
}

/* Columns that are summed together in local memory. */
enum { BLOCK = 64 };
static inline int64_t blocks_of(int64_t n) {
    return (n + BLOCK - 1) / BLOCK;
}
static inline int64_t block_len(int64_t n, int64_t first) {
    return n - first < BLOCK ? n - first : BLOCK;
}

/* sum_i a[i] * b[i], in eight interleaved sums. */
static inline ACC dot(const STORE *a, const STORE *b, int64_t n) {
    ACC s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += (ACC)load(a[i + k]) * (ACC)load(b[i + k]);
    for (; i < n; i++) s[i & 7] += (ACC)load(a[i]) * (ACC)load(b[i]);
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* acc[i] += s * row[i] */
static inline void axpy(ACC *acc, ACC s, const STORE *row, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] += s * (ACC)load(row[i]);
}
/* A block of one row of dx = dy w: acc[i] = sum_o dy[n,o] w[o,first+i], for i < len. */
static inline void sum_given(ACC *acc, const tensor *dy, const tensor *w, int64_t n, int64_t first,
                             int64_t len) {
    for (int64_t i = 0; i < len; i++) acc[i] = 0;
    for (int64_t o = 0; o < dy->cols; o++)
        axpy(acc, load(row_of(dy, n)[o]), row_of(w, o) + first, len);
}

/* sums[0,i] = sum_n dy[n,i]: the gradient of a bias. */
static inline void column_sums(const op_call *c, const tensor *dy, const tensor *sums, bool add) {
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(sums->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(sums->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t n = 0; n < dy->rows; n++) axpy(acc, 1, row_of(dy, n) + first, len);
        for (int64_t i = 0; i < len; i++) put_real(real_row_of(sums, 0) + first + i, acc[i], add);
    }
}

#endif
