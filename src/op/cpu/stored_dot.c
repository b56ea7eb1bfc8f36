/* C = A B^T with B as a file stores it, in integers: machines multiply and add bytes or pairs of 16-bit numbers in one instruction
 * (VNNI) or two, twice as many as floats, and bits become whole numbers in fewer steps than floats. A row of A is rounded to 16 bits
 * with a scale for each CHUNK of it: an element moves by 2^-16 of the largest one of its chunk at most. Rounded weights differ from
 * what was trained by far more (4 bits: 2^-4).
 *
 * A number of B is d (q - offset) - m, with q whole, d and m those of its unit, which is a chunk or half of it; a number of A is s X.
 * Then a unit of a sum is d s (sum of (q - offset) X) - m s (sum of X). Both sums are exact, and units are added in order, so that a
 * row of C depends on its own row of A alone, to the bit, whatever the number of rows and threads.
 *
 * The lanes of a vector are VW columns of C (rows of B), so nothing is summed over lanes. A group of chunks of these columns is made
 * whole numbers once (stored_quads.h), and stays in the first cache while tiles of rows pass over it. */
#include "op/cpu/parts.h"
#include "op/cpu/stored_quads.h"
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

/* Parts that a chunk of A has: two of each quad, of 32 bits (quads.h). */
enum { PARTS = 2 * QUADS };

/* A chunk of a row of A, besides its numbers. */
typedef struct chunk_head {
    float scale, sum;  /* s, and s times the sum of X */
    int32_t offset[2]; /* of each unit: minus the offset of q times its sum of X */
} chunk_head;

/* A as 16-bit numbers. */
typedef struct rounded {
    int64_t m;
    int32_t *parts;   /* [k/CHUNK][m][PARTS]: rows of a tile lie together */
    chunk_head *head; /* [k/CHUNK][m] */
} rounded;

static int64_t rounded_bytes(int64_t m, int64_t k) {
    return m * (k / CHUNK) * (int64_t)(PARTS * sizeof(int32_t) + sizeof(chunk_head));
}

static rounded rounded_at(char *ws, int64_t m, int64_t k) {
    int32_t *parts = (int32_t *)(void *)ws;
    return (rounded){m, parts, (chunk_head *)(void *)(parts + m * (k / CHUNK) * PARTS)};
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

/* The sum of half a chunk. */
static int32_t sum_of_half(const vi whole[HALF_V]) {
    vi all = whole[0];
    for (int v = 1; v < HALF_V; v++) all += whole[v];
    int32_t sum = 0;
    for (int i = 0; i < VW; i++) sum += all[i];
    return sum;
}

V_INLINE void round_chunk(const float *from, int32_t *parts, chunk_head *head, dtype dt) {
    const vf limit = v_set1(QUAD_LIMIT);
    vf x[CHUNK_V];
    vi whole[CHUNK_V];
    for (int v = 0; v < CHUNK_V; v++) x[v] = v_load(from + v * VW);
    float largest = largest_of(x), to = largest > LEAST ? QUAD_LIMIT / largest : 0;
    for (int v = 0; v < CHUNK_V; v++) {
        whole[v] = v_round_int(v_max(v_min(x[v] * to, limit), -limit)); /* NaN: the limit */
        v_store_quads(parts + v * (VW / 2), whole[v]);
    }
    int32_t half[2] = {sum_of_half(whole), sum_of_half(whole + HALF_V)};
    if (stored_units(dt) == 1) half[0] += half[1];
    head->scale = largest * (1.0f / QUAD_LIMIT);
    head->sum = head->scale * (float)half[0];
    for (int u = 0; u < 2; u++) head->offset[u] = -stored_offset(dt) * half[u];
}

static void round_row(const gemm_args *g, int64_t i, const rounded *a) {
    const float *x = (const float *)g->a + i * g->lda;
    for (int64_t c = 0, at = i; c < g->k / CHUNK; c++, at += a->m)
        round_chunk(x + c * CHUNK, a->parts + at * PARTS, a->head + at, g->b_stored);
}

/* ---- multiplying ---- */

/* A chunk of VW columns. */
typedef struct chunk {
    vi part[QUADS][QUAD_PARTS];
    vf d[2], m; /* d of each unit */
} chunk;

/* What is added for each unit: numbers have an m, or an offset, or an offset and two scales in a chunk. */
enum { WITH_M, WITH_OFFSET, IN_HALVES, KINDS };

V_INLINE int kind_of(dtype dt) {
    return stored_units(dt) == 2 ? IN_HALVES : stored_offset(dt) ? WITH_OFFSET : WITH_M;
}

V_INLINE int units_of(int kind) {
    return kind == IN_HALVES ? 2 : 1;
}

/* Chunk q of a group, which is chunk i of its run. */
V_INLINE void decode_chunk(const run_bytes *r, const group_heads *h, int q, int i, chunk *to,
                           dtype dt) {
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; j++) {
        vi quad = decode_quad(r, h, q, i, j, dt);
#pragma GCC unroll 2
        for (int part = 0; part < QUAD_PARTS; part++) to->part[j][part] = v_quad_part(quad, part);
    }
    for (int u = 0; u < stored_units(dt); u++) decode_scales(h, q, u, &to->d[u], &to->m, dt);
}

/* Adds to the sum of a row what a unit's whole numbers came to. */
V_INLINE vf add_whole(vf sum, vi whole, vf d, vf m, const chunk_head *a, int unit, int kind) {
    if (kind != WITH_M) whole += a->offset[unit];
    sum = v_fma(v_from_int(whole), d * a->scale, sum);
    return kind == WITH_M ? v_fma(-m, v_set1(a->sum), sum) : sum;
}

/* Adds unit u of chunk c of rows [i, i + rows) to their sums; b is that chunk of `wide` times VW columns, GROUP apart. A number of A
 * is read once for all these columns. */
V_INLINE void add_unit(const chunk *b, int wide, const rounded *a, int64_t i, int rows, int64_t c,
                       int u, int kind, vf sums[WIDE][TILE_ROWS]) {
    const int64_t at = c * a->m + i;
    const int32_t *parts = a->parts + at * PARTS;
    const int quads = QUADS / units_of(kind);
    vi whole[WIDE][TILE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++) whole[v][r] = (vi){0};
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
#pragma GCC unroll 8
        for (int j = u * quads; j < (u + 1) * quads; j++)
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                vi x = v_set1_i(parts[r * PARTS + 2 * j + part]);
#pragma GCC unroll 2
                for (int v = 0; v < wide; v++)
                    whole[v][r] =
                        v_add_part(whole[v][r], b[v * GROUP].part[j][part % QUAD_PARTS], x);
            }
        if (part == 0)
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
                for (int v = 0; v < wide; v++) whole[v][r] = v_first_parts(whole[v][r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < wide; v++)
            sums[v][r] = add_whole(sums[v][r], whole[v][r], b[v * GROUP].d[u], b[v * GROUP].m,
                                   a->head + at + r, u, kind);
}

/* `n` chunks from c0 on, as above; sums of columns are BLOCK_ROWS apart. In between they are the function's own: in memory that
 * others may see each chunk would wait for what the one before has stored, a third of the time. */
V_INLINE void add_chunks(const chunk *b, int wide, const rounded *a, int64_t i, int rows,
                         int64_t c0, int n, vf *sums, int kind) {
    vf own[WIDE][TILE_ROWS];
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) own[v][r] = sums[v * BLOCK_ROWS + r];
    for (int q = 0; q < n; q++)
#pragma GCC unroll 2
        for (int u = 0; u < units_of(kind); u++)
            add_unit(&b[q], wide, a, i, rows, c0 + q, u, kind, own);
    for (int v = 0; v < wide; v++)
        for (int r = 0; r < rows; r++) sums[v * BLOCK_ROWS + r] = own[v][r];
}

typedef void (*tile_fn)(const chunk *b, const rounded *a, int64_t i, int64_t c0, int n, vf *sums);
#define TILE_OF(KIND, WIDTH, ROWS)                                                                 \
    static void tile_##KIND##_##WIDTH##_##ROWS(const chunk *b, const rounded *a, int64_t i,        \
                                               int64_t c0, int n, vf *sums) {                      \
        add_chunks(b, WIDTH, a, i, ROWS, c0, n, sums, KIND);                                       \
    }
#define TILE(WIDTH, ROWS)                                                                          \
    TILE_OF(WITH_M, WIDTH, ROWS)                                                                   \
    TILE_OF(WITH_OFFSET, WIDTH, ROWS)                                                              \
    TILE_OF(IN_HALVES, WIDTH, ROWS)
#if V_AVX512
#define TILES(X) X(1, 1) X(1, 2) X(1, 4) X(1, 8) X(2, 1) X(2, 2) X(2, 4) X(2, 8)
#else
#define TILES(X) X(1, 1) X(1, 2) X(1, 4) X(2, 1) X(2, 2) X(2, 4)
#endif
TILES(TILE)
#undef TILE
#define TILE(WIDTH, ROWS)                                                                          \
    [WITH_M][WIDTH][ROWS] = tile_WITH_M_##WIDTH##_##ROWS,                                          \
    [WITH_OFFSET][WIDTH][ROWS] = tile_WITH_OFFSET_##WIDTH##_##ROWS,                                \
    [IN_HALVES][WIDTH][ROWS] = tile_IN_HALVES_##WIDTH##_##ROWS,
static const tile_fn tiles[KINDS][WIDE + 1][TILE_ROWS + 1] = {TILES(TILE)};
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

/* Adds chunk c0 + q of a few rows, which is chunk i of its run, to their sums. A quad stays in registers for all rows. Parts have sums
 * of their own, since a sum waits four cycles for the one before. */
V_INLINE void add_decoded(const run_bytes *b, const group_heads *h, const rounded *a, int64_t c0,
                          int q, int i, int rows, vf sums[FEW_ROWS], dtype dt) {
    const int64_t at = (c0 + q) * a->m;
    const int kind = kind_of(dt), quads = QUADS / units_of(kind);
#pragma GCC unroll 2
    for (int u = 0; u < units_of(kind); u++) {
        vi whole[2][FEW_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) whole[0][r] = whole[1][r] = (vi){0};
#pragma GCC unroll 8
        for (int j = u * quads; j < (u + 1) * quads; j++) {
            vi quad = decode_quad(b, h, q, i, j, dt);
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++) {
                vi w = v_quad_part(quad, part);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    vi x = v_set1_i(a->parts[(at + r) * PARTS + 2 * j + part]);
                    whole[part][r] = v_add_part(whole[part][r], w, x);
                }
            }
        }
        vf d, m;
        decode_scales(h, q, u, &d, &m, dt);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            vi all = v_first_parts(whole[0][r]) + whole[1][r];
            sums[r] = add_whole(sums[r], all, d, m, a->head + at + r, u, kind);
        }
    }
}

/* The product of a few rows. */
V_INLINE void few_rows(const gemm_args *g, const rounded *a, const columns *c, int rows, dtype dt) {
    const int run = stored_run(dt);
    int64_t all = g->k / CHUNK;
    bool near = VW * c->row_bytes <= NEAR_BYTES;
    vf sums[FEW_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sums[r] = v_zero();
    for (int64_t c0 = 0; c0 < all; c0 += GROUP) {
        int n = all - c0 < GROUP ? (int)(all - c0) : GROUP;
        group_heads h;
        open_group(c, c0, n, &h, dt);
        for (int q = 0; q < n; q += run) {
            run_bytes bytes;
            open_run(c, c0, q, &bytes, dt);
#pragma GCC unroll 4
            for (int i = 0; i < run; i++) {
                prefetch(c->b + VW * c->row_bytes, c0 + q + i, near, dt);
                add_decoded(&bytes, &h, a, c0, q + i, i, rows, sums, dt);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) put_columns(g, r, c, sums[r]);
}

/* `n` chunks from c0 on of `wide` times VW columns. */
V_INLINE void decode_group(const columns *c, int wide, int64_t c0, int n, chunk b[WIDE][GROUP],
                           dtype dt) {
    const int run = stored_run(dt);
    bool near = wide * VW * c->row_bytes <= NEAR_BYTES;
    for (int v = 0; v < wide; v++) {
        group_heads h;
        open_group(&c[v], c0, n, &h, dt);
        for (int q = 0; q < n; q += run) {
            run_bytes bytes;
            open_run(&c[v], c0, q, &bytes, dt);
#pragma GCC unroll 4
            for (int i = 0; i < run; i++) {
                prefetch(c[v].b + wide * VW * c[v].row_bytes, c0 + q + i, near, dt);
                decode_chunk(&bytes, &h, q + i, i, &b[v][q + i], dt);
            }
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
                tiles[kind_of(dt)][wide][size](b[0], a, first + r, c0, n, sums[0] + r);
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
QUADS_FORMATS(DEFINE)
#undef DEFINE

static columns_fn find_product(dtype dt) {
#define CASE(F)                                                                                    \
    case DT_##F: return product_##F;
    switch (dt) {
        QUADS_FORMATS(CASE)
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
