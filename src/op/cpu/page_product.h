/* The products of attention over pages: C [lines, columns] (+)= A B, a few lines of A at a time against vectors of B as
 * they lie in a cache, f32, f16 or bf16. A is packed floats; where the machine multiplies pairs of bf16, pairs, and two rows
 * of B become pairs as they are read.
 *
 * Each number of C is one chain of multiply-adds over the rows of B, in their order. So its bits do not depend on what is
 * computed beside it. */
#ifndef OP_CPU_PAGE_PRODUCT_H
#define OP_CPU_PAGE_PRODUCT_H

#include "op/cpu/pack.h"
#include "op/cpu/rows.h"

/* Lines at a time at most, and vectors beside them: accumulators and operands fill the registers.
 * Keys at a time, and the floats from a line of their scores to the next. */
#if V_AVX512
enum { PAGE_LINES = 8 };
#else
enum { PAGE_LINES = 4 };
#endif
enum { PAGE_VECTORS = 4, PAGE_KEYS = 128, PAGE_LINE = PAGE_KEYS + VW };

/* Vectors at a time beside n lines and what follows them. */
V_INLINE int page_vectors(int64_t n) {
    return n > (V_AVX512 ? 4 : 2) ? PAGE_VECTORS / 2 : PAGE_VECTORS;
}
/* Of n lines, how many the next product takes: as many as there is one for. */
V_INLINE int page_lines(int64_t n) {
    return n >= PAGE_LINES ? PAGE_LINES : n >= 4 ? 4 : (int)n;
}

/* Rows of B, `step` elements apart. A single row may be the second of its pair. */
typedef struct page_rows {
    const void *data;
    int64_t step, rows, unit; /* unit: of A, that the first row is multiplied with */
    bool second;
    const char
        *next; /* what will be read next in this place; asked for where few lines wait for memory */
} page_rows;

/* Many lines compute for so long that who calls asks for what comes next. */
V_INLINE void page_fetch(const char *at, int L) {
    if (L < PAGE_LINES) __builtin_prefetch(at, 0, 2);
}

#if V_DOT_BF16
/* n numbers of a row, or VW if there are more. */
V_INLINE __m256i page_row(const uint16_t *p, int64_t n) {
    if (n >= VW) return _mm256_loadu_si256((const void *)p);
    return _mm256_maskz_loadu_epi16(v_first_lanes(n), p);
}

/* A vector of pairs: a number of the first row and one of the second. */
V_INLINE vf page_pair(__m256i first, __m256i second) {
    static const uint16_t order[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    return (vf)_mm512_permutex2var_epi16(_mm512_castsi256_si512(first), _mm512_loadu_si512(order),
                                         _mm512_castsi256_si512(second));
}
#endif

/* Units of A that so many rows of B meet. */
V_INLINE int64_t page_units(int64_t rows) {
    return pack_units(rows, V_DOT_BF16);
}

/* acc[l][w] += a[l, u] b[w][u, :], a unit of A with one or two rows of B. */
V_INLINE void page_add_unit(vf acc[][PAGE_VECTORS], const float *a, int64_t lda, const vf *b, int L,
                            int W) {
#pragma GCC unroll 8
    for (int l = 0; l < L; l++)
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) acc[l][w] = pack_multiply_add(a[l * lda], b[w], acc[l][w]);
}

/* The rows of r, from the places at[w] elements behind its beginning. n: lanes of a single vector. */
V_INLINE void page_add_rows(vf acc[][PAGE_VECTORS], const float *a, int64_t lda, const page_rows *r,
                            const int64_t *at, int64_t n, int L, int W, dtype dt) {
    vf b[PAGE_VECTORS];
    a += r->unit;
#if V_DOT_BF16
    const uint16_t *data = r->data;
    (void)dt;
    for (int64_t j = 0; j + 1 < r->rows; j += 2, a++, data += 2 * r->step) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) {
            b[w] =
                v_keep(page_pair(page_row(data + at[w], n), page_row(data + r->step + at[w], n)));
            page_fetch(r->next + 2 * (j * r->step + at[w]), L);
            page_fetch(r->next + 2 * ((j + 1) * r->step + at[w]), L);
        }
        page_add_unit(acc, a, lda, b, L, W);
    }
    if (r->rows % 2 == 0) return;
#pragma GCC unroll 4
    for (int w = 0; w < W; w++) {
        __m256i row = page_row(data + at[w], n), none = _mm256_setzero_si256();
        b[w] = r->second ? page_pair(none, row) : page_pair(row, none);
    }
    page_add_unit(acc, a, lda, b, L, W);
#else
    for (int64_t j = 0, row = 0; j < r->rows; j++, a++, row += r->step) {
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) {
            b[w] = v_keep(get_upto(r->data, row + at[w], n, dt));
            page_fetch(r->next + (row + at[w]) * v_element_bytes(dt), L);
        }
        page_add_unit(acc, a, lda, b, L, W);
    }
#endif
}

/* A product of lines: A and C are scores, or a line of theirs is ld units or floats behind another; B is of type dt.
 * n: lanes of a single vector. */
typedef struct page_product {
    const float *a;
    float *c;
    int64_t ld, n;
    dtype dt;
} page_product;

V_INLINE void page_scores_of(const page_product *p, const page_rows *r, const int64_t *at,
                             const int16_t *to, int64_t vectors, int64_t n, int L, int W,
                             dtype dt) {
    for (int64_t v = 0; v < vectors; v += W, at += W, to += W) {
        vf acc[PAGE_LINES][PAGE_VECTORS] = {{{0}}};
        page_add_rows(acc, p->a, p->ld, r, at, n, L, W, dt);
#pragma GCC unroll 8
        for (int l = 0; l < L; l++)
#pragma GCC unroll 4
            for (int w = 0; w < W; w++) v_store(p->c + l * PAGE_LINE + to[w], acc[l][w]);
    }
}

V_INLINE void page_mix_of(const page_product *p, const page_rows *r, int64_t pieces, int64_t d,
                          int64_t end, int64_t n, int L, int W, dtype dt) {
    for (; d < end; d += W * VW) {
        vf acc[PAGE_LINES][PAGE_VECTORS];
        int64_t at[PAGE_VECTORS];
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) at[w] = d + w * VW;
#pragma GCC unroll 8
        for (int l = 0; l < L; l++)
#pragma GCC unroll 4
            for (int w = 0; w < W; w++) acc[l][w] = v_load(p->c + l * p->ld + at[w]);
        for (int64_t i = 0; i < pieces; i++)
            page_add_rows(acc, p->a, PAGE_LINE, r + i, at, n, L, W, dt);
#pragma GCC unroll 8
        for (int l = 0; l < L; l++)
#pragma GCC unroll 4
            for (int w = 0; w < W; w++) v_store(p->c + l * p->ld + at[w], acc[l][w]);
    }
}

/* Calls f(p, ..., n, L, W, dt) with constants in the last places. */
#define PAGE_WITH_LINES(f, p, ...)                                                                 \
    switch (L) {                                                                                   \
        case 1: PAGE_WITH_VECTORS(f, p, 1, __VA_ARGS__); break;                                    \
        case 2: PAGE_WITH_VECTORS(f, p, 2, __VA_ARGS__); break;                                    \
        case 3: PAGE_WITH_VECTORS(f, p, 3, __VA_ARGS__); break;                                    \
        case 4: PAGE_WITH_VECTORS(f, p, 4, __VA_ARGS__); break;                                    \
        default: PAGE_WITH_TWO(f, p, PAGE_LINES, __VA_ARGS__); break;                              \
    }
#define PAGE_WITH_VECTORS(f, p, L, ...)                                                            \
    if (W == PAGE_VECTORS)                                                                         \
        PAGE_WITH_TYPE(f, p, VW, L, PAGE_VECTORS, __VA_ARGS__);                                    \
    else                                                                                           \
        PAGE_WITH_TWO(f, p, L, __VA_ARGS__)
#define PAGE_WITH_TWO(f, p, L, ...)                                                                \
    if (W == 2)                                                                                    \
        PAGE_WITH_TYPE(f, p, VW, L, 2, __VA_ARGS__);                                               \
    else                                                                                           \
        PAGE_WITH_TYPE(f, p, (p)->n, L, 1, __VA_ARGS__)
#define PAGE_WITH_TYPE(f, p, n, L, W, ...) WITH_DTYPE((p)->dt, f, p, __VA_ARGS__, n, L, W)

/* C = A B for vectors of columns at places at[v], which go to to[v]: scores of keys; W at a time, of which their
 * number is a multiple: 1, 2 or PAGE_VECTORS. L is of page_lines. A function of its own, so that nothing else
 * competes for registers. */
__attribute__((noinline, unused)) static void page_scores(const page_product *p, const page_rows *r,
                                                          const int64_t *at, const int16_t *to,
                                                          int64_t vectors, int L, int W) {
    PAGE_WITH_LINES(page_scores_of, p, r, at, to, vectors)
}

/* C += A B for columns [d, end), W vectors at a time, where B is in pieces: values. */
__attribute__((noinline, unused)) static void page_mix(const page_product *p, const page_rows *r,
                                                       int64_t pieces, int64_t d, int64_t end,
                                                       int L, int W) {
    PAGE_WITH_LINES(page_mix_of, p, r, pieces, d, end)
}

#endif
