/* C = A B of bf16 by tiles (amx.h), with both operands packed. Loops, outermost first: block of columns,
 * block of k, [threads: row block x column group], panel of B, block of 2 x 2 tiles.
 *
 * Packed, 16 rows of A are [steps of 32 k][16 rows][32 k], and a panel of B is [k/2][32 columns][2],
 * padded with zeros to whole tiles. A block of tiles takes 64 cycles for a step, in which it reads 4 KB; packed rows
 * of A stay in the second-level cache. k is cut only into equal parts that depend on the shape,
 * so the bits do not depend on the number of threads. FLOPs 2mnk.
 *
 * Results in f32 are summed where they lie. Others leave their tiles through a buffer, a row at a time, while
 * the next block is multiplied: one after the other would take half as long again at k = 256. Meanwhile, too, the
 * panel of B and the rows of A that come next are fetched (ahead.h).
 *
 * Reading order: gemm_tiles, run_task, run_panels, multiply_block. */
#include "op/cpu/parts.h"

#include <omp.h>

#include "op/cpu/ahead.h"
#include "op/cpu/amx.h"
#include "op/cpu/ops.h"
#include "op/cpu/pack.h"
#include "op/cpu/rows.h"
#include "op/cpu/sharing.h"

enum {
    BLOCK = 2 * AMX_ROWS,     /* rows and columns of a block of 2 x 2 tiles */
    ROWS = 256,               /* rows of A packed at a time by one thread, at most */
    LEAST_ROWS = 2 * BLOCK,   /* at least, so that reading B again pays */
    K_BLOCK = 2048,           /* k per pass when C can hold partial sums (f32) */
    PACKED_A_BYTES = 1 << 20, /* half of the second-level cache */
    PACKED_B_BYTES = 8 << 20, /* a share of the last-level cache */
    LEAST_COLUMNS = 256,      /* of B packed at a time, however long k is */
    FEW_ROWS = 3,             /* of A: fewer are gemv's, with every instruction set */
    SETTLED = 2, /* steps after which tiles that were stored can be read without a wait */
    TILE_BYTES = AMX_ROWS * AMX_ROW_BYTES,
    SUMS_LD = BLOCK * sizeof(float),
};

typedef struct blocking {
    int64_t k;    /* per pass, a multiple of AMX_K */
    int64_t nc;   /* columns of B packed at a time */
    int64_t rows; /* the most rows of A packed at a time */
} blocking;

/* The size of equal parts of at most `most`, each a multiple of `to`. */
static int64_t cut(int64_t x, int64_t most, int64_t to) {
    int64_t parts = x > 0 ? (x + most - 1) / most : 1;
    return round_up((x + parts - 1) / parts, to);
}

static int64_t within(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

static blocking choose_blocking(int64_t n, int64_t k, dtype c_dt) {
    blocking b = {.k = c_dt == DT_F32 ? cut(k, K_BLOCK, AMX_K) : round_up(k, AMX_K)};
    int64_t fit = PACKED_B_BYTES / (2 * b.k), rows = PACKED_A_BYTES / (2 * b.k);
    b.nc = cut(n, fit < LEAST_COLUMNS ? LEAST_COLUMNS : fit, BLOCK);
    b.rows = within(rows / BLOCK * BLOCK, BLOCK, ROWS);
    return b;
}

/* Of a thread: packed rows of A, then the buffer of sums. */
static int64_t thread_bytes(const blocking *b) {
    return b->rows * b->k * 2 + BLOCK * SUMS_LD;
}

int64_t CPU_FN(gemm_ws)(int threads, const gemm_args *g) {
    int64_t few = g->m < FEW_ROWS ? gemm_ws_avx512_bf16(threads, g) : 0;
    if (g->n == 0 || g->k == 0) return few;
    blocking b = choose_blocking(g->n, g->k, g->c_dt);
    threads = product_threads(threads, g->m, g->n, g->k);
    int64_t tiles = b.k * b.nc * 2 + threads * thread_bytes(&b);
    return tiles > few ? tiles : few;
}

/* One pass: a block of columns, a block of k. */
typedef struct pass {
    const gemm_args *g;
    int64_t j0, cols, k0, k;
    int64_t steps; /* of AMX_K */
    int64_t each;  /* rows of a block that leave the buffer at a step */
    char *packed_b;
    const float *bias;
    const void *plus; /* [m,n] in the format of C */
    int64_t ldp;
} pass;

/* ---- packing ---- */

/* AMX_ROWS rows of A, of which `rows` exist; element (r, k) at src[r * ld + k]. */
static void pack_rows(char *dst, const uint16_t *src, int64_t ld, int64_t rows, int64_t k) {
    int64_t whole = k / AMX_K, left = k % AMX_K, r = 0;
    __mmask32 first = (__mmask32)((1ull << left) - 1);
    for (; r < rows; r++, dst += AMX_ROW_BYTES, src += ld) {
        for (int64_t s = 0; s < whole; s++) {
            __builtin_prefetch(src + AMX_ROWS * ld + s * AMX_K);
            _mm512_store_si512(dst + s * TILE_BYTES, _mm512_loadu_si512(src + s * AMX_K));
        }
        if (left)
            _mm512_store_si512(dst + whole * TILE_BYTES,
                               _mm512_maskz_loadu_epi16(first, src + whole * AMX_K));
    }
    for (; r < AMX_ROWS; r++, dst += AMX_ROW_BYTES)
        for (int64_t s = 0; s * AMX_K < k; s++)
            _mm512_store_si512(dst + s * TILE_BYTES, _mm512_setzero_si512());
}

/* All rows; element (r, k) at src[k * ld + r]. Two rows of src become pairs of k, and 16 pairs of 16 rows are
 * turned. */
static void pack_columns(char *dst, const uint16_t *src, int64_t ld, int64_t rows, int64_t k) {
    float pairs[AMX_K / 2 * BLOCK] __attribute__((aligned(64)));
    int64_t group = round_up(k, AMX_K) / AMX_K * TILE_BYTES;
    for (int64_t k0 = 0; k0 < k; k0 += AMX_K, dst += TILE_BYTES) {
        for (int64_t i = k0 + AMX_K; i < k0 + 2 * AMX_K && i < k; i++)
            for (int64_t r = 0; r < rows; r += BLOCK) __builtin_prefetch(src + i * ld + r);
        for (int64_t r = 0; r < rows; r += BLOCK) {
            char *to = dst + r / AMX_ROWS * group;
            for (int64_t u = 0, at = k0; u < AMX_K / 2; u++, at += 2)
                pack_row(pairs + u * BLOCK, BLOCK, src, at * ld + r, ld, at < k ? rows - r : 0,
                         k - at, DT_BF16, true);
            pack_quarters((float *)(void *)to, AMX_ROWS, pairs, BLOCK, AMX_ROWS, 4);
            pack_quarters((float *)(void *)(to + group), AMX_ROWS, pairs + AMX_ROWS, BLOCK,
                          AMX_ROWS, 4);
        }
    }
}

/* Rows [i0, i0 + rows) of A, padded to whole blocks. */
static void pack_a(const pass *p, char *dst, int64_t i0, int64_t rows) {
    const gemm_args *g = p->g;
    const uint16_t *a = g->a;
    if (g->a_trans) {
        pack_columns(dst, a + p->k0 * g->lda + i0, g->lda, rows, p->k);
        return;
    }
    for (int64_t r = 0; r < round_up(rows, BLOCK); r += AMX_ROWS, dst += p->steps * TILE_BYTES)
        pack_rows(dst, a + (i0 + r) * g->lda + p->k0, g->lda, within(rows - r, 0, AMX_ROWS), p->k);
}

/* The panel of columns [j, j + BLOCK) of the pass. */
static void pack_b(const pass *p, int64_t j) {
    const gemm_args *g = p->g;
    const uint16_t *b = g->b;
    float *dst = (float *)(void *)(p->packed_b + j * p->steps * AMX_K * 2);
    int64_t cols = p->cols - j < BLOCK ? p->cols - j : BLOCK, col = p->j0 + j;
    int64_t units = pack_units(p->k, true), whole = p->steps * AMX_K / 2;
    if (g->b_trans)
        pack_transposed(dst, BLOCK, b + col * g->ldb + p->k0, g->ldb, cols, p->k, DT_BF16);
    else
        pack_r_contiguous(dst, BLOCK, b + p->k0 * g->ldb + col, g->ldb, cols, p->k, DT_BF16);
    memset(dst + units * BLOCK, 0, (size_t)((whole - units) * BLOCK) * sizeof(float));
}

/* ---- from the buffer of sums to C ---- */

/* A block of C, of which rows x cols exist. */
typedef struct block {
    int64_t row, col, rows, cols;
} block;

static bool is_whole(const block *o) {
    return o->rows == BLOCK && o->cols == BLOCK;
}

/* A whole block on its way, from the row that comes next on. Without a block, only c_bytes counts. */
typedef struct way {
    const float *sums;
    char *c;
    const char *plus;            /* NULL: nothing is added */
    int64_t rows;                /* still to come */
    int64_t c_bytes, plus_bytes; /* between rows */
    vf bias[2];
} way;

static char *place_of(const gemm_args *g, const block *o) {
    return (char *)g->c + (o->row * g->ldc + o->col) * v_element_bytes(g->c_dt);
}

static way way_of(const pass *p, const block *o, const float *sums) {
    int64_t bytes = v_element_bytes(p->g->c_dt);
    way w = {.c_bytes = p->g->ldc * bytes, .bias = {v_zero(), v_zero()}};
    if (o->rows == 0) return w;
    w.sums = sums, w.c = place_of(p->g, o), w.rows = BLOCK;
    if (p->plus) w.plus = (const char *)p->plus + (o->row * p->ldp + o->col) * bytes;
    w.plus_bytes = p->plus ? p->ldp * bytes : 0;
    if (p->bias) w.bias[0] = v_load(p->bias + o->col), w.bias[1] = v_load(p->bias + o->col + VW);
    return w;
}

/* plain: there is no bias, and nothing is added. */
V_INLINE void store_row(way *w, bool plain, dtype dt) {
    vf low = v_load(w->sums), high = v_load(w->sums + VW);
    if (!plain) {
        low += w->bias[0], high += w->bias[1];
        if (w->plus) low += v_get(w->plus, 0, dt), high += v_get(w->plus, VW, dt);
        w->plus += w->plus_bytes;
    }
    if (dt == DT_BF16) {
        _mm512_storeu_si512(w->c, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    } else {
        v_put(w->c, 0, low, dt);
        v_put(w->c, VW, high, dt);
    }
    w->sums += BLOCK, w->c += w->c_bytes, w->rows--;
}

/* The part of a block that exists. */
V_INLINE void store_edge(const pass *p, const block *o, const float *sums, dtype dt) {
    for (int64_t i = 0; i < o->rows; i++, sums += BLOCK) {
        int64_t at = (o->row + i) * p->g->ldc + o->col, from = (o->row + i) * p->ldp + o->col;
        for (int64_t j = 0; j < o->cols; j += VW) {
            int64_t n = o->cols - j < VW ? o->cols - j : VW;
            vf v = v_load(sums + j);
            if (p->bias) v += v_get_n(p->bias, o->col + j, n, DT_F32);
            if (p->plus) v += v_get_n(p->plus, from + j, n, dt);
            v_put_n(p->g->c, at + j, v, n, dt);
        }
    }
}

/* What is in the buffer, if there is something. */
static void store_block(const pass *p, const block *o, const float *sums) {
    dtype dt = p->g->c_dt;
    if (!is_whole(o)) {
        dt == DT_BF16 ? store_edge(p, o, sums, DT_BF16) : store_edge(p, o, sums, DT_F32);
        return;
    }
    way w = way_of(p, o, sums);
    while (w.rows > 0) dt == DT_BF16 ? store_row(&w, false, DT_BF16) : store_row(&w, false, DT_F32);
}

/* ---- products ---- */

/* What is fetched at each step: the panel of B that comes next, and the rows of A. */
typedef struct soon {
    ahead b, a;
} soon;

V_INLINE void fetch_soon(soon *later) {
    ahead_fetch(&later->b);
    ahead_fetch(&later->a);
}

/* Four tiles of sums, `ld` bytes between their rows. The compilers do not know that tiles read and write
 * memory. */
V_INLINE void load_tiles(const char *from, int64_t ld) {
    const char *low = from + AMX_ROWS * ld;
    __asm__ volatile("" : : : "memory");
    _tile_loadd(0, from, (size_t)ld);
    _tile_loadd(1, from + AMX_ROW_BYTES, (size_t)ld);
    _tile_loadd(2, low, (size_t)ld);
    _tile_loadd(3, low + AMX_ROW_BYTES, (size_t)ld);
}

V_INLINE void store_tiles(char *to, int64_t ld) {
    char *low = to + AMX_ROWS * ld;
    _tile_stored(0, to, (size_t)ld);
    _tile_stored(1, to + AMX_ROW_BYTES, (size_t)ld);
    _tile_stored(2, low, (size_t)ld);
    _tile_stored(3, low + AMX_ROW_BYTES, (size_t)ld);
    __asm__ volatile("" : : : "memory");
}

V_INLINE void zero_tiles(void) {
    __asm__ volatile("" : : : "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* A step of k; group: bytes from 16 rows of A to the next. */
V_INLINE void multiply_step(const char *a, int64_t group, const char *b) {
    _tile_loadd(6, b, SUMS_LD);
    _tile_loadd(4, a, AMX_ROW_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + AMX_ROW_BYTES, SUMS_LD);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + group, AMX_ROW_BYTES);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* A share of the places of a block in C are asked for: c, rows of c_bytes; a row may lie on a line more than it
 * is long. Returns where the next share begins. */
V_INLINE const char *fetch_rows(const char *c, int64_t c_bytes, int64_t rows, dtype dt) {
    for (int64_t i = 0; i < rows; i++, c += c_bytes) {
        __builtin_prefetch(c, 1);
        if (dt != DT_F32) continue;
        __builtin_prefetch(c + AMX_ROW_BYTES, 1);
        __builtin_prefetch(c + 2 * AMX_ROW_BYTES - 1, 1);
    }
    return c;
}

/* A block of f32, added to what stands in C if the pass adds. next: the place of the block that follows. */
static void multiply_in_place(const pass *p, const char *a, const char *b, const block *o,
                              const char *next, soon *later) {
    int64_t group = p->steps * TILE_BYTES, ld = p->g->ldc * (int64_t)sizeof(float);
    char *c = place_of(p->g, o);
    if (p->plus)
        load_tiles(c, ld);
    else
        zero_tiles();
    for (int64_t s = 0; s < p->steps; s++, a += TILE_BYTES, b += 2 * TILE_BYTES) {
        multiply_step(a, group, b);
        next = fetch_rows(next, ld, p->each, DT_F32);
        fetch_soon(later);
    }
    store_tiles(c, ld);
}

/* A block into the buffer. Meanwhile the block before leaves it on its way w, and the place in C where this
 * one will go is fetched. */
V_INLINE void multiply_block(const pass *p, const char *a, const char *b, float *sums, way w,
                             const char *place, soon *later, bool plain, dtype dt) {
    int64_t group = p->steps * TILE_BYTES, steps = p->steps, each = p->each, c_bytes = w.c_bytes;
    zero_tiles();
    for (int64_t s = 0; s < steps; s++, a += TILE_BYTES, b += 2 * TILE_BYTES) {
        multiply_step(a, group, b);
        place = fetch_rows(place, c_bytes, each, dt);
        fetch_soon(later);
        for (int64_t i = 0; i < each && w.rows > 0 && s >= SETTLED; i++) store_row(&w, plain, dt);
    }
    while (w.rows > 0) store_row(&w, plain, dt);
    store_tiles((char *)sums, SUMS_LD);
}

/* Not inlined, so that nothing else competes for registers. */
typedef void multiply_fn(const pass *p, const char *a, const char *b, float *sums, way w,
                         const char *place, soon *later);
#define MULTIPLY_FN __attribute__((noinline)) static void
MULTIPLY_FN multiply_plain(const pass *p, const char *a, const char *b, float *sums, way w,
                           const char *place, soon *later) {
    multiply_block(p, a, b, sums, w, place, later, true, DT_BF16);
}
MULTIPLY_FN multiply_bf16(const pass *p, const char *a, const char *b, float *sums, way w,
                          const char *place, soon *later) {
    multiply_block(p, a, b, sums, w, place, later, false, DT_BF16);
}
MULTIPLY_FN multiply_f32(const pass *p, const char *a, const char *b, float *sums, way w,
                         const char *place, soon *later) {
    multiply_block(p, a, b, sums, w, place, later, false, DT_F32);
}

static multiply_fn *choose_multiply(const pass *p) {
    if (p->g->c_dt == DT_F32) return multiply_f32;
    return p->bias || p->plus ? multiply_bf16 : multiply_plain;
}

/* A panel of B, to be fetched while `rows` rows are multiplied with the one before. */
static ahead next_panel(const pass *p, int64_t panel, int64_t rows) {
    int64_t bytes = BLOCK * p->steps * AMX_K * 2, blocks = (rows + BLOCK - 1) / BLOCK;
    return ahead_of(p->packed_b + panel * bytes, 1, bytes, bytes, blocks * p->steps);
}

/* Rows [i0, i0 + rows) of A, packed, times panels [panel, end) of B. */
static void run_panels(const pass *p, const char *a, float *sums, int64_t i0, int64_t rows,
                       int64_t panel, int64_t end, soon *later) {
    bool in_place = p->g->c_dt == DT_F32 && !p->bias && (!p->plus || p->plus == p->g->c);
    multiply_fn *multiply = choose_multiply(p);
    int64_t first = panel;
    block before = {0};
    for (; panel < end; panel++) {
        int64_t j = panel * BLOCK;
        const char *b = p->packed_b + j * p->steps * AMX_K * 2, *left = a;
        later->b = next_panel(p, panel + 1 < end ? panel + 1 : first, rows);
        for (int64_t i = 0; i < rows; i += BLOCK, left += 2 * p->steps * TILE_BYTES) {
            block o = {.row = i0 + i, .col = p->j0 + j};
            o.rows = within(rows - i, 0, BLOCK), o.cols = within(p->cols - j, 0, BLOCK);
            if (in_place && is_whole(&o)) {
                bool last = i + BLOCK >= rows;
                block next = {.row = last ? i0 : o.row + BLOCK, .col = o.col + last * BLOCK};
                multiply_in_place(p, left, b, &o, place_of(p->g, &next), later);
                continue;
            }
            if (before.rows && !is_whole(&before)) {
                store_block(p, &before, sums);
                before.rows = 0;
            }
            multiply(p, left, b, sums, way_of(p, &before, sums), place_of(p->g, &o), later);
            before = o;
        }
    }
    store_block(p, &before, sums);
}

/* ---- the whole ---- */

/* next: the task that this thread will probably get next. */
static void run_task(const pass *p, const blocking *b, char *mine, const task *t,
                     const task *next) {
    float *sums = (float *)(void *)(mine + b->rows * b->k * 2);
    soon later = {0};
    int64_t steps = (t->end - t->panel) * ((t->rows + BLOCK - 1) / BLOCK) * p->steps;
    later.a = ahead_of_a(p->g, next->row, next->rows, p->k0, p->k, steps);
    pack_a(p, mine, t->row, t->rows);
    run_panels(p, mine, sums, t->row, t->rows, t->panel, t->end, &later);
}

static pass make_pass(const gemm_args *g, const blocking *b, int64_t j0, int64_t k0,
                      char *packed_b) {
    pass p = {.g = g, .j0 = j0, .k0 = k0, .packed_b = packed_b};
    bool again = g->accumulate || k0 > 0;
    p.cols = within(g->n - j0, 0, b->nc);
    p.k = within(g->k - k0, 0, b->k);
    p.steps = round_up(p.k, AMX_K) / AMX_K;
    p.each = (BLOCK + p.steps - 1) / p.steps;
    p.bias = k0 == 0 ? g->bias : NULL;
    p.plus = again ? g->c : g->res, p.ldp = again ? g->ldc : g->ldr;
    return p;
}

void CPU_FN(gemm_tiles)(int threads, const gemm_args *g, void *ws) {
    blocking b = choose_blocking(g->n, g->k, g->c_dt);
    char *packed_b = ws, *packed_a = packed_b + b.k * b.nc * 2;
    row_limits by = {.tile = BLOCK, .most = b.rows, .least = LEAST_ROWS};
    threads = product_threads(threads, g->m, g->n, g->k);
#pragma omp parallel num_threads(threads)
    {
        char *mine = packed_a + omp_get_thread_num() * thread_bytes(&b);
        amx_begin();
        for (int64_t j0 = 0; j0 < g->n; j0 += b.nc) {
            for (int64_t k0 = 0; k0 < g->k; k0 += b.k) {
                pass p = make_pass(g, &b, j0, k0, packed_b);
                sharing s = share_out(g->m, (p.cols + BLOCK - 1) / BLOCK, &by, threads);
#pragma omp for schedule(static)
                for (int64_t j = 0; j < p.cols; j += BLOCK) pack_b(&p, j);
#pragma omp for schedule(dynamic)
                for (int64_t i = 0; i < sharing_tasks(&s); i++) {
                    task t = task_at(&s, i), next = task_at(&s, i + threads);
                    run_task(&p, &b, mine, &t, &next);
                }
            }
        }
        amx_end();
    }
}

void CPU_FN(gemm_packed)(int threads, const gemm_args *g, void *ws) {
    if (g->m < FEW_ROWS || g->k == 0)
        gemm_packed_avx512_bf16(threads, g, ws);
    else
        CPU_FN(gemm_tiles)(threads, g, ws);
}
