/* C = A B with both operands packed (Goto & van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008). Loops, outermost first: column block of C, block of k, [threads: row
 * block x column group], chunk of k, panel of B, panel of A, register tile of TILE_M x TILE_N.
 *
 * FLOPs 2mnk, at 93-95 % of the multiply-add loop on Zen 4. A block of A (ROW_BLOCK x K_BLOCK) and
 * a panel of B stay in 512 KB of second-level cache. The register tile keeps 24 (AVX-512), 12
 * (AVX2) or 8 accumulators. While a tile is made, the panel of B and the rows of A that come next are
 * fetched (ahead.h), and the lines that the tile goes to. k is cut only into equal blocks that depend
 * on the shape, never on threads. A C of 16 bits has one block, whose sums wait in a buffer from one
 * chunk to the next, so that chunks change no bits. */
#include "op/cpu/parts.h"

#include <omp.h>

#include "op/cpu/ahead.h"
#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/rows.h"
#include "op/cpu/sharing.h"

enum {
    ROW_BLOCK = 96,                      /* rows of A packed at a time by one thread */
    MIN_ROWS = 48,                       /* so that packing B's panels through the cache pays */
    COLUMN_BLOCK = 64 / TILE_N * TILE_N, /* columns of B packed at a time by one thread */
    K_BLOCK = 512,            /* units of k per pass when C can hold partial sums (f32) */
    K_CHUNK = 1024,           /* and in a pass when it cannot: sums wait in a buffer */
    K_GRAIN = 32,             /* passes begin at multiples of it, as stored weights can be read */
    PACKED_B_UNITS = 2 << 20, /* 8 MB: a share of the last-level cache */
    /* A panel's last columns, where they are few, are made in tiles of all its rows. */
    NARROW_NV = TILE_NV * TILE_M / PANEL_M,
    NARROW_N = NARROW_NV * VW,
    /* What comes next is fetched every so many units: this many lines of a panel of B, */
    FETCH_UNITS = V_AVX512 ? 16 : 32,
    FETCH_LINES = FETCH_UNITS * TILE_N * 4 / AHEAD_LINE,
    C_LEAD = 2, /* and a row of where the tile goes, so many fetches before it is whole */
};

typedef struct blocking {
    int64_t units, ku; /* units of k, and per block */
    int64_t nc;        /* columns of B packed at a time */
    int64_t chunk;     /* units of a pass for which A is packed at a time: all, or sums are kept */
} blocking;

static const row_limits ROW_LIMITS = {.tile = PANEL_M, .most = ROW_BLOCK, .least = MIN_ROWS};

/* Units of each of the fewest equal parts that are at most so long. */
static int64_t equal_part(int64_t units, int64_t most) {
    int64_t parts = (units + most - 1) / most;
    return parts > 1 ? round_up((units + parts - 1) / parts, K_GRAIN) : units > 0 ? units : 1;
}

static blocking choose_blocking(int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    blocking b = {.units = pack_units(k, pack_pairs(ab_dt))};
    b.ku = c_dt == DT_F32 ? equal_part(b.units, K_BLOCK) : b.units > 0 ? b.units : 1;
    b.chunk = c_dt == DT_F32 ? b.ku : equal_part(b.units, K_CHUNK);
    int64_t fit = PACKED_B_UNITS / b.ku;
    fit = fit < 256 ? 256 : fit;
    int64_t blocks = (n + fit - 1) / fit;
    b.nc = round_up((n + blocks - 1) / (blocks > 0 ? blocks : 1), TILE_N);
    return b;
}

/* What a thread has for itself: packed rows of A, and their sums while not all of k is in them. */
static int64_t a_floats(const blocking *b, int64_t m) {
    int64_t rows = m < ROW_BLOCK ? round_up(m, PANEL_M) : ROW_BLOCK;
    return round_up(b->chunk * rows, 16) + (b->chunk < b->ku ? rows * b->nc : 0);
}

int64_t CPU_FN(gemm_ws)(int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    blocking b = choose_blocking(n, k, ab_dt, c_dt);
    int64_t packed_a = product_threads(threads, m, n, k) * a_floats(&b, m);
    return (round_up(b.ku * b.nc, 16) + packed_a) * (int64_t)sizeof(float);
}

/* Where a tile goes: C = tile (+ bias) (+ plus), from its first element on. Its sums begin with `from`.
 * Meanwhile, with every FETCH_UNITS units, `each` lines from `next` on are fetched, and what is due of A. */
typedef struct tile_out {
    const char *next;
    int64_t each;
    ahead *rows;       /* of A */
    const float *from; /* NULL: with 0 */
    int64_t ldf;
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

/* Row i of what a tile is added to and becomes. */
V_INLINE void fetch_row(const tile_out *o, int64_t i, int64_t bytes) {
    const char *c = (const char *)o->c + i * o->ldc * bytes;
    for (int64_t at = 0; at < TILE_N * bytes; at += AHEAD_LINE) __builtin_prefetch(c + at, 1);
    if (!o->plus || o->plus == o->c) return;
    const char *plus = (const char *)o->plus + i * o->ldp * bytes;
    for (int64_t at = 0; at < TILE_N * bytes; at += AHEAD_LINE) __builtin_prefetch(plus + at);
}

/* Unrolled: instructions that count units take turns of the ports that multiply, 5 % of a product on Granite Rapids. */
V_INLINE void multiply_units(int64_t units, const float *a, const float *b, int M, int NV,
                             vf sum[PANEL_M][TILE_NV]) {
#pragma GCC unroll 4
    for (int64_t u = 0; u < units; u++, a += PANEL_M, b += TILE_N) {
        vf bv[TILE_NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) bv[j] = v_keep(v_load(b + j * VW));
#pragma GCC unroll 16
        for (int i = 0; i < M; i++)
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) sum[i][j] = pack_multiply_into(a[i], bv[j], sum[i][j]);
    }
}

/* Rows of a panel of A x columns of a panel of B over `units` into a whole tile. Inlined only into the
 * functions below, so that nothing else competes for registers. */
V_INLINE void multiply_tile(int64_t units, const float *a, const float *b, const tile_out *o, int M,
                            int NV, dtype dt) {
    vf sum[PANEL_M][TILE_NV]; /* M x NV of them */
#pragma GCC unroll 16
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            sum[i][j] = o->from ? v_load(o->from + i * o->ldf + j * VW) : v_zero();
    const char *next = o->next;
    ahead *rows = o->rows;
    int64_t bytes = v_element_bytes(dt);
    /* Of where the tile goes: below 0 later, or all at once if there is little time. */
    int64_t row = M + C_LEAD - units / FETCH_UNITS;
    if (row > 0)
        for (row = 0; row < M; row++) fetch_row(o, row, bytes);
    for (; units >= FETCH_UNITS; units -= FETCH_UNITS, row++) {
        if (row >= 0 && row < M) fetch_row(o, row, bytes);
        for (int64_t i = 0; i < o->each; i++, next += AHEAD_LINE) __builtin_prefetch(next, 0, 2);
        ahead_fetch(rows);
        multiply_units(FETCH_UNITS, a, b, M, NV, sum);
        a += FETCH_UNITS * PANEL_M, b += FETCH_UNITS * TILE_N;
    }
    multiply_units(units, a, b, M, NV, sum);
#pragma GCC unroll 16
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) store_vector(o, i, j * VW, sum[i][j], dt);
}

typedef void tile_fn(int64_t units, const float *a, const float *b, const tile_out *o);
#define TILE_FN __attribute__((noinline)) static void
TILE_FN tile_f32(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, TILE_M, TILE_NV, DT_F32);
}
TILE_FN tile_bf16(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, TILE_M, TILE_NV, DT_BF16);
}
TILE_FN tile_f16(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, TILE_M, TILE_NV, DT_F16);
}

/* PANEL_M rows and the first NARROW_N columns of a panel of B. */
TILE_FN tile_narrow(int64_t units, const float *a, const float *b, const tile_out *o) {
    multiply_tile(units, a, b, o, PANEL_M, NARROW_NV, DT_F32);
}

/* The part of a tile that exists, from a whole one in `tile`. */
V_INLINE void store_edge(const float *tile, int64_t ld, const tile_out *o, int64_t rows,
                         int64_t cols, dtype dt) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        for (; j + VW <= cols; j += VW) store_vector(o, i, j, v_load(tile + i * ld + j), dt);
        for (; j < cols; j++) {
            float v = tile[i * ld + j];
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
    int64_t chunk; /* of k, for which A is packed at a time */
    int64_t ld;    /* of sums that wait for the next chunk */
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

/* A chunk of a task: rows of A that are packed. */
typedef struct chunk {
    const float *a;
    int64_t row, rows;
    int64_t u0, units; /* of the pass */
    float *sums;       /* [rows, p->ld] of the chunks before, for all columns of the pass */
    bool first, last;
    ahead next; /* rows that are packed next */
} chunk;

/* A tile that is not there as a whole: it is made in a buffer first. */
static void run_edge(const pass *p, const chunk *x, const float *a, const float *b,
                     const tile_out *o, int64_t rows, int64_t cols) {
    float edge[TILE_M * TILE_N] __attribute__((aligned(64)));
    tile_out whole = *o;
    whole.c = edge, whole.bias = NULL, whole.plus = NULL;
    whole.ldc = cols <= NARROW_N ? NARROW_N : TILE_N;
    (cols <= NARROW_N ? tile_narrow : tile_f32)(x->units, a, b, &whole);
    if (p->g->c_dt == DT_F32)
        store_edge(edge, whole.ldc, o, rows, cols, DT_F32);
    else if (p->g->c_dt == DT_BF16)
        store_edge(edge, whole.ldc, o, rows, cols, DT_BF16);
    else
        store_edge(edge, whole.ldc, o, rows, cols, DT_F16);
}

/* The tiles of one panel of B; `next`: the panel that follows. */
static void run_panel(const pass *p, chunk *x, int64_t panel, int64_t next) {
    const gemm_args *g = p->g;
    tile_fn *tile = g->c_dt == DT_F32 ? tile_f32 : g->c_dt == DT_BF16 ? tile_bf16 : tile_f16;
    const float *b = p->packed_b + (panel * p->units + x->u0) * TILE_N;
    int64_t j = panel * TILE_N, cols = p->cols - j < TILE_N ? p->cols - j : TILE_N;
    bool narrow = cols <= NARROW_N;
    int64_t M = narrow ? PANEL_M : TILE_M, tiles = (x->rows + M - 1) / M;
    int64_t bytes = v_element_bytes(g->c_dt);
    tile_out o = {.rows = &x->next, .ldf = p->ld, .ldp = p->ldp};
    o.next = (const char *)(p->packed_b + (next * p->units + x->u0) * TILE_N);
    o.each = (FETCH_LINES + tiles - 1) / tiles;
    o.ldc = x->last ? g->ldc : p->ld;
    if (x->last && p->bias) o.bias = p->bias + p->j0 + j;
    int64_t fetched = o.each * AHEAD_LINE * (x->units / FETCH_UNITS);
    for (int64_t i = 0; i < x->rows; i += M, o.next += fetched) {
        const float *a = x->a + i / PANEL_M * PANEL_M * x->units + i % PANEL_M;
        int64_t row = x->row + i, col = p->j0 + j, left = x->rows - i < M ? x->rows - i : M;
        if (!x->first) o.from = x->sums + i * p->ld + j;
        if (!x->last) {
            o.c = x->sums + i * p->ld + j;
            (narrow ? tile_narrow : tile_f32)(x->units, a, b, &o);
            continue;
        }
        o.c = (char *)g->c + (row * g->ldc + col) * bytes;
        if (p->plus) o.plus = (const char *)p->plus + (row * p->ldp + col) * bytes;
        if (left == TILE_M && cols == TILE_N)
            tile(x->units, a, b, &o);
        else
            run_edge(p, x, a, b, &o, left, cols);
    }
}

/* How much of k the chunk from k0 of the pass on has. */
static int64_t chunk_k(const pass *p, int64_t k0) {
    return p->k - k0 < p->chunk ? p->k - k0 : p->chunk;
}

/* soon: the task that this thread will probably get next. */
static void run_task(const pass *p, float *mine, const task *t, const task *soon) {
    const gemm_args *g = p->g;
    int64_t tiles = (t->end - t->panel) * ((t->rows + TILE_M - 1) / TILE_M); /* or fewer, narrow */
    chunk x = {.a = mine, .row = t->row, .rows = t->rows};
    for (int64_t k0 = 0; k0 < p->k; k0 += p->chunk, x.u0 += x.units) {
        int64_t k = chunk_k(p, k0);
        x.units = pack_units(k, pack_pairs(g->ab_dt));
        x.first = k0 == 0, x.last = k0 + k == p->k;
        if (!x.last) x.sums = mine + round_up(x.units * round_up(t->rows, PANEL_M), 16);
        pack_panels(mine, PANEL_M, g->a, g->lda, !g->a_trans, t->row, t->rows, p->k0 + k0, k,
                    g->ab_dt);
        const task *then = x.last ? soon : t;
        int64_t from = x.last ? 0 : k0 + k, times = tiles * (x.units / FETCH_UNITS);
        x.next = ahead_of_a(g, then->row, then->rows, p->k0 + from, chunk_k(p, from),
                            times > 0 ? times : 1);
        for (int64_t panel = t->panel; panel < t->end; panel++)
            run_panel(p, &x, panel, panel + 1 < t->end ? panel + 1 : t->panel);
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
            p.chunk = b.chunk * per, p.ld = b.nc;
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
