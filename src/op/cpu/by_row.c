/* C = A B^T in which a row of C depends on its own row of A alone, to the bit: for programs whose rows
 * are of several texts. Every element is a sum in one order, whatever the number of rows: lane i of a
 * vector sums the products at k = i, i + VW, i + 2 VW, ..., then the lanes are summed (v_sum). It is the
 * order in which one row is fastest, since both operands are read as they lie. bf16 is multiplied in
 * pairs where the machine can.
 *
 * One row, and a few with weights as files store them, are gemv.c's and gemv_stored.c's, which have
 * the same order. Else a block of columns (rows of B) is made float, if it is not, and stays in
 * the cache while tiles of TILE_ROWS x COLUMNS pass over it, whose sums are registers. FLOPs 2mnk; for 256
 * rows on Zen 5 at 80-83 % of the multiply-add loop where a tile's rows fit the first cache (k 576), 65 % where
 * they do not (k 1536), in pairs of bf16 at 72-83 %: the shorter k, the more the sums over lanes count. */
#include "op/cpu/parts.h"

#include <omp.h>

#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/tables.h"

/* Columns of a tile; bytes of a block of columns, and its most columns, from BY_ROW_MANY rows on: with fewer
 * it is one tile wide, and decoding it overlaps with the first tile. */
enum { COLUMNS = 4, BLOCK_BYTES = 1 << 18, BLOCK_COLUMNS = 64 };
/* Floats of a block that lie on the stack of each thread. Workspace is another thread's in the next op,
 * and its lines would go from core to core: 15 us for each product. */
enum { NEAR_FLOATS = 1 << 14 };
#if V_AVX512
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 3 };
#endif

/* What a tile multiplies: pairs of bf16, or floats. */
#if V_DOT_BF16
typedef uint16_t element;
enum { STEP = 2 * VW };
V_INLINE vf load_step(const element *p) {
    return (vf)_mm512_loadu_si512((const void *)p);
}
V_INLINE vf load_rest(const element *p, int64_t n) {
    return (vf)_mm512_maskz_loadu_epi16((1u << n) - 1, p);
}
V_INLINE vf multiply_add(vf a, vf b, vf acc) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}
#else
typedef float element;
enum { STEP = VW };
V_INLINE vf load_step(const element *p) {
    return v_load(p);
}
V_INLINE vf load_rest(const element *p, int64_t n) {
    return v_load_f32_n(p, n);
}
V_INLINE vf multiply_add(vf a, vf b, vf acc) {
    return v_fma(b, a, acc);
}
#endif

/* Both operands as elements, `lda` and `ldb` apart; B from column j0 on. */
typedef struct operands {
    const gemm_args *g;
    const element *a, *b;
    int64_t lda, ldb, j0;
} operands;

V_INLINE v4u round_bf16(v4f v) {
    v4u u = (v4u)v, is_nan = (v4u)(v != v);
    v4u rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
    return ((is_nan & nan) | (~is_nan & rounded)) >> 16;
}

/* Columns [j, j + COLUMNS) of row i of C, from their sums. */
V_INLINE void put_four(const gemm_args *g, int64_t i, int64_t j, v4f v) {
    int64_t at = i * g->ldc + j, res = i * g->ldr + j;
    if (g->bias) v += *(const v4f_mem *)(g->bias + j);
    if (g->c_dt == DT_F32) {
        if (g->res) v += *(const v4f_mem *)((const float *)g->res + res);
        *(v4f_mem *)((float *)g->c + at) = v;
    } else if (g->c_dt == DT_BF16) {
        if (g->res) v += pack_load4(g->res, res, DT_BF16, false);
        *(v4h_mem *)((uint16_t *)g->c + at) = __builtin_convertvector(round_bf16(v), v4h_mem);
    } else {
        if (g->res) v += pack_load4(g->res, res, DT_F16, false);
        for (int q = 0; q < COLUMNS; q++) s_put(g->c, at + q, v[q], DT_F16);
    }
}

/* The same of fewer columns. */
V_INLINE void put_some(const gemm_args *g, int64_t i, int64_t j, int64_t n, v4f v, dtype dt) {
    for (int64_t q = 0; q < n; q++) {
        float sum = v[q];
        if (g->bias) sum += g->bias[j + q];
        if (g->res) sum += s_get(g->res, i * g->ldr + j + q, dt);
        s_put(g->c, i * g->ldc + j + q, sum, dt);
    }
}

/* Rows [i, i + rows) of A with columns [j, j + n) of the block; the last column stands in for those that
 * do not exist. ahead: what is wanted in the cache next. */
V_INLINE void multiply_tile(const operands *o, int64_t i, int64_t j, int64_t n, int rows,
                            const char *ahead) {
    const gemm_args *g = o->g;
    const element *a = o->a + i * o->lda, *b[COLUMNS];
    vf acc[TILE_ROWS][COLUMNS];
#pragma GCC unroll 4
    for (int q = 0; q < COLUMNS; q++) {
        b[q] = o->b + (j + (q < n ? q : n - 1)) * o->ldb;
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) acc[r][q] = v_zero();
    }
    int64_t k = 0;
    for (; k + STEP <= g->k; k += STEP, ahead += COLUMNS * V_BYTES) {
        vf x[TILE_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) x[r] = v_keep(load_step(a + r * o->lda + k));
#pragma GCC unroll 4
        for (int q = 0; q < COLUMNS; q++) {
            vf w = load_step(b[q] + k);
            __builtin_prefetch(ahead + q * V_BYTES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) acc[r][q] = multiply_add(x[r], w, acc[r][q]);
        }
    }
    if (k < g->k) {
        vf x[TILE_ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) x[r] = load_rest(a + r * o->lda + k, g->k - k);
#pragma GCC unroll 4
        for (int q = 0; q < COLUMNS; q++) {
            vf w = load_rest(b[q] + k, g->k - k);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) acc[r][q] = multiply_add(x[r], w, acc[r][q]);
        }
    }
    v4f sum[TILE_ROWS];
    int summed = 0;
#if V_AVX512
    if (rows >= 4) v_sum_rows(acc, sum), summed = 4;
#endif
#pragma GCC unroll 8
    for (int r = summed; r < rows; r++) sum[r] = v_sum_each(acc[r]);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        if (n < COLUMNS)
            put_some(g, i + r, o->j0 + j, n, sum[r], g->c_dt);
        else
            put_four(g, i + r, o->j0 + j, sum[r]);
    }
}

#define TILE(R)                                                                                    \
    __attribute__((noinline)) static void tile_##R(const operands *o, int64_t i, int64_t j,        \
                                                   int64_t n, const char *ahead) {                 \
        multiply_tile(o, i, j, n, R, ahead);                                                       \
    }
TILE(1)
TILE(2)
TILE(3)
#if V_AVX512
TILE(4)
TILE(5)
TILE(6)
#endif

typedef void (*tile_fn)(const operands *o, int64_t i, int64_t j, int64_t n, const char *ahead);
static const tile_fn TILES[] = {
    NULL,   tile_1, tile_2, tile_3,
#if V_AVX512
    tile_4, tile_5, tile_6,
#endif
};

/* Rows from `first` on with columns [0, cols) of a block. */
static void multiply_block(const operands *o, int64_t first, int64_t cols) {
    int64_t m = o->g->m - first, tiles = (m + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t i = first + m * t / tiles, rows = first + m * (t + 1) / tiles - i;
        for (int64_t j = 0; j < cols; j += COLUMNS) {
            const char *ahead = (const char *)(o->b + (j + (t ? 0 : COLUMNS)) * o->ldb);
            TILES[rows](o, i, j, cols - j < COLUMNS ? cols - j : COLUMNS, ahead);
        }
    }
}

static bool is_element(dtype dt) {
    return dt == (V_DOT_BF16 ? DT_BF16 : DT_F32);
}

static void widen(float *dst, const void *row, int64_t n, dtype dt) {
#if CPU_STORED
    CPU_FN(stored_read)(dst, row, n, dt);
#else
    dtype_convert(dst, DT_F32, row, dt, n);
#endif
}

static int64_t padded(int64_t k) {
    return (k + VW - 1) / VW * VW;
}

/* Columns of a block: with a share of them for each thread. */
static int64_t block_columns(int threads, int64_t m, int64_t n, int64_t k) {
    if (m < BY_ROW_MANY) return COLUMNS;
    int64_t most = BLOCK_BYTES / ((int64_t)sizeof(element) * k);
    most = most > BLOCK_COLUMNS ? BLOCK_COLUMNS : most < COLUMNS ? COLUMNS : most;
    int64_t blocks = ((n + most - 1) / most + threads - 1) / threads * threads;
    return ((n + blocks - 1) / blocks + COLUMNS - 1) / COLUMNS * COLUMNS;
}

static int64_t by_row_ws(int threads, int64_t m, int64_t n, int64_t k, dtype a, dtype b) {
    int64_t floats = is_element(a) ? 0 : m * padded(k);
    if (!is_element(b)) floats += threads * block_columns(threads, m, n, k) * padded(k);
    return floats * (int64_t)sizeof(float);
}

/* Makes columns [0, cols) of a block floats in `to`, `ld` apart. Returns how many rows of C were computed on the way. */
static int64_t decode(const operands *o, const char *b, int64_t row_bytes, int64_t cols, float *to,
                      int64_t ld) {
    const gemm_args *g = o->g;
#if CPU_STORED
    if (g->b_stored != DT_F32 && cols <= COLUMNS && g->m >= GEMV_STORED_ROWS) {
        CPU_FN(gemv_stored_first)(g, o->j0, cols, to, ld);
        return GEMV_STORED_ROWS;
    }
#endif
    for (int64_t c = 0; c < cols; c++)
        widen(to + c * ld, b + c * row_bytes, g->k, g->b_stored == DT_F32 ? g->ab_dt : g->b_stored);
    return 0;
}

static void by_row(int threads, const gemm_args *g, void *ws) {
    bool a_is = is_element(g->ab_dt), b_is = a_is && g->b_stored == DT_F32;
    int64_t step = block_columns(threads, g->m, g->n, g->k), ld = padded(g->k);
    int64_t row_bytes = dtype_span_bytes(g->b_stored == DT_F32 ? g->ab_dt : g->b_stored, g->ldb);
    float *wide_a = ws, *wide_b = a_is ? wide_a : wide_a + g->m * ld;
    if (g->m * g->n * g->k < SMALL_PRODUCT) threads = 1;
#pragma omp parallel num_threads(threads)
    {
        operands o = {.g = g, .a = g->a, .lda = g->lda, .ldb = g->ldb};
        _Alignas(V_BYTES) float near[NEAR_FLOATS];
        if (!a_is) {
            o.a = (const element *)wide_a, o.lda = ld;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < g->m; i++)
                widen(wide_a + i * ld, (const char *)g->a + 2 * i * g->lda, g->k, g->ab_dt);
        }
#pragma omp for schedule(static)
        for (int64_t j = 0; j < g->n; j += step) {
            int64_t cols = g->n - j < step ? g->n - j : step, first = 0;
            const char *b = (const char *)g->b + j * row_bytes;
            o.j0 = j, o.b = (const element *)b;
            if (!b_is) {
                float *mine = wide_b + omp_get_thread_num() * step * ld;
                if (step * ld <= NEAR_FLOATS) mine = near;
                first = decode(&o, b, row_bytes, cols, mine, ld);
                o.b = (const element *)mine, o.ldb = ld;
            }
            multiply_block(&o, first, cols);
        }
    }
}

/* The kernels for integers, if the machine has them and they have this format of weights. */
static const stored_dot_kernels *find_stored_dot(const dev *d, dtype b, int64_t n) {
    const stored_dot_kernels *k = CPU_STORED ? cpu_stored_dot_of(dev_isa(d)) : NULL;
    return k && k->fits(b, n) ? k : NULL;
}

int64_t CPU_FN(product_by_row_ws)(const dev *d, bool rounds, int threads, int64_t m, int64_t n,
                                  int64_t k, dtype a, dtype b) {
    const stored_dot_kernels *dot = rounds && a != b ? find_stored_dot(d, b, n) : NULL;
    return dot ? dot->ws(threads, m, k) : by_row_ws(threads, m, n, k, a, b);
}

void CPU_FN(product_by_row)(const dev *d, bool rounds, int threads, const gemm_args *g, void *ws) {
#if CPU_STORED
    const stored_dot_kernels *dot =
        rounds && g->b_stored != DT_F32 ? find_stored_dot(d, g->b_stored, g->n) : NULL;
    if (dot) {
        dot->multiply(threads, g, ws);
        return;
    }
    if (g->b_stored != DT_F32 && g->m <= GEMV_STORED_ROWS) {
        CPU_FN(gemv_stored)(threads, g);
        return;
    }
#else
    (void)d, (void)rounds; /* it reads no weights as files store them */
#endif
    if (g->b_stored == DT_F32 && g->m == 1)
        CPU_FN(gemv)(threads, g);
    else
        by_row(threads, g, ws);
}
