/* 4-bit NormalFloat with double quantisation (QLoRA, Dettmers et al. 2023, section 3): the format of frozen matrices
 * beside which adapters are trained (DT_NF4).
 *
 *   x = level[q] * absmax       level: 16 quantiles of a normal distribution, -1 to 1; absmax: of 64 successive elements
 *   absmax = map[s] * nested + mean          map: 256 numbers of 8 bits, -1 to 1; nested: of 256 successive absmax
 *
 * So a weight takes 4 + 8/64 + 32/(64 * 256) = 4.127 bits. Levels, map and blocks are those of bitsandbytes, and what is
 * read is equal to what it reads, bit for bit. Blocks go on from row to row, so rows are multiples of 64.
 *
 * A matrix is one piece of memory that may stand anywhere at a multiple of 64:
 *
 *   nf4_matrix | int32 row[rows] | float nested[] | uint8 scale[] | uint8 bits[rows * cols / 2]
 *
 * The tensor's data is row[], where row[r] is r: kernels go from row to row, and find the beginning from any of them. Of 32
 * elements the first 16 are the low halves of 16 bytes, the others the high halves, as in Q4_0. */
#ifndef BASE_NF4_H
#define BASE_NF4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/nf4_tables.h"

enum { NF4_BLOCK = 64, NF4_NESTED = 256, NF4_ALIGN = 64 };

typedef struct nf4_matrix {
    int64_t rows, cols;
    int64_t nested_at, scale_at, bits_at; /* in bytes from here */
    float mean;
    int32_t unused[5];
} nf4_matrix;

#ifndef __CUDACC__
static const float NF4_LEVEL[16] = {NF4_LEVELS};
static const float NF4_MAP[256] = {NF4_MAP_VALUES};

/* Bytes of the whole, a multiple of NF4_ALIGN; what the row numbers and the header take is in them. */
int64_t nf4_bytes(int64_t rows, int64_t cols);

/* To quantise: nf4_begin, nf4_put_rows for rows in any order, nf4_finish. largest: [rows * cols / 64] floats of the caller.
 * false: a weight is no finite number. */
void nf4_begin(nf4_matrix *m, int64_t rows, int64_t cols);
bool nf4_put_rows(nf4_matrix *m, int64_t first, int64_t n, const float *x, float *largest);
void nf4_finish(nf4_matrix *m, const float *largest);

static inline void *nf4_rows(nf4_matrix *m) {
    return m + 1;
}

static inline const nf4_matrix *nf4_of_row(const void *row) {
    return (const nf4_matrix *)(const void *)((const int32_t *)row - *(const int32_t *)row) - 1;
}

/* Where the bits of a row begin. */
static inline const uint8_t *nf4_bits(const void *row) {
    const nf4_matrix *m = nf4_of_row(row);
    return (const uint8_t *)m + m->bits_at + *(const int32_t *)row * (m->cols / 2);
}

/* The absmax of the block at element k of a row. */
static inline float nf4_absmax(const void *row, int64_t k) {
    const nf4_matrix *m = nf4_of_row(row);
    const uint8_t *at = (const uint8_t *)m;
    int64_t block = (*(const int32_t *)row * m->cols + k) / NF4_BLOCK;
    const float *nested = (const float *)(const void *)(at + m->nested_at);
    return NF4_MAP[at[m->scale_at + block]] * nested[block / NF4_NESTED] + m->mean;
}

/* Elements [first, first + n). */
static inline void nf4_row_read(const void *row, int64_t first, int64_t n, float *dst) {
    const uint8_t *bits = nf4_bits(row);
    for (int64_t i = first; i < first + n; i++) {
        uint8_t both = bits[i / 32 * 16 + i % 16];
        *dst++ = NF4_LEVEL[i % 32 < 16 ? both & 15 : both >> 4] * nf4_absmax(row, i);
    }
}
#endif

#endif
