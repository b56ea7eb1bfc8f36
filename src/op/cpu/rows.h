/* Rows of a tensor, a vector at a time; the last vector of a row may be partial. */
#ifndef OP_CPU_ROWS_H
#define OP_CPU_ROWS_H

#include "op/cpu/simd.h"
#include "op/op.h"

/* Calls f(..., dt) with a constant dt. Inside a parallel region what was constant around it is a
 * variable, so this stands inside of it, around the work of a row. */
#ifdef CPU_ONLY_BF16
#define WITH_DTYPE(dt, f, ...) ((void)(dt), f(__VA_ARGS__, DT_BF16))
#else
#define WITH_DTYPE(dt, f, ...)                                                                     \
    ((dt) == DT_F32    ? f(__VA_ARGS__, DT_F32)                                                    \
     : (dt) == DT_BF16 ? f(__VA_ARGS__, DT_BF16)                                                   \
                       : f(__VA_ARGS__, DT_F16))
#endif

/* for (j = 0, VW, 2 VW, ...) with n = elements left from j on. */
#define FOR_VECTORS(cols, j, n) for (int64_t j = 0, n = (cols); n > 0; j += VW, n -= VW)

V_INLINE vf get_upto(const void *p, int64_t i, int64_t n, dtype dt) {
    return n >= VW ? v_get(p, i, dt) : v_get_n(p, i, n, dt);
}
V_INLINE void put_upto(void *p, int64_t i, vf v, int64_t n, dtype dt) {
    if (n >= VW)
        v_put(p, i, v, dt);
    else
        v_put_n(p, i, v, n, dt);
}

/* How many rows before they are needed rows are asked for where only heads amid them are read. */
enum { ROWS_AHEAD = 2 };

/* Asks for a row before it is needed. The machine itself looks ahead only within a page, and rows
 * of activations are often a page long. */
V_INLINE void row_prefetch(const tensor *t, int64_t i) {
    if (!t->data || i >= t->rows) return;
    int64_t bytes = v_element_bytes(t->dt);
    const char *row = (const char *)t->data + i * t->ld * bytes;
    for (int64_t b = 0; b < t->cols * bytes; b += 64) __builtin_prefetch(row + b);
}

V_INLINE vf row_get(const tensor *t, int64_t i, int64_t j, int64_t n, dtype dt) {
    return get_upto(t->data, i * t->ld + j, n, dt);
}
/* Writes, or adds and rounds once. */
V_INLINE void row_put(const tensor *t, int64_t i, int64_t j, vf v, int64_t n, bool add, dtype dt) {
    if (add) v += row_get(t, i, j, n, dt);
    put_upto(t->data, i * t->ld + j, v, n, dt);
}

#endif
