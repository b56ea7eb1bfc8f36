/* 8-bit floats with 4 bits of exponent and 3 of mantissa (OCP 8-bit Floating Point, E4M3, no infinities), and matrices of them
 * that stay where a file has them (DT_FP8). A number is element times factor, rounded to float; one factor is for all elements,
 * for a row, or for a block.
 *
 * In memory such a matrix is a list of its rows, so that kernels, which go from row to row, need not know how factors lie. */
#ifndef BASE_FP8_H
#define BASE_FP8_H

#include <math.h>
#include <stdint.h>

typedef struct fp8_row {
    const uint8_t *bits;
    const float *factor; /* of elements 0 .. 2^shift - 1, of those behind them, ... */
    int64_t shift;       /* at least FP8_LEAST_SHIFT; FP8_WHOLE: there is one factor */
} fp8_row;

enum { FP8_LEAST_SHIFT = 5, FP8_WHOLE = 62 };

static inline float fp8_e4m3(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float x = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : (float)mantissa * 0x1p-9f;
    if ((bits & 0x7f) == 0x7f) x = (float)NAN;
    return bits & 0x80 ? -x : x;
}

/* Elements [first, first + n). */
static inline void fp8_row_read(const fp8_row *row, int64_t first, int64_t n, float *dst) {
    for (int64_t i = first; i < first + n; i++)
        *dst++ = fp8_e4m3(row->bits[i]) * row->factor[i >> row->shift];
}

#endif
