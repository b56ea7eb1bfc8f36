/* C = A B^T with B as a file stores it, in integers: machines multiply and add pairs of 16-bit numbers in one instruction (VNNI) or
 * two, twice as many as floats, and bits become whole numbers in fewer steps than floats. A row of A is rounded to 16 bits (with
 * Q6_K to 15) with a scale for each CHUNK of it: an element moves by 2^-16 (2^-15) of the largest one of its chunk at most. Rounded
 * weights differ from what was trained by far more (4 bits: 2^-4).
 *
 * A number of B is d q - m, with q whole, d and m those of its chunk; a number of A is s X. Then a chunk of a sum is
 * d s (sum of q X) - m s (sum of X). Both sums are exact, and chunks are added in order, so that a row of C depends on its own row of A
 * alone, to the bit, whatever the number of rows and threads.
 *
 * The lanes of a vector are VW columns of C (rows of B), so nothing is summed over lanes. A group of chunks of these columns is made
 * 16-bit numbers once (stored_pairs.h), and stays in the first cache while tiles of rows pass over it. */
#include "op/cpu/parts.h"
#include "op/cpu/stored_pairs.h"
#include "op/cpu/tables.h"

#include <omp.h>

enum { WIDE = 2, FEW_ROWS = 4, BLOCK_ROWS = 64 };
#if V_AVX512
enum { TILE_ROWS = 8 };
#else
enum { TILE_ROWS = 4 }; /* half as many registers */
#endif
/* Work that waking a thread costs: numbers of B times the rows that they are multiplied with; to decode a number takes as long as
 * some rows. */
enum { SMALL_WORK = 1 << 19, DECODING = 3 };
/* Rows of B that are asked for while those before them are read: so many bytes may wait in the first cache, more in the second. */
enum { NEAR_BYTES = 8 << 10 };
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

/* The largest magnitude of a chunk. Magnitudes are compared as integers, so that infinity and NaN count as the largest. */
static float largest_of(const vf x[CHUNK_V]) {
    vi most = {0};
    for (int v = 0; v < CHUNK_V; v++) {
        vi bits = (vi)v_abs(x[v]), larger = bits > most;
        most = (larger & bits) | (~larger & most);
    }
    int32_t best = 0;
    for (int i = 0; i < VW; i++) best = most[i] > best ? most[i] : best;
    float largest;
    memcpy(&largest, &best, sizeof largest);
    return largest;
}

static void round_chunk(const float *from, float limit, int32_t *pairs, float *scale, float *sum) {
    vf x[CHUNK_V];
    for (int v = 0; v < CHUNK_V; v++) x[v] = v_load(from + v * VW);
    float largest = largest_of(x), to = largest > LEAST ? limit / largest : 0;
    vi total = {0};
    for (int v = 0; v < CHUNK_V; v++) {
        vi whole = v_round_int(x[v] * to);
        total += whole;
        v_store_pairs(pairs + v * (VW / 2), whole);
    }
    *scale = largest * (1 / limit);
    int32_t all = 0;
    for (int i = 0; i < VW; i++) all += total[i];
    *sum = *scale * (float)all;
}

static void round_row(const gemm_args *g, int64_t i, const rounded *a) {
    const float *x = (const float *)g->a + i * g->lda;
    for (int64_t c = 0, at = i; c < g->k / CHUNK; c++, at += a->m)
        round_chunk(x + c * CHUNK, pairs_limit(g->b_stored), a->pairs + at * PAIRS, a->scale + at,
                    a->sum + at);
}

/* ---- multiplying ---- */

/* A chunk of VW columns. */
typedef struct chunk {
    vi pairs[PAIRS];
    vf d, m;
} chunk;

V_INLINE void decode_chunk(const columns *c, int64_t c0, int q, const group_heads *h, chunk *to,
                           dtype dt) {
    vi fours[4];
    decode_half(c, c0, q, 0, h, fours, to->pairs, dt);
    decode_half(c, c0, q, 1, h, fours, to->pairs + HALF, dt);
    decode_scales(h, q, &to->d, &to->m, dt);
}

/* Adds to the sums of row r, of chunk c, what its whole numbers came to. */
V_INLINE vf add_whole(vf sum, vi whole, vf d, vf m, const rounded *a, int64_t at) {
    vf more = v_fma(v_from_int(whole), d * a->scale[at], sum);
    return v_fma(-m, v_set1(a->sum[at]), more);
}

/* Adds chunk c of rows [i, i + rows) to their sums; b is that chunk of `wide` times VW columns, GROUP apart. A number of A is
 * read once for all these columns. */
V_INLINE void add_chunk(const chunk *b, int wide, const rounded *a, int64_t i, int rows, int64_t c,
                        vf sums[WIDE][TILE_ROWS]) {
    const int64_t at = c * a->m + i;
    const int32_t *pairs = a->pairs + at * PAIRS;
    vi whole[WIDE][TILE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) whole[v][r] = (vi){0};
#pragma GCC unroll 16
    for (int p = 0; p < PAIRS; p++)
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vi x = v_set1_i(pairs[r * PAIRS + p]);
#pragma GCC unroll 2
            for (int v = 0; v < wide; v++)
                whole[v][r] = v_add_pairs(whole[v][r], b[v * GROUP].pairs[p], x);
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++)
            sums[v][r] =
                add_whole(sums[v][r], whole[v][r], b[v * GROUP].d, b[v * GROUP].m, a, at + r);
}

/* `n` chunks from c0 on, as above; sums of columns are BLOCK_ROWS apart. In between they are the function's own: in memory that
 * others may see each chunk would wait for what the one before has stored, a third of the time. */
V_INLINE void add_chunks(const chunk *b, int wide, const rounded *a, int64_t i, int rows,
                         int64_t c0, int n, vf *sums) {
    vf own[WIDE][TILE_ROWS];
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) own[v][r] = sums[v * BLOCK_ROWS + r];
    for (int q = 0; q < n; q++) add_chunk(&b[q], wide, a, i, rows, c0 + q, own);
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) sums[v * BLOCK_ROWS + r] = own[v][r];
}

typedef void (*tile_fn)(const chunk *b, const rounded *a, int64_t i, int64_t c0, int n, vf *sums);
#define TILE(WIDTH, ROWS)                                                                          \
    static void tile_##WIDTH##_##ROWS(const chunk *b, const rounded *a, int64_t i, int64_t c0,     \
                                      int n, vf *sums) {                                           \
        add_chunks(b, WIDTH, a, i, ROWS, c0, n, sums);                                             \
    }
#if V_AVX512
#define TILES(X) X(1, 1) X(1, 2) X(1, 4) X(1, 8) X(2, 1) X(2, 2) X(2, 4) X(2, 8)
#else
#define TILES(X) X(1, 1) X(1, 2) X(1, 4) X(2, 1) X(2, 2) X(2, 4)
#endif
TILES(TILE)
#undef TILE
#define TILE(WIDTH, ROWS) [WIDTH][ROWS] = tile_##WIDTH##_##ROWS,
static const tile_fn tiles[WIDE + 1][TILE_ROWS + 1] = {TILES(TILE)};
#undef TILE

/* Columns [j, j + VW) of row i of C, from their sums. */
V_INLINE void put(const gemm_args *g, int64_t i, int64_t j, vf sum) {
    if (g->bias) sum += v_load(g->bias + j);
    if (g->res) sum += v_load((const float *)g->res + i * g->ldr + j);
    v_store((float *)g->c + i * g->ldc + j, sum);
}

/* The last n columns of row i, which the last n lanes have. */
__attribute__((noinline)) static void put_last(const gemm_args *g, int64_t i, int64_t n, vf sum) {
    int64_t j = g->n - n;
    float every[VW];
    v_store(every, sum);
    sum = v_load_f32_n(every + VW - n, n);
    if (g->bias) sum += v_load_f32_n(g->bias + j, n);
    if (g->res) sum += v_load_f32_n((const float *)g->res + i * g->ldr + j, n);
    v_store_f32_n((float *)g->c + i * g->ldc + j, sum, n);
}

V_INLINE void put_columns(const gemm_args *g, int64_t i, const columns *c, vf sum) {
    if (c->n == VW)
        put(g, i, c->j, sum);
    else
        put_last(g, i, c->n, sum);
}

/* The machine looks ahead along a row of B, but not along VW of them: chunk c of the VW rows from p on; near: into the first cache. */
V_INLINE void prefetch(const uint8_t *p, int64_t c, bool near, dtype dt) {
    const int64_t bytes = VW * CHUNK * stored_block_bytes(dt) / stored_block(dt);
#pragma GCC unroll 32
    for (int64_t i = 0; i < bytes; i += 64)
        near ? __builtin_prefetch(p + c * bytes + i) : __builtin_prefetch(p + c * bytes + i, 0, 2);
}

/* Adds chunk c0 + q of a few rows to their sums: half a chunk at a time, so that it stays in registers. A sum that waits for
 * the one before takes four cycles, so few rows have several sums each. */
V_INLINE void add_decoded(const columns *c, const group_heads *h, const rounded *a, int64_t c0,
                          int q, int rows, vf sums[FEW_ROWS], dtype dt) {
    const int64_t at = (c0 + q) * a->m;
    const int each = FEW_ROWS / rows;
    vi whole[FEW_ROWS], fours[4];
#pragma GCC unroll 4
    for (int i = 0; i < rows * each; i++) whole[i] = (vi){0};
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi pairs[HALF];
        decode_half(c, c0, q, half, h, fours, pairs, dt);
#pragma GCC unroll 8
        for (int p = 0; p < HALF; p++)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                vi x = v_set1_i(a->pairs[(at + r) * PAIRS + half * HALF + p]);
                vi *sum = &whole[r * each + p % each];
                *sum = v_add_pairs(*sum, pairs[p], x);
            }
    }
    vf d, m;
    decode_scales(h, q, &d, &m, dt);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        vi all = whole[r * each];
#pragma GCC unroll 4
        for (int i = 1; i < each; i++) all += whole[r * each + i];
        sums[r] = add_whole(sums[r], all, d, m, a, at + r);
    }
}

/* The product of a few rows. */
V_INLINE void few_rows(const gemm_args *g, const rounded *a, const columns *c, int rows, dtype dt) {
    int64_t all = g->k / CHUNK;
    bool near = VW * c->row_bytes <= NEAR_BYTES;
    vf sums[FEW_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sums[r] = v_zero();
    for (int64_t c0 = 0; c0 < all; c0 += GROUP) {
        int n = all - c0 < GROUP ? (int)(all - c0) : GROUP;
        group_heads h;
        open_group(c, c0, n, &h, dt);
        for (int q = 0; q < n; q++) {
            prefetch(c->b + VW * c->row_bytes, c0 + q, near, dt);
            add_decoded(c, &h, a, c0, q, rows, sums, dt);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) put_columns(g, r, c, sums[r]);
}

/* `n` chunks from c0 on of `wide` times VW columns. */
V_INLINE void decode_group(const columns *c, int wide, int64_t c0, int n, chunk b[WIDE][GROUP],
                           dtype dt) {
    bool near = wide * VW * c->row_bytes <= NEAR_BYTES;
    for (int v = 0; v < wide; v++) {
        group_heads h;
        open_group(&c[v], c0, n, &h, dt);
        for (int q = 0; q < n; q++) {
            prefetch(c[v].b + wide * VW * c[v].row_bytes, c0 + q, near, dt);
            decode_chunk(&c[v], c0, q, &h, &b[v][q], dt);
        }
    }
}

/* The product of rows [first, first + rows) and `wide` times VW columns: a group of chunks stays in the first
 * cache while tiles of rows pass. */
V_INLINE void block_rows(const gemm_args *g, const rounded *a, const columns *c, int wide,
                         int64_t first, int64_t rows, dtype dt) {
    int64_t all = g->k / CHUNK;
    vf sums[WIDE][BLOCK_ROWS];
    for (int v = 0; v < wide; v++)
        for (int64_t r = 0; r < rows; r++) sums[v][r] = v_zero();
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
        for (int64_t r = 0; r < rows; r++) put_columns(g, first + r, &c[v], sums[v][r]);
}

/* Those from j on. Where fewer than VW are left, they are the last lanes: what is before them was computed already. */
static columns columns_from(const gemm_args *g, int64_t j, int64_t row_bytes) {
    int64_t n = g->n - j < VW ? g->n - j : VW, from = j + n - VW;
    return (columns){(const uint8_t *)g->b + from * row_bytes, row_bytes, j, n};
}

/* Columns [j, end) of all rows of C. */
V_INLINE void product_columns(const gemm_args *g, const rounded *a, int64_t j, int64_t end,
                              dtype dt) {
    int64_t row_bytes = g->ldb / stored_block(dt) * stored_block_bytes(dt);
    for (int wide; j < end; j += wide * VW) {
        wide = g->m > FEW_ROWS && end - j > VW ? WIDE : 1;
        columns c[WIDE];
        for (int v = 0; v < wide; v++) c[v] = columns_from(g, j + v * VW, row_bytes);
        switch (g->m) {
            case 1: few_rows(g, a, c, 1, dt); continue;
            case 2: few_rows(g, a, c, 2, dt); continue;
            case 3: few_rows(g, a, c, 3, dt); continue;
            case 4: few_rows(g, a, c, 4, dt); continue;
            default: break;
        }
        for (int64_t i = 0; i < g->m; i += BLOCK_ROWS)
            block_rows(g, a, c, wide, i, g->m - i < BLOCK_ROWS ? g->m - i : BLOCK_ROWS, dt);
    }
}

typedef void (*columns_fn)(const gemm_args *g, const rounded *a, int64_t j, int64_t end);
#define DEFINE(F)                                                                                  \
    static void product_##F(const gemm_args *g, const rounded *a, int64_t j, int64_t end) {        \
        product_columns(g, a, j, end, DT_##F);                                                     \
    }
PAIRS_FORMATS(DEFINE)
#undef DEFINE

static columns_fn find_product(dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: return product_##F;
    switch (dt) {
        PAIRS_FORMATS(CASE)
        default: return NULL;
    }
#undef CASE
}

static bool fits(dtype dt, int64_t n) {
    return n >= VW && find_product(dt) != NULL;
}

static int64_t workspace(int threads, int64_t m, int64_t k) {
    return (m * k <= OWN_A ? threads : 1) * rounded_bytes(m, k);
}

static void multiply(int threads, const gemm_args *g, void *ws) {
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
        int64_t parts = (g->n + VW - 1) / VW, team = omp_get_num_threads();
        int64_t t = omp_get_thread_num(), end = parts * (t + 1) / team * VW;
        product(g, &a, parts * t / team * VW, end < g->n ? end : g->n);
    }
}

const stored_dot_kernels CPU_FN(stored_dot) = {fits, workspace, multiply};
