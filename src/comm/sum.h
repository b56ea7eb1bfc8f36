/* Sums of rows in a fixed order, so that a reduction gives the same bits on every rank.
 *
 * dst[i] = rows[0][i] + rows[1][i] + ... from left to right, in fp32 for bf16 and f16, which
 * are rounded once at the end. Each block of elements is read from all rows before dst is written, so dst may
 * be one of the rows. */
#ifndef COMM_SUM_H
#define COMM_SUM_H

#include "comm/comm.h"

typedef struct sum_row {
    const void *data;
    bool is_bf16; /* in an f32 sum: this row was sent as bf16 (comm_call.narrow) */
} sum_row;

typedef struct sum_rule {
    dtype dt; /* of dst, and of all rows that are not is_bf16 */
    comm_sum op;
    bool add;           /* dst += the sum */
    bool narrow_rows;   /* f32: rows that are f32 are rounded to bf16 as they are read */
    bool narrow_result; /* f32: the sum is rounded to bf16 before it is stored */
} sum_rule;

/* dt: f32, f64, bf16, f16, i32 or i64. */
void sum_rows(void *dst, const sum_row *rows, int n_rows, int64_t n, const sum_rule *rule);

/* Between f32 and bf16. */
void sum_narrow(uint16_t *dst, const float *src, int64_t n);
void sum_widen(float *dst, const uint16_t *src, int64_t n);

#endif
