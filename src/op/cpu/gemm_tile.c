/* C = A B with packed operands (Goto & van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008). Loops, outermost first: column block of C, block of k, [threads: row
 * block x column group], chunk of k, panel of B, panel of A, register tile of TILE_M x TILE_N.
 *
 * FLOPs 2mnk, at 93-95 % of the multiply-add loop on Zen 4. A block of A (ROW_BLOCK x K_BLOCK) and
 * a panel of B stay in 512 KB of second-level cache. The register tile keeps 24 (AVX-512, NEON), 12
 * (AVX2) or 8 accumulators. While a tile is made, the panel of B and the rows of A that come next are
 * fetched (ahead.h), and the lines that the tile goes to. k is cut only into equal blocks that depend
 * on the shape, never on threads. A C of 16 bits has one block, whose sums wait in a buffer from one
 * chunk to the next, so that chunks change no bits.
 *
 * Where C has few columns, packing A takes as long as multiplying with it. Then A is read where it lies; where it lies
 * by columns, C^T = B^T A^T is made instead. Neither changes the order of a sum. */
#include "op/cpu/parts.h"

#include <omp.h>

#include "op/cpu/ops.h"
#include "op/cpu/register_tile.h"
#include "op/cpu/sharing.h"

enum {
    ROW_BLOCK = 96,                      /* rows of A packed at a time by one thread */
    MIN_ROWS = 48,                       /* so that packing B's panels through the cache pays */
    COLUMN_BLOCK = 64 / TILE_N * TILE_N, /* columns of B packed at a time by one thread */
    K_BLOCK = 512,            /* units of k per pass when C can hold partial sums (f32) */
    K_CHUNK = 1024,           /* and in a pass when it cannot: sums wait in a buffer */
    K_GRAIN = 32,             /* passes begin at multiples of it, as stored weights can be read */
    PACKED_B_UNITS = 2 << 20, /* 8 MB: a share of the last-level cache */
    DIRECT_COLUMNS = 256,     /* of C, up to which A is read where it lies, */
    TURNED_COLUMNS = 16,      /* and up to which C^T is made */
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

/* Whether C^T = B^T A^T is made: then B, of few columns, is packed as rows, and A by panels. */
static bool is_turned(const gemm_args *g) {
    return g->a_trans && !g->b_trans && g->b_stored == DT_F32 && g->c_dt == DT_F32 && !g->bias &&
           !g->res && g->n <= TURNED_COLUMNS && g->n < g->m;
}

static gemm_args turn(const gemm_args *g) {
    gemm_args t = *g;
    t.m = g->n, t.a = g->b, t.lda = g->ldb;
    t.n = g->m, t.b = g->a, t.ldb = g->lda;
    return t;
}

/* A is read by units: a pair of bf16 must not end in another row. */
static bool is_direct(const gemm_args *g) {
    if (g->a_trans || g->n > DIRECT_COLUMNS) return false;
    return pack_pairs(g->ab_dt) ? g->k % 2 == 0 : g->ab_dt == DT_F32;
}

/* Of rows of A that a thread has at a time, those that it packs. */
static int64_t packed_floats(const gemm_args *g, int64_t units, int64_t rows) {
    if (is_direct(g)) rows = g->m % PANEL_M ? PANEL_M : 0;
    return round_up(units * rows, 16);
}

/* What a thread has for itself: packed rows of A, and sums of all rows while not all of k is in them. Exact, so that a run
 * touches what was planned: with fewer rows it can be more. */
static int64_t a_floats(const gemm_args *g, const blocking *b, int threads) {
    sharing s = share_out(g->m, 1, &ROW_LIMITS, threads);
    int64_t rows = sharing_rows(&s);
    return packed_floats(g, b->chunk, rows) + (b->chunk < b->ku ? rows * b->nc : 0);
}

int64_t CPU_FN(gemm_ws)(int threads, const gemm_args *args) {
    gemm_args g = is_turned(args) ? turn(args) : *args;
    blocking b = choose_blocking(g.n, g.k, g.ab_dt, g.c_dt);
    threads = product_threads(threads, g.m, g.n, g.k);
    int64_t packed_a = threads * a_floats(&g, &b, threads);
    return (round_up(b.ku * b.nc, 16) + packed_a) * (int64_t)sizeof(float);
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
    bool direct; /* A is read where it lies */
    bool turned; /* rows of C are columns of what is made */
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

/* A chunk of a task: rows of A, of which the first `direct` lie in memory, lda bytes apart, and the others are packed. */
typedef struct chunk {
    const float *packed;
    const char *at;
    int64_t direct, lda;
    int64_t row, rows;
    int64_t u0, units; /* of the pass */
    float *sums;       /* [rows, p->ld] of the chunks before, for all columns of the pass */
    bool first, last;
    ahead next; /* rows that are packed next */
} chunk;

/* The rows of the chunk, `k` of k from k0 on. A tile reads a whole panel of rows, so the last ones are packed if they are
 * fewer. */
static void take_rows(const pass *p, chunk *x, float *mine, int64_t k0, int64_t k) {
    const gemm_args *g = p->g;
    if (p->direct) {
        int64_t bytes = v_element_bytes(g->ab_dt);
        x->lda = g->lda * bytes;
        x->at = (const char *)g->a + x->row * x->lda + k0 * bytes;
        x->direct = x->rows / PANEL_M * PANEL_M;
    }
    x->packed = mine;
    pack_panels(mine, PANEL_M, g->a, g->lda, !g->a_trans, x->row + x->direct, x->rows - x->direct,
                k0, k, g->ab_dt);
}

/* A tile that is not there as a whole, or is not stored as it is made: it is made in a buffer first. */
static void run_edge(const pass *p, tile_fn *tile, int64_t units, const float *a, int64_t lda,
                     const float *b, const tile_out *o, int64_t rows, int64_t cols) {
    float edge[TILE_M * TILE_N] __attribute__((aligned(64)));
    tile_out whole = *o;
    whole.c = edge, whole.bias = NULL, whole.plus = NULL;
    whole.ldc = tile_vectors(cols) * VW;
    tile(units, a, lda, b, &whole);
    if (p->turned)
        store_turned(edge, whole.ldc, o, rows, cols);
    else if (p->g->c_dt == DT_F32)
        store_edge(edge, whole.ldc, o, rows, cols, DT_F32);
    else if (p->g->c_dt == DT_BF16)
        store_edge(edge, whole.ldc, o, rows, cols, DT_BF16);
    else
        store_edge(edge, whole.ldc, o, rows, cols, DT_F16);
}

/* A tile from row i of the chunk and column `col` of the pass on. */
V_INLINE void run_tile(const pass *p, const chunk *x, int64_t i, int64_t col, int64_t cols,
                       const float *b, tile_out *o) {
    const gemm_args *g = p->g;
    int nv = tile_vectors(cols);
    bool direct = i < x->direct;
    tile_fn *tile = (direct ? DIRECT_TILES : PACKED_TILES)[nv];
    int64_t rows = x->rows - i < tile_rows(nv) ? x->rows - i : tile_rows(nv), at = i - x->direct;
    const float *a = direct ? (const void *)(x->at + i * x->lda)
                            : x->packed + at / PANEL_M * PANEL_M * x->units + at % PANEL_M;
    if (nv == TILE_NV && rows <= REST_M) tile = tile_rest;
    if (!x->first) o->from = x->sums + i * p->ld + col;
    if (!x->last) {
        o->c = x->sums + i * p->ld + col, o->ldc = p->ld;
        tile(x->units, a, x->lda, b, o);
        return;
    }
    int64_t bytes = v_element_bytes(g->c_dt), row = x->row + i, c_col = p->j0 + col;
    o->c = (char *)g->c + (p->turned ? c_col * g->ldc + row : row * g->ldc + c_col) * bytes;
    o->ldc = g->ldc;
    if (p->plus == g->c)
        o->plus = o->c;
    else if (p->plus)
        o->plus = (const char *)p->plus + (row * p->ldp + c_col) * bytes;
    bool whole = rows == tile_rows(nv) && cols == nv * VW && !p->turned;
    if (whole && g->c_dt == DT_F32)
        tile(x->units, a, x->lda, b, o);
    else if (whole && nv == TILE_NV)
        (g->c_dt == DT_F16 ? tile_f16
         : direct          ? tile_direct_bf16
                           : tile_bf16)(x->units, a, x->lda, b, o);
    else
        run_edge(p, tile, x->units, a, x->lda, b, o, rows, cols);
}

/* Columns of a panel of the pass. */
static int64_t panel_columns(const pass *p, int64_t panel) {
    int64_t left = p->cols - panel * TILE_N;
    return left < TILE_N ? left : TILE_N;
}

static int64_t tiles_of(int64_t rows, int64_t cols) {
    int M = tile_rows(tile_vectors(cols));
    return (rows + M - 1) / M;
}

/* The tiles of one panel of B; `next`: the panel that follows. */
static void run_panel(const pass *p, chunk *x, int64_t panel, int64_t next) {
    const float *b = p->packed_b + (panel * p->units + x->u0) * TILE_N;
    int64_t col = panel * TILE_N, cols = panel_columns(p, panel), M = tile_rows(tile_vectors(cols));
    tile_out o = {.ahead = &x->next, .ldf = p->ld, .ldp = p->ldp};
    if (next != panel) {
        int64_t tiles = tiles_of(x->rows, cols);
        o.next = (const char *)(p->packed_b + (next * p->units + x->u0) * TILE_N);
        o.each = (FETCH_LINES + tiles - 1) / tiles;
    }
    if (x->last && p->bias) o.bias = p->bias + p->j0 + col;
    int64_t fetched = o.each * AHEAD_LINE * (x->units / FETCH_UNITS);
    for (int64_t i = 0; i < x->rows; i += M, o.next += fetched) run_tile(p, x, i, col, cols, b, &o);
}

/* How much of k the chunk from k0 of the pass on has. */
static int64_t chunk_k(const pass *p, int64_t k0) {
    return p->k - k0 < p->chunk ? p->k - k0 : p->chunk;
}

/* soon: the task that this thread will probably get next. */
static void run_task(const pass *p, float *mine, const task *t, const task *soon) {
    const gemm_args *g = p->g;
    int64_t tiles = (t->end - t->panel) *
                    tiles_of(t->rows, panel_columns(p, t->panel)); /* or fewer, in the last panel */
    chunk x = {.row = t->row, .rows = t->rows};
    for (int64_t k0 = 0; k0 < p->k; k0 += p->chunk, x.u0 += x.units) {
        int64_t k = chunk_k(p, k0);
        x.units = pack_units(k, pack_pairs(g->ab_dt));
        x.first = k0 == 0, x.last = k0 + k == p->k;
        if (!x.last) x.sums = mine + packed_floats(g, x.units, round_up(t->rows, PANEL_M));
        take_rows(p, &x, mine, p->k0 + k0, k);
        const task *then = x.last ? soon : t;
        int64_t from = x.last ? 0 : k0 + k, times = tiles * (x.units / FETCH_UNITS);
        if (!p->direct)
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

void CPU_FN(gemm_tiles)(int threads, const gemm_args *args, void *ws) {
    const bool turned = is_turned(args);
    const gemm_args turned_args = turn(args), *g = turned ? &turned_args : args;
    blocking b = choose_blocking(g->n, g->k, g->ab_dt, g->c_dt);
    int64_t per = pack_pairs(g->ab_dt) ? 2 : 1;
    float *packed_b = ws, *packed_a = packed_b + round_up(b.ku * b.nc, 16);
    threads = product_threads(threads, g->m, g->n, g->k);
#pragma omp parallel num_threads(threads)
    for (int64_t j0 = 0; j0 < g->n; j0 += b.nc) {
        for (int64_t u0 = 0; u0 < b.units; u0 += b.ku) {
            pass p = {.g = g, .turned = turned, .direct = is_direct(g), .packed_b = packed_b};
            p.j0 = j0, p.k0 = u0 * per;
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
                float *mine = packed_a + omp_get_thread_num() * a_floats(g, &b, threads);
                task t = task_at(&s, i), soon = task_at(&s, i + threads);
                run_task(&p, mine, &t, &soon);
            }
        }
    }
}
