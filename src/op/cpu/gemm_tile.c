/* C = A B with both operands packed (Goto & van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008). Loops, outermost first: column block of C, block of k, [threads: row
 * block x column group], panel of B, panel of A, register tile of TILE_M x TILE_N.
 *
 * FLOPs 2mnk. The register tile keeps 24 (AVX-512), 12 (AVX2) or 8 accumulators. k is cut only
 * into equal blocks that depend on the shape, never on threads. */
#include "op/cpu/gemm_tile.h"

#include "op/cpu/ops.h"
#include "op/cpu/pack.h"

enum {
    ROW_BLOCK = 96,            /* rows of A packed at a time by one thread */
    COLUMN_BLOCK = 2 * TILE_N, /* columns of B packed at a time by one thread */
    K_BLOCK = 1024,            /* units of k per pass when C can hold partial sums (f32) */
    PACKED_B_UNITS = 2 << 20,  /* 8 MB: a share of the last-level cache */
    TASKS_PER_THREAD = 8,      /* so that the last ones end together */
};

typedef struct blocking {
    int64_t units, ku; /* units of k, and per block */
    int64_t nc;        /* columns of B packed at a time */
} blocking;

static int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

static blocking choose_blocking(int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    blocking b = {.units = pack_units(k, pack_pairs(ab_dt))};
    int64_t parts = c_dt == DT_F32 ? (b.units + K_BLOCK - 1) / K_BLOCK : 1;
    b.ku = parts > 0 ? (b.units + parts - 1) / parts : 1;
    int64_t fit = PACKED_B_UNITS / (b.ku > 0 ? b.ku : 1);
    fit = fit < 256 ? 256 : fit;
    int64_t blocks = (n + fit - 1) / fit;
    b.nc = round_up((n + blocks - 1) / (blocks > 0 ? blocks : 1), TILE_N);
    return b;
}

static int64_t a_floats(const blocking *b) {
    return round_up(b->ku * ROW_BLOCK, 16);
}

int64_t CPU_FN(gemm_ws)(int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    (void)m;
    blocking b = choose_blocking(n, k, ab_dt, c_dt);
    return (round_up(b.ku * b.nc, 16) + threads * a_floats(&b)) * (int64_t)sizeof(float);
}

/* out [TILE_M, TILE_N] = A panel x B panel over `units`. Inlined only into the two functions below,
 * so that nothing else competes for registers. */
V_INLINE void multiply_tile_body(int64_t units, const float *a, const float *b, float *out,
                                 bool pairs) {
    vf acc[TILE_M][TILE_NV];
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) acc[i][j] = v_zero();
    for (int64_t u = 0; u < units; u++, a += TILE_M, b += TILE_N) {
        vf bv[TILE_NV];
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) bv[j] = v_keep(v_load(b + j * VW));
#pragma GCC unroll 16
        for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
            for (int j = 0; j < TILE_NV; j++)
                acc[i][j] = pack_multiply_add(a[i], bv[j], acc[i][j], pairs);
    }
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < TILE_NV; j++) v_store(out + i * TILE_N + j * VW, acc[i][j]);
}

__attribute__((noinline)) static void multiply_tile(int64_t units, const float *a, const float *b,
                                                    float *out) {
    multiply_tile_body(units, a, b, out, false);
}

__attribute__((noinline)) static void multiply_tile_pairs(int64_t units, const float *a,
                                                          const float *b, float *out) {
    multiply_tile_body(units, a, b, out, V_DOT_BF16);
}

/* Adds bias and old contents, rounds, writes the part of the tile that exists. */
V_INLINE void store_tile(const float *tile, void *c, int64_t at, int64_t ldc, int64_t rows,
                         int64_t cols, const float *bias, bool add, dtype dt) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0, row = at + i * ldc;
        for (; j + VW <= cols; j += VW) {
            vf v = v_load(tile + i * TILE_N + j);
            if (bias) v += v_load(bias + j);
            if (add) v += v_get(c, row + j, dt);
            v_put(c, row + j, v, dt);
        }
        for (; j < cols; j++) {
            float v = tile[i * TILE_N + j];
            if (bias) v += bias[j];
            if (add) v += s_get(c, row + j, dt);
            s_put(c, row + j, v, dt);
        }
    }
}

/* Packs rows r0.. of A, or columns r0.. of B (the same thing seen from B^T), from k0 on. */
static void pack_panels(float *dst, int R, const void *src, int64_t ld, bool k_contiguous,
                        int64_t r0, int64_t rows, int64_t k0, int64_t k, dtype dt) {
    int64_t at = k_contiguous ? r0 * ld + k0 : k0 * ld + r0;
    const void *p = (const char *)src + at * (dt == DT_BF16 ? 2 : 4);
    if (dt == DT_BF16 && k_contiguous)
        pack_k_contiguous(dst, R, p, ld, rows, k, DT_BF16, V_DOT_BF16);
    else if (dt == DT_BF16)
        pack_r_contiguous(dst, R, p, ld, rows, k, DT_BF16, V_DOT_BF16);
    else if (k_contiguous)
        pack_k_contiguous(dst, R, p, ld, rows, k, DT_F32, false);
    else
        pack_r_contiguous(dst, R, p, ld, rows, k, DT_F32, false);
}

/* One pass: a block of k, a block of columns. */
typedef struct pass {
    const gemm_args *g;
    int64_t j0, cols, k0, k, units;
    const float *packed_b;
    const float *bias;
    bool add;
} pass;

static void run_tiles(const pass *p, const float *packed_a, int64_t i0, int64_t rows, int64_t panel,
                      int64_t panel_end) {
    const gemm_args *g = p->g;
    bool pairs = pack_pairs(g->ab_dt);
    float tile[TILE_M * TILE_N] __attribute__((aligned(64)));
    for (; panel < panel_end; panel++) {
        const float *b = p->packed_b + panel * TILE_N * p->units;
        int64_t j = panel * TILE_N, cols = p->cols - j < TILE_N ? p->cols - j : TILE_N;
        const float *bias = p->bias ? p->bias + p->j0 + j : NULL;
        for (int64_t i = 0; i < rows; i += TILE_M) {
            if (pairs)
                multiply_tile_pairs(p->units, packed_a + i * p->units, b, tile);
            else
                multiply_tile(p->units, packed_a + i * p->units, b, tile);
            int64_t at = (i0 + i) * g->ldc + p->j0 + j;
            int64_t tile_rows = rows - i < TILE_M ? rows - i : TILE_M;
            if (g->c_dt == DT_BF16)
                store_tile(tile, g->c, at, g->ldc, tile_rows, cols, bias, p->add, DT_BF16);
            else
                store_tile(tile, g->c, at, g->ldc, tile_rows, cols, bias, p->add, DT_F32);
        }
    }
}

/* Row block x column group; a group exists only to give every thread work. */
static void run_task(const pass *p, float *packed_a, int64_t task, int64_t groups) {
    const gemm_args *g = p->g;
    int64_t i0 = task / groups * ROW_BLOCK, group = task % groups;
    int64_t rows = g->m - i0 < ROW_BLOCK ? g->m - i0 : ROW_BLOCK;
    pack_panels(packed_a, TILE_M, g->a, g->lda, !g->a_trans, i0, rows, p->k0, p->k, g->ab_dt);
    int64_t panels = (p->cols + TILE_N - 1) / TILE_N;
    run_tiles(p, packed_a, i0, rows, panels * group / groups, panels * (group + 1) / groups);
}

void CPU_FN(gemm_packed)(int threads, const gemm_args *g, void *ws) {
    if (CPU_FN(gemv_fits)(g)) {
        CPU_FN(gemv)(threads, g);
        return;
    }
    blocking b = choose_blocking(g->n, g->k, g->ab_dt, g->c_dt);
    int64_t per = pack_pairs(g->ab_dt) ? 2 : 1, row_blocks = (g->m + ROW_BLOCK - 1) / ROW_BLOCK;
    float *packed_b = ws, *packed_a = packed_b + round_up(b.ku * b.nc, 16);
    if (g->m * g->n * g->k < SMALL_PRODUCT) threads = 1;
#pragma omp parallel num_threads(threads)
    for (int64_t j0 = 0; j0 < g->n; j0 += b.nc) {
        for (int64_t u0 = 0; u0 < b.units; u0 += b.ku) {
            pass p = {.g = g, .j0 = j0, .k0 = u0 * per, .packed_b = packed_b};
            p.cols = g->n - j0 < b.nc ? g->n - j0 : b.nc;
            p.k = g->k - p.k0 < b.ku * per ? g->k - p.k0 : b.ku * per;
            p.units = pack_units(p.k, pack_pairs(g->ab_dt));
            p.bias = u0 == 0 ? g->bias : NULL;
            p.add = g->accumulate || u0 > 0;
            int64_t panels = (p.cols + TILE_N - 1) / TILE_N, groups = 1;
#pragma omp for schedule(static)
            for (int64_t j = 0; j < p.cols; j += COLUMN_BLOCK) {
                int64_t cols = p.cols - j < COLUMN_BLOCK ? p.cols - j : COLUMN_BLOCK;
                pack_panels(packed_b + j * p.units, TILE_N, g->b, g->ldb, g->b_trans, j0 + j, cols,
                            p.k0, p.k, g->ab_dt);
            }
            while (row_blocks * groups < TASKS_PER_THREAD * threads && groups < panels) groups++;
#pragma omp for schedule(dynamic)
            for (int64_t t = 0; t < row_blocks * groups; t++) {
                float *mine = packed_a + omp_get_thread_num() * a_floats(&b);
                run_task(&p, mine, t, groups);
            }
        }
    }
}
