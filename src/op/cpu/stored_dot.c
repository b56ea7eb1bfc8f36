/* C = A B^T with B as a file stores it, in integers: for machines that multiply and add pairs of 16-bit numbers in one
 * instruction (AVX-512 VNNI), twice as many as floats. A row of A is rounded to 16 bits with a scale for each CHUNK of it: an element
 * moves by 2^-16 of the largest one of its chunk at most. Rounded weights differ from what was trained by far more (4 bits: 2^-4).
 *
 * A number of B is d q - m, with q whole, d and m those of its chunk; a number of A is s X. Then a chunk of a sum is
 * d s (sum of q X) - m s (sum of X). Both sums are exact, and chunks are added in order, so that a row of C depends on its own row of A
 * alone, to the bit, whatever the number of rows and threads.
 *
 * The lanes of a vector are LANES columns of C (rows of B), so nothing is summed over lanes. A group of chunks of these columns is made
 * 16-bit numbers once (decode), and stays in the first cache while tiles of rows pass over it (multiply).
 *
 * Formats whose numbers are put together of bits from several places (Q5, Q6) are faster in floats (by_row.c).
 *
 * In a chunk, pair p of numbers is (k, k + 2) with k = 4 (p / 2) + p % 2: so pairs come out of bytes by masks and shifts. */
#include "op/cpu/parts.h"
#include "op/cpu/stored.h"

#include <omp.h>

enum {
    LANES = 16,
    PAIRS = CHUNK / 2,
    GROUP = 8,
    TILE_ROWS = 8,
    WIDE = 2,
    FEW_ROWS = 4,
    BLOCK_ROWS = 64
};
/* Work that waking a thread costs: numbers of B times the rows that they are multiplied with; to decode a number takes as long as
 * some rows. */
enum { SMALL_WORK = 1 << 19, DECODING = 3 };
/* Elements of A up to which each thread rounds all of it for itself: less work than waiting. */
enum { OWN_A = 1 << 15 };

/* Chunks whose largest number is not above this count as zeros: the inverse of yet smaller ones is infinite. */
#define LEAST 1e-30f

/* A as 16-bit numbers. */
typedef struct rounded {
    int64_t m;
    int32_t *pairs;     /* [k/CHUNK][m][PAIRS]: rows of a tile lie together */
    float *scale, *sum; /* [k/CHUNK][m]: s, and s times the sum of X */
} rounded;

static int64_t rounded_bytes(int64_t m, int64_t k) {
    return m * k * (int64_t)sizeof(int16_t) + 2 * m * (k / CHUNK) * (int64_t)sizeof(float);
}

static rounded rounded_at(char *ws, int64_t m, int64_t k) {
    rounded a = {.m = m, .pairs = (int32_t *)(void *)ws};
    a.scale = (float *)(a.pairs + m * k / 2);
    a.sum = a.scale + m * (k / CHUNK);
    return a;
}

static void round_chunk(const float *x, int32_t *pairs, float *scale, float *sum) {
    static const int16_t ORDER[CHUNK] = {0,  2,  1,  3,  4,  6,  5,  7,  8,  10, 9,
                                         11, 12, 14, 13, 15, 16, 18, 17, 19, 20, 22,
                                         21, 23, 24, 26, 25, 27, 28, 30, 29, 31};
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    /* as integers, so that infinity and NaN count as the largest */
    __m512i bits = _mm512_max_epi32(_mm512_and_si512((__m512i)low, magnitude),
                                    _mm512_and_si512((__m512i)high, magnitude));
    int32_t most = _mm512_reduce_max_epi32(bits);
    float largest;
    memcpy(&largest, &most, sizeof largest);
    __m512 to = _mm512_set1_ps(largest > LEAST ? 32767.0f / largest : 0);
    __m512i a = _mm512_cvtps_epi32(low * to), b = _mm512_cvtps_epi32(high * to);
    __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtsepi32_epi16(a)),
                                       _mm512_cvtsepi32_epi16(b), 1);
    words = _mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER), words);
    _mm512_storeu_si512(pairs, words);
    *scale = largest * (1 / 32767.0f);
    *sum = *scale * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

static void round_row(const gemm_args *g, int64_t i, const rounded *a) {
    const float *x = (const float *)g->a + i * g->lda;
    for (int64_t c = 0, at = i; c < g->k / CHUNK; c++, at += a->m)
        round_chunk(x + c * CHUNK, a->pairs + at * PAIRS, a->scale + at, a->sum + at);
}

/* ---- decoding ---- */

/* A chunk of LANES columns. */
typedef struct chunk {
    __m512i pairs[PAIRS];
    __m512 d, m;
} chunk;

/* LANES rows of B: where they begin. The last one stands in for those that do not exist. */
typedef struct columns {
    const uint8_t *b;
    int64_t row_bytes;
    int64_t n; /* those that exist */
    int32_t at[LANES];
} columns;

/* 16 bytes of each column, from byte `at` on: out[j] has the j-th four of them of every column. */
V_INLINE void load_fours(const columns *c, int64_t at, __m512i out[4]) {
    __m512i v[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
        __m128i part[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            part[i] = _mm_loadu_si128((const void *)(c->b + c->at[4 * i + q] + at));
        __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1);
        __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(part[2]), part[3], 1);
        v[q] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    __m512i ab0 = _mm512_unpacklo_epi32(v[0], v[1]), cd0 = _mm512_unpacklo_epi32(v[2], v[3]);
    __m512i ab2 = _mm512_unpackhi_epi32(v[0], v[1]), cd2 = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm512_unpacklo_epi64(ab0, cd0), out[1] = _mm512_unpackhi_epi64(ab0, cd0);
    out[2] = _mm512_unpacklo_epi64(ab2, cd2), out[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

/* The pairs of 16 numbers of 4 bits, the low or the high half (shift 4) of each byte. */
V_INLINE void pairs_of_bits(const __m512i fours[4], int shift, __m512i pairs[8]) {
    const __m512i keep = _mm512_set1_epi32(15 << 16 | 15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        pairs[2 * j] = _mm512_and_si512(_mm512_srli_epi32(fours[j], shift), keep);
        pairs[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi32(fours[j], shift + 8), keep);
    }
}

/* The same of signed bytes. */
V_INLINE void pairs_of_signed(const __m512i fours[4], __m512i pairs[8]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        pairs[2 * j] = _mm512_srai_epi16(_mm512_slli_epi16(fours[j], 8), 8);
        pairs[2 * j + 1] = _mm512_srai_epi16(fours[j], 8);
    }
}

/* The first f16 of four bytes in each lane, and the second. */
V_INLINE __m512 first_f16(__m512i fours) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(fours));
}
V_INLINE __m512 second_f16(__m512i fours) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(fours, 16)));
}

/* Scales of a group of chunks: of each column, until they are read as lanes. What is written four bytes at a time is read
 * as a vector when all is written: sooner it would wait for memory. Gathering takes twice as long. */
typedef struct scales {
    int32_t head[GROUP][LANES]; /* the first four bytes of each block, where a chunk is one */
    float d[GROUP][LANES], m[GROUP][LANES];
} scales;

V_INLINE void load_heads(const columns *c, int64_t at, int64_t bytes, int n, scales *s) {
    for (int q = 0; q < n; q++)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            memcpy(&s->head[q][i], c->b + c->at[i] + at + q * bytes, sizeof(int32_t));
}

/* Those of a block of GROUP chunks. */
V_INLINE void open_blocks(const columns *c, int64_t at, scales *s, dtype dt) {
    for (int i = 0; i < LANES; i++) {
        stored_scales one;
        stored_open(&one, c->b + c->at[i] + at, dt);
        for (int q = 0; q < GROUP; q++) s->d[q][i] = one.d[q], s->m[q][i] = one.m[q];
    }
}

/* `n` chunks from c0 on, which is a multiple of GROUP: their scales, then one after the other. */
V_INLINE void open_group(const columns *c, int64_t c0, int n, scales *s, dtype dt) {
    int64_t bytes = stored_block_bytes(dt);
    if (dt == DT_Q4_K)
        open_blocks(c, c0 / GROUP * bytes, s, dt);
    else
        load_heads(c, c0 * bytes, bytes, n, s);
}

V_INLINE void decode_chunk(const columns *c, int64_t c0, int q, const scales *s, chunk *to,
                           dtype dt) {
    int64_t bytes = stored_block_bytes(dt), at = (c0 + q) * bytes;
    __m512i fours[4];
    if (dt == DT_Q4_K) {
        const quant_q4_k *block = NULL;
        at = c0 / GROUP * bytes + (int64_t)sizeof(*block) - (int64_t)sizeof(block->qs) +
             32 * (q / 2);
        load_fours(c, at, fours);
        pairs_of_bits(fours, 4 * (q & 1), to->pairs);
        load_fours(c, at + 16, fours);
        pairs_of_bits(fours, 4 * (q & 1), to->pairs + 8);
        to->d = _mm512_loadu_ps(s->d[q]), to->m = _mm512_loadu_ps(s->m[q]);
        return;
    }
    __m512i heads = _mm512_loadu_si512(s->head[q]);
    to->d = first_f16(heads);
    if (dt == DT_Q8_0) {
        load_fours(c, at + 2, fours);
        pairs_of_signed(fours, to->pairs);
        load_fours(c, at + 18, fours);
        pairs_of_signed(fours, to->pairs + 8);
        to->m = _mm512_setzero_ps();
        return;
    }
    load_fours(c, at + (dt == DT_Q4_0 ? 2 : 4), fours);
    pairs_of_bits(fours, 0, to->pairs);
    pairs_of_bits(fours, 4, to->pairs + 8);
    if (dt == DT_Q4_0)
        to->m = to->d * 8;
    else
        to->m = -second_f16(heads);
}

/* ---- multiplying ---- */

/* Adds chunk c of rows [i, i + rows) to their sums; b is that chunk of `wide` times LANES columns, GROUP apart. A number of A is
 * read once for all these columns. */
V_INLINE void add_chunk(const chunk *b, int wide, const rounded *a, int64_t i, int rows, int64_t c,
                        __m512 sums[WIDE][TILE_ROWS]) {
    const int64_t at = c * a->m + i;
    const int32_t *pairs = a->pairs + at * PAIRS;
    __m512i whole[WIDE][TILE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) whole[v][r] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int p = 0; p < PAIRS; p++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512i x = _mm512_set1_epi32(pairs[r * PAIRS + p]);
#pragma GCC unroll 2
            for (int v = 0; v < wide; v++)
                whole[v][r] = _mm512_dpwssd_epi32(whole[v][r], b[v * GROUP].pairs[p], x);
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        __m512 scale = _mm512_set1_ps(a->scale[at + r]);
        __m512 sum = _mm512_set1_ps(a->sum[at + r]);
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) {
            const chunk *w = &b[v * GROUP];
            __m512 more =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[v][r]), w->d * scale, sums[v][r]);
            sums[v][r] = _mm512_fnmadd_ps(w->m, sum, more);
        }
    }
}

/* `n` chunks from c0 on, as above; sums of columns are BLOCK_ROWS apart. In between they are the function's own: in memory that
 * others may see each chunk would wait for what the one before has stored, a third of the time. */
V_INLINE void add_chunks(const chunk *b, int wide, const rounded *a, int64_t i, int rows,
                         int64_t c0, int n, __m512 *sums) {
    __m512 own[WIDE][TILE_ROWS];
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) own[v][r] = sums[v * BLOCK_ROWS + r];
    for (int q = 0; q < n; q++) add_chunk(&b[q], wide, a, i, rows, c0 + q, own);
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) sums[v * BLOCK_ROWS + r] = own[v][r];
}

typedef void (*tile_fn)(const chunk *b, const rounded *a, int64_t i, int64_t c0, int n,
                        __m512 *sums);
#define TILE(WIDTH, ROWS)                                                                          \
    static void tile_##WIDTH##_##ROWS(const chunk *b, const rounded *a, int64_t i, int64_t c0,     \
                                      int n, __m512 *sums) {                                       \
        add_chunks(b, WIDTH, a, i, ROWS, c0, n, sums);                                             \
    }
#define TILES(X) X(1, 1) X(1, 2) X(1, 4) X(1, 8) X(2, 1) X(2, 2) X(2, 4) X(2, 8)
TILES(TILE)
#undef TILE
#define TILE(WIDTH, ROWS) [WIDTH][ROWS] = tile_##WIDTH##_##ROWS,
static const tile_fn tiles[WIDE + 1][TILE_ROWS + 1] = {TILES(TILE)};
#undef TILE

/* Columns [j, j + n) of row i of C, from their sums. */
V_INLINE void put(const gemm_args *g, int64_t i, int64_t j, int64_t n, __m512 sum) {
    __mmask16 some = (__mmask16)((1u << n) - 1);
    if (g->bias) sum += _mm512_maskz_loadu_ps(some, g->bias + j);
    if (g->res) sum += _mm512_maskz_loadu_ps(some, (const float *)g->res + i * g->ldr + j);
    _mm512_mask_storeu_ps((float *)g->c + i * g->ldc + j, some, sum);
}

/* The machine looks ahead along a row of B, but rows of few bits end before that pays: chunk c of the LANES rows from p on. */
V_INLINE void prefetch(const uint8_t *p, int64_t c, dtype dt) {
    const int64_t bytes = LANES * CHUNK * stored_block_bytes(dt) / stored_block(dt);
#pragma GCC unroll 16
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + c * bytes + i);
}

/* The product of a few rows: chunks stay in registers. */
V_INLINE void few_rows(const gemm_args *g, const rounded *a, const columns *c, int64_t j, int rows,
                       dtype dt) {
    int64_t all = g->k / CHUNK;
    __m512 sums[WIDE][TILE_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sums[0][r] = _mm512_setzero_ps();
    for (int64_t c0 = 0; c0 < all; c0 += GROUP) {
        int n = all - c0 < GROUP ? (int)(all - c0) : GROUP;
        scales s;
        open_group(c, c0, n, &s, dt);
        for (int q = 0; q < n; q++) {
            chunk b;
            prefetch(c->b + LANES * c->row_bytes, c0 + q, dt);
            decode_chunk(c, c0, q, &s, &b, dt);
            add_chunk(&b, 1, a, 0, rows, c0 + q, sums);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) put(g, r, j, c->n, sums[0][r]);
}

/* `n` chunks from c0 on of `wide` times LANES columns. */
V_INLINE void decode_group(const columns *c, int wide, int64_t c0, int n, chunk b[WIDE][GROUP],
                           dtype dt) {
    for (int v = 0; v < wide; v++) {
        scales s;
        open_group(&c[v], c0, n, &s, dt);
        for (int q = 0; q < n; q++) {
            prefetch(c[v].b + wide * LANES * c[v].row_bytes, c0 + q, dt);
            decode_chunk(&c[v], c0, q, &s, &b[v][q], dt);
        }
    }
}

/* The product of rows [first, first + rows) and `wide` times LANES columns: a group of chunks stays in the first
 * cache while tiles of rows pass. */
V_INLINE void block_rows(const gemm_args *g, const rounded *a, const columns *c, int wide,
                         int64_t j, int64_t first, int64_t rows, dtype dt) {
    int64_t all = g->k / CHUNK;
    __m512 sums[WIDE][BLOCK_ROWS];
    for (int v = 0; v < wide; v++)
        for (int64_t r = 0; r < rows; r++) sums[v][r] = _mm512_setzero_ps();
    for (int64_t c0 = 0; c0 < all; c0 += GROUP) {
        int n = all - c0 < GROUP ? (int)(all - c0) : GROUP;
        chunk b[WIDE][GROUP];
        decode_group(c, wide, c0, n, b, dt);
        int64_t r = 0;
        for (int size = TILE_ROWS; size > 0; size /= 2)
            for (; r + size <= rows; r += size)
                tiles[wide][size](b[0], a, first + r, c0, n, sums[0] + r);
    }
    for (int v = 0; v < wide; v++)
        for (int64_t r = 0; r < rows; r++) put(g, first + r, j + v * LANES, c[v].n, sums[v][r]);
}

static columns columns_from(const gemm_args *g, int64_t j, int64_t row_bytes) {
    columns c = {.b = (const uint8_t *)g->b + j * row_bytes,
                 .row_bytes = row_bytes,
                 .n = g->n - j < LANES ? g->n - j : LANES};
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i there = _mm512_min_epi32(lane, _mm512_set1_epi32((int32_t)c.n - 1));
    _mm512_storeu_si512(c.at, _mm512_mullo_epi32(there, _mm512_set1_epi32((int32_t)row_bytes)));
    return c;
}

/* Columns [j, end) of all rows of C. */
V_INLINE void product_columns(const gemm_args *g, const rounded *a, int64_t j, int64_t end,
                              dtype dt) {
    int64_t row_bytes = g->ldb / stored_block(dt) * stored_block_bytes(dt);
    for (int wide; j < end; j += wide * LANES) {
        wide = g->m > FEW_ROWS && end - j > LANES ? WIDE : 1;
        columns c[WIDE];
        for (int v = 0; v < wide; v++) c[v] = columns_from(g, j + v * LANES, row_bytes);
        switch (g->m) {
            case 1: few_rows(g, a, c, j, 1, dt); continue;
            case 2: few_rows(g, a, c, j, 2, dt); continue;
            case 3: few_rows(g, a, c, j, 3, dt); continue;
            case 4: few_rows(g, a, c, j, 4, dt); continue;
            default: break;
        }
        for (int64_t i = 0; i < g->m; i += BLOCK_ROWS)
            block_rows(g, a, c, wide, j, i, g->m - i < BLOCK_ROWS ? g->m - i : BLOCK_ROWS, dt);
    }
}

typedef void (*columns_fn)(const gemm_args *g, const rounded *a, int64_t j, int64_t end);
#define FORMATS(X) X(Q4_0) X(Q4_1) X(Q8_0) X(Q4_K)
#define DEFINE(F)                                                                                  \
    static void product_##F(const gemm_args *g, const rounded *a, int64_t j, int64_t end) {        \
        product_columns(g, a, j, end, DT_##F);                                                     \
    }
FORMATS(DEFINE)
#undef DEFINE

static columns_fn find_product(dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: return product_##F;
    switch (dt) {
        FORMATS(CASE)
        default: return NULL;
    }
#undef CASE
}

bool CPU_FN(stored_dot_fits)(dtype dt) {
    return find_product(dt) != NULL;
}

int64_t CPU_FN(stored_dot_ws)(int threads, int64_t m, int64_t k) {
    return (m * k <= OWN_A ? threads : 1) * rounded_bytes(m, k);
}

void CPU_FN(stored_dot)(int threads, const gemm_args *g, void *ws) {
    columns_fn product = find_product(g->b_stored);
    int64_t own = rounded_bytes(g->m, g->k);
    if (g->n * g->k * (g->m + DECODING) < SMALL_WORK) threads = 1;
    bool each = g->m * g->k <= OWN_A;
#pragma omp parallel num_threads(threads)
    {
        rounded a = rounded_at((char *)ws + (each ? omp_get_thread_num() * own : 0), g->m, g->k);
        if (each) {
            for (int64_t i = 0; i < g->m; i++) round_row(g, i, &a);
        } else {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < g->m; i++) round_row(g, i, &a);
        }
        /* OpenMP may give fewer threads than it was asked for (OMP_THREAD_LIMIT). */
        int64_t parts = (g->n + LANES - 1) / LANES, team = omp_get_num_threads();
        int64_t t = omp_get_thread_num(), end = parts * (t + 1) / team * LANES;
        product(g, &a, parts * t / team * LANES, end < g->n ? end : g->n);
    }
}
