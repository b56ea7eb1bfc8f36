/* C = A B with both operands packed (Goto & van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008). Loops, outermost first: column block of C, block of k, [threads: row
 * block x column group], panel of B, panel of A, register tile of TILE_M x TILE_N.
 *
 * FLOPs 2mnk, at 93-95 % of the multiply-add loop on Zen 4. A block of A (ROW_BLOCK x K_BLOCK) and
 * a panel of B stay in 512 KB of second-level cache. The register tile keeps 24 (AVX-512), 12
 * (AVX2) or 8 accumulators. While a tile is made, the panel of B and the rows of A that come next are
 * fetched (ahead.h). k is cut only into equal blocks that depend on the shape, never on
 * threads. */
#include "op/cpu/parts.h"

#include <omp.h>

#include "op/cpu/ahead.h"
#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/rows.h"
#include "op/cpu/sharing.h"

enum {
    ROW_BLOCK = 96,            /* rows of A packed at a time by one thread */
    MIN_ROWS = 48,             /* so that packing B's panels through the cache pays */
    COLUMN_BLOCK = 2 * TILE_N, /* columns of B packed at a time by one thread */
    K_BLOCK = 512,             /* units of k per pass when C can hold partial sums (f32) */
    K_GRAIN = 32,              /* passes begin at multiples of it, as stored weights can be read */
    PACKED_B_UNITS = 2 << 20,  /* 8 MB: a share of the last-level cache */
    FETCH_UNITS = 4,           /* of B between two fetches of the panel that comes next, */
    FETCH_LINES = FETCH_UNITS * TILE_N * 4 / AHEAD_LINE, /* which are so many lines */
};

typedef struct blocking {
    int64_t units, ku; /* units of k, and per block */
    int64_t nc;        /* columns of B packed at a time */
} blocking;

static const row_limits ROW_LIMITS = {.tile = TILE_M, .most = ROW_BLOCK, .least = MIN_ROWS};

static blocking choose_blocking(int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    blocking b = {.units = pack_units(k, pack_pairs(ab_dt))};
    int64_t parts = c_dt == DT_F32 ? (b.units + K_BLOCK - 1) / K_BLOCK : 1;
    b.ku = parts > 1 ? round_up((b.units + parts - 1) / parts, K_GRAIN) : parts ? b.units : 1;
    int64_t fit = PACKED_B_UNITS / (b.ku > 0 ? b.ku : 1);
    fit = fit < 256 ? 256 : fit;
    int64_t blocks = (n + fit - 1) / fit;
    b.nc = round_up((n + blocks - 1) / (blocks > 0 ? blocks : 1), TILE_N);
    return b;
}

static int64_t a_floats(const blocking *b, int64_t m) {
    int64_t rows = m < ROW_BLOCK ? round_up(m, TILE_M) : ROW_BLOCK;
    return round_up(b->ku * rows, 16);
}

int64_t CPU_FN(gemm_ws)(int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    blocking b = choose_blocking(n, k, ab_dt, c_dt);
    int64_t packed_a = product_threads(threads, m, n, k) * a_floats(&b, m);
    return (round_up(b.ku * b.nc, 16) + packed_a) * (int64_t)sizeof(float);
}

/* Where a tile goes: C = tile (+ bias) (+ plus), from its first element on. Meanwhile `each` lines from `next` on are
 * fetched with every FETCH_UNITS units. */
typedef struct tile_out {
    const char *next;
    int64_t each;
    void *c;
    int64_t ldc;
    const float *bias; /* NULL: none */
    const void *plus;  /* C itself, or the residual; NULL: none */
    int64_t ldp;
} tile_out;

V_INLINE void store_vector(const tile_out *o, int64_t i, int64_t j, vf v, dtype dt) {
    if (o->bias) v += v_load(o->bias + j);
    if (o->plus) v += v_get(o->plus, i * o->ldp + j, dt);
    v_put(o->c, i * o->ldc + j, v, dt);
}

/* C is fetched while the products run. */
V_INLINE void prefetch_tile(const tile_out *o, dtype dt) {
    int64_t bytes = v_element_bytes(dt);
    for (int64_t i = 0; i < TILE_M; i++) {
        const char *row = (const char *)o->c + i * o->ldc * bytes;
        __builtin_prefetch(row, 1);
        __builtin_prefetch(row + TILE_N * bytes - 1, 1);
    }
}

/* Unrolled: instructions that count units take turns of the ports that multiply, 5 % of a product on Granite Rapids. */
V_INLINE void multiply_units(int64_t units, const float *a, const float *b,
                             vf acc[TILE_M][TILE_NV]) {
#pragma GCC unroll 4
    for (int64_t u = 0; u < units; u++, a += TILE_M, b += TILE_N) {
        vf bv[TILE_NV];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) bv[j] = v_keep(v_load(b + j * VW));
#pragma GCC unroll 16
        for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_NV; j++) acc[i][j] = pack_multiply_add(a[i], bv[j], acc[i][j]);
    }
}

/* A panel x B panel over `units` into a whole tile. Inlined only into the functions below, so that
 * nothing else competes for registers. */
V_INLINE void multiply_tile(int64_t units, const float *a, const float *b, const tile_out *o,
                            dtype dt) {
    vf acc[TILE_M][TILE_NV];
    prefetch_tile(o, dt);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) acc[i][j] = v_zero();
    const char *next = o->next;
    for (; units >= FETCH_UNITS; units -= FETCH_UNITS) {
        for (int64_t i = 0; i < o->each; i++, next += AHEAD_LINE) __builtin_prefetch(next, 0, 2);
        multiply_units(FETCH_UNITS, a, b, acc);
        a += FETCH_UNITS * TILE_M, b += FETCH_UNITS * TILE_N;
    }
    multiply_units(units, a, b, acc);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) store_vector(o, i, j * VW, acc[i][j], dt);
}

typedef void tile_fn(int64_t units, const float *a, const float *b, const tile_out *o);
#define TILE_FN __attribute__((noinline)) static void
TILE_FN tile_f32(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, DT_F32);
}
TILE_FN tile_bf16(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, DT_BF16);
}
TILE_FN tile_f16(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, DT_F16);
}

/* The part of a tile that exists, from a whole one in `tile`. */
V_INLINE void store_edge(const float *tile, const tile_out *o, int64_t rows, int64_t cols,
                         dtype dt) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        for (; j + VW <= cols; j += VW) store_vector(o, i, j, v_load(tile + i * TILE_N + j), dt);
        for (; j < cols; j++) {
            float v = tile[i * TILE_N + j];
            if (o->bias) v += o->bias[j];
            if (o->plus) v += s_get(o->plus, i * o->ldp + j, dt);
            s_put(o->c, i * o->ldc + j, v, dt);
        }
    }
}

/* Packs rows r0.. of A, or columns r0.. of B (the same thing seen from B^T), from k0 on. R is a
 * constant, so this is compiled once for A and once for B. */
V_INLINE void pack_panels(float *dst, int R, const void *src, int64_t ld, bool k_contiguous,
                          int64_t r0, int64_t rows, int64_t k0, int64_t k, dtype dt) {
    int64_t at = k_contiguous ? r0 * ld + k0 : k0 * ld + r0;
    const void *p = (const char *)src + at * v_element_bytes(dt);
    if (k_contiguous)
        WITH_DTYPE(dt, pack_k_contiguous, dst, R, p, ld, rows, k);
    else
        WITH_DTYPE(dt, pack_r_contiguous, dst, R, p, ld, rows, k);
}

/* One pass: a block of k, a block of columns. */
typedef struct pass {
    const gemm_args *g;
    int64_t j0, cols, k0, k, units;
    const float *packed_b;
    const float *bias;
    const void *plus; /* [m,n] in the format of C */
    int64_t ldp;
} pass;

/* Columns [j, j + cols) of the pass. */
static void pack_b(const pass *p, float *dst, int64_t j, int64_t cols) {
    const gemm_args *g = p->g;
#if CPU_STORED
    int64_t row_bytes = dtype_span_bytes(g->b_stored, g->ldb);
    if (g->b_stored != DT_F32 && !g->b_trans) {
        CPU_FN(stored_pack_columns)
        (dst, g->b, row_bytes, g->n, p->j0 + j, cols, p->k0, p->k, g->b_stored);
        return;
    }
    if (g->b_stored != DT_F32) {
        const char *from = (const char *)g->b + (p->j0 + j) * row_bytes;
        CPU_FN(stored_pack)(dst, from, row_bytes, cols, p->k0, p->k, g->b_stored);
        return;
    }
#endif
    pack_panels(dst, TILE_N, g->b, g->ldb, g->b_trans, p->j0 + j, cols, p->k0, p->k, g->ab_dt);
}

/* The tiles of one panel of B; `next`: the panel that follows; f: what is packed next. */
static void run_panel(const pass *p, const float *packed_a, int64_t i0, int64_t rows, int64_t panel,
                      const float *next, ahead *f) {
    const gemm_args *g = p->g;
    float edge[TILE_M * TILE_N] __attribute__((aligned(64)));
    tile_fn *tile = g->c_dt == DT_F32 ? tile_f32 : g->c_dt == DT_BF16 ? tile_bf16 : tile_f16;
    int64_t bytes = v_element_bytes(g->c_dt), tiles = (rows + TILE_M - 1) / TILE_M;
    const float *b = p->packed_b + panel * TILE_N * p->units;
    int64_t j = panel * TILE_N, cols = p->cols - j < TILE_N ? p->cols - j : TILE_N;
    tile_out o = {.ldc = g->ldc, .ldp = p->ldp, .next = (const char *)next};
    o.each = (FETCH_LINES + tiles - 1) / tiles;
    int64_t fetched = o.each * AHEAD_LINE * (p->units / FETCH_UNITS);
    o.bias = p->bias ? p->bias + p->j0 + j : NULL;
    for (int64_t i = 0; i < rows; i += TILE_M, o.next += fetched) {
        const float *a = packed_a + i * p->units;
        int64_t row = i0 + i, col = p->j0 + j;
        o.c = (char *)g->c + (row * g->ldc + col) * bytes;
        if (p->plus) o.plus = (const char *)p->plus + (row * p->ldp + col) * bytes;
        int64_t tile_rows = rows - i < TILE_M ? rows - i : TILE_M;
        ahead_fetch(f);
        if (tile_rows == TILE_M && cols == TILE_N) {
            tile(p->units, a, b, &o);
            continue;
        }
        tile_f32(p->units, a, b, &(tile_out){.c = edge, .ldc = TILE_N});
        if (g->c_dt == DT_F32)
            store_edge(edge, &o, tile_rows, cols, DT_F32);
        else if (g->c_dt == DT_BF16)
            store_edge(edge, &o, tile_rows, cols, DT_BF16);
        else
            store_edge(edge, &o, tile_rows, cols, DT_F16);
    }
}

/* soon: the task that this thread will probably get next. */
static void run_task(const pass *p, float *packed_a, const task *t, const task *soon) {
    const gemm_args *g = p->g;
    pack_panels(packed_a, TILE_M, g->a, g->lda, !g->a_trans, t->row, t->rows, p->k0, p->k,
                g->ab_dt);
    int64_t tiles = (t->end - t->panel) * ((t->rows + TILE_M - 1) / TILE_M);
    ahead f = ahead_of_a(g, soon->row, soon->rows, p->k0, p->k, tiles);
    for (int64_t panel = t->panel; panel < t->end; panel++) {
        int64_t then = panel + 1 < t->end ? panel + 1 : t->panel;
        run_panel(p, packed_a, t->row, t->rows, panel, p->packed_b + then * TILE_N * p->units, &f);
    }
}

void CPU_FN(gemm_packed)(int threads, const gemm_args *g, void *ws) {
    if (CPU_FN(gemv_fits)(g))
        CPU_FN(gemv)(threads, g);
    else
        CPU_FN(gemm_tiles)(threads, g, ws);
}

void CPU_FN(gemm_tiles)(int threads, const gemm_args *g, void *ws) {
    blocking b = choose_blocking(g->n, g->k, g->ab_dt, g->c_dt);
    int64_t per = pack_pairs(g->ab_dt) ? 2 : 1;
    float *packed_b = ws, *packed_a = packed_b + round_up(b.ku * b.nc, 16);
    threads = product_threads(threads, g->m, g->n, g->k);
#pragma omp parallel num_threads(threads)
    for (int64_t j0 = 0; j0 < g->n; j0 += b.nc) {
        for (int64_t u0 = 0; u0 < b.units; u0 += b.ku) {
            pass p = {.g = g, .j0 = j0, .k0 = u0 * per, .packed_b = packed_b};
            p.cols = g->n - j0 < b.nc ? g->n - j0 : b.nc;
            p.k = g->k - p.k0 < b.ku * per ? g->k - p.k0 : b.ku * per;
            p.units = pack_units(p.k, pack_pairs(g->ab_dt));
            p.bias = u0 == 0 ? g->bias : NULL;
            bool again = g->accumulate || u0 > 0;
            p.plus = again ? g->c : g->res, p.ldp = again ? g->ldc : g->ldr;
            sharing s = share_out(g->m, (p.cols + TILE_N - 1) / TILE_N, &ROW_LIMITS, threads);
#pragma omp for schedule(static)
            for (int64_t j = 0; j < p.cols; j += COLUMN_BLOCK) {
                int64_t cols = p.cols - j < COLUMN_BLOCK ? p.cols - j : COLUMN_BLOCK;
                pack_b(&p, packed_b + j * p.units, j, cols);
            }
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < sharing_tasks(&s); i++) {
                float *mine = packed_a + omp_get_thread_num() * a_floats(&b, g->m);
                task t = task_at(&s, i), soon = task_at(&s, i + threads);
                run_task(&p, mine, &t, &soon);
            }
        }
    }
}
