/* EXPERT_LINEAR: y[m] = x[m] w_e^T for the rows m of expert e, starts[e] <= m < starts[e+1]; dx[m] = dy[m] w_e;
 * dw_e = dy^T x over these rows. 2 M I O FLOPs each.
 *
 * Where experts begin is known on the device alone. So a launch has as many tiles of rows as there can be: tile t of
 * expert e is number starts[e] / R + e + t, R rows a tile. These numbers never meet, and there are M / R + E + 1 of
 * them; the last ones are those of the rows behind all experts, which are 0. A block whose number is nobody's ends.
 *
 *   on tensor cores   expert_mma.h: 16-bit storage, rows of whole 16-byte pieces
 *   plain             all else: fp32, odd shapes, and w in formats of files; tiles in shared memory, 16 in k at a time,
 *                     of which a thread makes 4 x 4 numbers
 *   by row            attr.by_row, and few rows for each expert, as in decoding: a warp makes one column of up to 4 rows
 *                     of an expert, in one order of sums; w is read once for these, which is what limits it
 *
 * Plain and by row, w is read where it lies, 8 elements at a time (weight.h). */
#include "op/cuda/weight.h"
#if !defined(CUDA_STORE_F32)
#include "op/cuda/expert_mma.h"
#endif

enum { EXPERTS_AT = 64, EXPERT_ROWS = 4, EXPERT_ROW_WARPS = 4 };

/* C = A B as in expert_mma.h. */
typedef struct expert_args {
    mat a, c; /* x and y; dy and dx; dy and dw */
    mat x;    /* weight gradient: B */
    const int32_t *starts;
    const char *w;
    int64_t w_row_bytes, step; /* step: bytes from expert to expert, if these lie evenly */
    int64_t at[EXPERTS_AT];    /* else where each of [first, end) begins */
    int64_t rows;              /* M */
    int32_t E, first, end, even;
    int32_t m, n, k;      /* m: of the weight gradient; k: of the others */
    int32_t dt;           /* of w, where it is not STORE; else WEIGHT_OWN */
    int32_t wide, w_wide; /* rows may be read 8 numbers at a time */
    int32_t w_turned, add;
} expert_args;

/* Where expert e begins in rows; of those behind all experts, E, too. */
GPU_FN int64_t start_of(const expert_args *a, int32_t e) {
    return e <= a->E ? a->starts[e] : a->rows;
}

GPU_FN const char *expert_w(const expert_args *a, int32_t e) {
    return a->w + (a->even ? e * a->step : a->at[e - a->first]);
}

/* Whose tile of R rows a number is; rows [m0, end) are its own and what is behind it in its expert. */
typedef struct expert_rows {
    int32_t e;
    int64_t m0, end;
} expert_rows;

GPU_FN expert_rows rows_of_tile(const expert_args *a, int64_t number, int32_t R) {
    int32_t low = 0, high = a->E + 1;
    expert_rows r;
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (start_of(a, middle) / R + middle <= number)
            low = middle;
        else
            high = middle;
    }
    int64_t start = start_of(a, low);
    r.e = low, r.end = start_of(a, low + 1);
    r.m0 = start + (number - (start / R + low)) * R;
    if (r.e < a->E ? r.e < a->first || r.e >= a->end : a->end < a->E) r.end = r.m0;
    return r;
}

/* ---- by row ---- */

/* Numbers [i, i + 8) of row o of expert e's matrix, which has n columns. */
GPU_FN void w_read8(const expert_args *a, int32_t e, int64_t o, int64_t i, int64_t n,
                    float out[STORED_STEP]) {
    weight_read8(expert_w(a, e) + o * a->w_row_bytes, a->dt, i, n, a->w_wide, out);
}

KERNEL(expert_by_row, expert_args, EXPERT_ROW_WARPS *GPU_WARP) {
    int64_t across = (a->n + EXPERT_ROW_WARPS - 1) / EXPERT_ROW_WARPS;
    expert_rows r = rows_of_tile(a, block_x() / across, EXPERT_ROWS);
    int64_t o = block_x() % across * EXPERT_ROW_WARPS + warp();
    float sum[EXPERT_ROWS], w[STORED_STEP], x[STORED_STEP];
    if (o >= a->n || r.m0 >= r.end) return;
    for (int j = 0; j < EXPERT_ROWS; j++) sum[j] = 0;
    for (int64_t i = (int64_t)lane() * STORED_STEP; i < a->k && r.e < a->E;
         i += GPU_WARP * STORED_STEP) {
        w_read8(a, r.e, o, i, a->k, w);
        for (int j = 0; j < EXPERT_ROWS; j++) {
            if (r.m0 + j >= r.end) break;
            read8(row_of(a->a, r.m0 + j), i, a->k, a->wide, x);
            for (int s = 0; s < STORED_STEP; s++) sum[j] += x[s] * w[s];
        }
    }
    for (int j = 0; j < EXPERT_ROWS && r.m0 + j < r.end; j++) {
        float v = warp_sum(sum[j]);
        if (lane() == 0) row_of(a->c, r.m0 + j)[o] = store(v);
    }
}

/* ---- plain ---- */

/* Rows and columns of a block's tile, for 256 threads and for 32. */
enum { PLAIN_K = 16, PLAIN_BIG = 64, PLAIN_M = 16, PLAIN_N = 32, PLAIN_EACH = 4 };

/* Where a plain block works: C's tile from row m0 and column n0 on, m x n of it. */
typedef struct plain_tile {
    int32_t e, m, n;
    int64_t m0, n0, k0, K; /* k0: A's first row, if it lies in rows of k */
} plain_tile;

/* A tile of 16 in k, turned so that k is its row: 8 numbers along the memory's rows at a time. which 0: A, 1: B. */
GPU_FN void plain_fetch(const expert_args *a, const plain_tile *t, int which, bool weight,
                        float *to, int32_t across, int64_t k) {
    bool turned = weight || (which == 1 && a->w_turned);
    int32_t rows = turned ? PLAIN_K : across, steps = (turned ? across : PLAIN_K) / STORED_STEP;
    int64_t n = which == 0 ? t->m : t->n, n0 = which == 0 ? t->m0 : t->n0;
    for (int32_t i = (int32_t)thread_x(); i < rows * steps; i += (int32_t)threads_x()) {
        int32_t r = i / steps, s = i % steps * STORED_STEP;
        float v[STORED_STEP];
        bool exists = turned ? k + r < t->K : r < n;
        for (int j = 0; j < STORED_STEP; j++) v[j] = 0;
        if (exists && weight)
            read8(row_of(which == 0 ? a->a : a->x, t->k0 + k + r), n0 + s, n0 + n, a->wide, v);
        else if (exists && which == 0)
            read8(row_of(a->a, n0 + r), k + s, t->K, a->wide, v);
        else if (exists && turned)
            w_read8(a, t->e, k + r, n0 + s, a->n, v);
        else if (exists)
            w_read8(a, t->e, n0 + r, k + s, t->K, v);
        for (int j = 0; j < STORED_STEP; j++)
            to[turned ? r * across + s + j : (s + j) * across + r] = v[j];
    }
}

/* The block's tile: M x N, a thread has rows and columns that are M / 4 and N / 4 apart. */
GPU_FN void plain_multiply(const expert_args *a, const plain_tile *t, bool weight, int32_t M,
                           int32_t N, float *A, float *B, float c[PLAIN_EACH][PLAIN_EACH]) {
    int32_t i = (int32_t)thread_x() / (N / PLAIN_EACH), j = (int32_t)thread_x() % (N / PLAIN_EACH);
    for (int x = 0; x < PLAIN_EACH * PLAIN_EACH; x++) c[x / PLAIN_EACH][x % PLAIN_EACH] = 0;
    for (int64_t k = 0; k < t->K; k += PLAIN_K) {
        plain_fetch(a, t, 0, weight, A, M, k);
        plain_fetch(a, t, 1, weight, B, N, k);
        sync_block();
        for (int32_t s = 0; s < PLAIN_K; s++) {
            float x[PLAIN_EACH], y[PLAIN_EACH];
            for (int p = 0; p < PLAIN_EACH; p++) x[p] = A[s * M + i + p * (M / PLAIN_EACH)];
            for (int q = 0; q < PLAIN_EACH; q++) y[q] = B[s * N + j + q * (N / PLAIN_EACH)];
            for (int p = 0; p < PLAIN_EACH; p++)
                for (int q = 0; q < PLAIN_EACH; q++) c[p][q] += x[p] * y[q];
        }
        sync_block();
    }
}

GPU_FN void plain_put(const expert_args *a, const plain_tile *t, bool weight, int32_t M, int32_t N,
                      float c[PLAIN_EACH][PLAIN_EACH]) {
    int32_t i = (int32_t)thread_x() / (N / PLAIN_EACH), j = (int32_t)thread_x() % (N / PLAIN_EACH);
    for (int p = 0; p < PLAIN_EACH; p++)
        for (int q = 0; q < PLAIN_EACH; q++) {
            int32_t row = i + p * (M / PLAIN_EACH), col = j + q * (N / PLAIN_EACH);
            if (row >= t->m || col >= t->n) continue;
            if (weight)
                put_f32((float *)a->c.p + (t->e * a->m + t->m0 + row) * a->c.ld + t->n0 + col,
                        c[p][q], a->add);
            else
                put(row_of(a->c, t->m0 + row) + t->n0 + col, c[p][q], a->add);
        }
}

GPU_FN int32_t at_most(int64_t v, int32_t most) {
    return v < most ? (int32_t)v : most;
}

/* Tile `block_x` of M x N numbers; of the rows of no expert K is 0. False: there is no such tile, or nothing to add. */
GPU_FN bool find_tile(const expert_args *a, bool weight, int32_t M, int32_t N, plain_tile *t) {
    int64_t across = (a->n + N - 1) / N, down = (a->m + M - 1) / M, number = block_x() / across;
    t->n0 = block_x() % across * N;
    t->n = at_most(a->n - t->n0, N);
    if (weight) {
        t->e = (int32_t)(number / down), t->m0 = number % down * M, t->m = at_most(a->m - t->m0, M);
        t->k0 = a->starts[t->e], t->K = a->starts[t->e + 1] - t->k0;
        return t->K > 0 || !a->add;
    }
    expert_rows r = rows_of_tile(a, number, M);
    t->e = r.e, t->m0 = r.m0, t->k0 = 0, t->K = r.e < a->E ? a->k : 0;
    t->m = at_most(r.end - r.m0, M);
    return t->m > 0 && (t->K > 0 || !a->add);
}

GPU_FN void plain(const expert_args *a, bool weight, int32_t M, int32_t N, float *A, float *B) {
    plain_tile t;
    float c[PLAIN_EACH][PLAIN_EACH];
    if (!find_tile(a, weight, M, N, &t)) return;
    plain_multiply(a, &t, weight, M, N, A, B, c);
    plain_put(a, &t, weight, M, N, c);
}

#define PLAIN(name, weight, M, N)                                                                  \
    KERNEL(name, expert_args, (M) * (N) / (PLAIN_EACH * PLAIN_EACH)) {                             \
        SHARED(float, A, PLAIN_K *(M));                                                            \
        SHARED(float, B, PLAIN_K *(N));                                                            \
        plain(a, weight, M, N, A, B);                                                              \
    }
PLAIN(expert_plain, false, PLAIN_BIG, PLAIN_BIG)
PLAIN(expert_plain_small, false, PLAIN_M, PLAIN_N)
PLAIN(expert_plain_weight, true, PLAIN_BIG, PLAIN_BIG)
PLAIN(expert_plain_weight_small, true, PLAIN_M, PLAIN_N)

/* ---- on tensor cores ---- */

#if !defined(CUDA_STORE_F32)
GPU_FN void on_tensor_cores(expert_form f, const expert_args *a, STORE *room) {
    bool weight = f.a_turned;
    plain_tile t;
    float c[EXPERT_FM][EXPERT_FN][4];
    expert_operand A, B;
    if (!find_tile(a, weight, f.m, f.n, &t)) return;
    A.p = weight ? row_of(a->a, t.k0) + t.m0 : row_of(a->a, t.m0), A.ld = a->a.ld, A.n = t.m;
    B.n = t.n;
    if (weight) {
        B.p = row_of(a->x, t.k0) + t.n0, B.ld = a->x.ld;
    } else {
        B.ld = a->w_row_bytes / (int64_t)sizeof(STORE);
        B.p = t.K > 0 ? (const STORE *)expert_w(a, t.e) : NULL;
        if (B.p) B.p += f.b_turned ? t.n0 : t.n0 * B.ld;
    }
    expert_multiply(f, c, room, A, B, (int32_t)t.K);
    if (weight)
        expert_put(f, c, (float *)a->c.p + (t.e * a->m + t.m0) * a->c.ld + t.n0, a->c.ld, t.m, t.n,
                   true, a->add);
    else
        expert_put(f, c, row_of(a->c, t.m0) + t.n0, a->c.ld, t.m, t.n, false, a->add);
}

enum { TENSOR_BIG = 128, TENSOR_SMALL = 64 };

/* X(name, threads, rows and columns of a block's tile, A turned, B turned) */
#define EXPERT_MMA(X)                                                                              \
    X(expert_mma_fwd, 256, TENSOR_BIG, false, false)                                               \
    X(expert_mma_fwd_64, 64, TENSOR_SMALL, false, false)                                           \
    X(expert_mma_dx, 256, TENSOR_BIG, false, true)                                                 \
    X(expert_mma_dx_64, 64, TENSOR_SMALL, false, true)                                             \
    X(expert_mma_dw, 256, TENSOR_BIG, true, true)                                                  \
    X(expert_mma_dw_64, 64, TENSOR_SMALL, true, true)
#define X(name, threads, size, a_turned, b_turned)                                                 \
    KERNEL_BLOCKS(name, expert_args, threads, 512 / (threads)) {                                   \
        SHARED_DYNAMIC(STORE, room);                                                               \
        const expert_form f = {size, size, a_turned, b_turned};                                    \
        on_tensor_cores(f, a, room);                                                               \
    }
EXPERT_MMA(X)
#undef X
#endif

#ifndef __CUDACC__
#include "op/cuda/host.h"

/* With fewer rows for each expert than so many, on average, a warp makes a column: reading w limits then. */
enum { EXPERT_FEW = 4 };

typedef enum expert_phase { EXPERT_FORWARD, EXPERT_INPUT, EXPERT_WEIGHT } expert_phase;

/* The matrices of experts lie `step` bytes apart. */
static bool lie_evenly(const op_attr *attr, int64_t *step) {
    const int64_t *at = attr->experts.at;
    if (!at) return true;
    *step = attr->experts.n > 1 ? at[1] : 0;
    for (int32_t e = 0; e < attr->experts.n; e++)
        if (at[e] != e * *step) return false;
    return true;
}

static expert_args expert_open(const op_call *c, expert_phase phase) {
    const tensor *w = &c->in[1], *x = &c->in[0], *dy = &c->dout[0];
    expert_args a = {.starts = c->in[2].data, .w = w->data, .E = c->attr->experts.n, .even = true};
    a.end = a.E, a.w_row_bytes = dtype_span_bytes(w->dt, w->ld);
    a.step = w->rows / a.E * a.w_row_bytes;
    a.even = lie_evenly(c->attr, &a.step);
    a.dt = w->dt == x->dt ? WEIGHT_OWN : (int32_t)w->dt;
    a.w_wide =
        a.dt == WEIGHT_OWN && is_wide(w) && (!c->attr->experts.at || a.step % 16 == 0) && a.even;
    int64_t I = w->cols, O = w->rows / a.E;
    a.a = mat_of(phase == EXPERT_FORWARD ? x : dy);
    a.wide = is_wide(phase == EXPERT_FORWARD ? x : dy);
    a.rows = phase == EXPERT_FORWARD ? x->rows : dy->rows;
    a.c = mat_of(phase == EXPERT_FORWARD ? &c->out[0] : &c->din[phase == EXPERT_INPUT ? 0 : 1]);
    a.n = (int32_t)(phase == EXPERT_FORWARD ? O : I),
    a.k = (int32_t)(phase == EXPERT_INPUT ? O : I);
    a.w_turned = phase == EXPERT_INPUT;
    if (phase == EXPERT_FORWARD) return a;
    a.add = op_accumulates(c, phase == EXPERT_INPUT ? 0 : 1);
    if (phase == EXPERT_WEIGHT) a.x = mat_of(x), a.m = (int32_t)O, a.wide &= is_wide(x);
    return a;
}

/* Experts that do not lie evenly go in turns, which are as long as what their places fill of the arguments. */
static void launch_experts(const op_call *c, const gpu_kernel *k, gpu_grid g, expert_args *a) {
    for (a->first = 0; a->first < a->E && !a->even; a->first += EXPERTS_AT) {
        a->end = a->E - a->first < EXPERTS_AT ? a->E : a->first + EXPERTS_AT;
        for (int32_t e = a->first; e < a->end; e++) a->at[e - a->first] = c->attr->experts.at[e];
        launch(c, k, g, a);
    }
    if (a->even) launch(c, k, g, a);
}

/* As many tiles of so many rows, and columns, as there can be. */
static uint32_t tiles_of(const expert_args *a, int32_t rows, int32_t cols) {
    return (uint32_t)((a->rows / rows + a->E + 1) * ((a->n + cols - 1) / cols));
}

/* Tiles of the weight gradient, which is there for all experts. */
static uint32_t weight_tiles(const expert_args *a, int32_t rows, int32_t cols) {
    return (uint32_t)a->E * blocks_for(a->m, rows) * blocks_for(a->n, cols);
}

static void launch_plain(const op_call *c, expert_args *a, expert_phase phase) {
    if (phase == EXPERT_WEIGHT) {
        bool small = a->m <= PLAIN_BIG / 2 || a->n <= PLAIN_BIG / 2;
        int32_t m = small ? PLAIN_M : PLAIN_BIG, n = small ? PLAIN_N : PLAIN_BIG;
        gpu_grid g = {weight_tiles(a, m, n), 1, 1, (uint32_t)(m * n / 16), 0};
        launch_experts(c, small ? &expert_plain_weight_small : &expert_plain_weight, g, a);
        return;
    }
    bool small = a->rows <= PLAIN_BIG / 2 * a->E || a->n <= PLAIN_BIG / 2;
    int32_t m = small ? PLAIN_M : PLAIN_BIG, n = small ? PLAIN_N : PLAIN_BIG;
    gpu_grid g = {tiles_of(a, m, n), 1, 1, (uint32_t)(m * n / 16), 0};
    launch_experts(c, small ? &expert_plain_small : &expert_plain, g, a);
}

#if !defined(CUDA_STORE_F32)
/* Whether all rows are of whole pieces of 16 bytes. */
static bool for_tensor_cores(const expert_args *a, const tensor *w, expert_phase phase) {
    bool whole = a->wide && a->n % VEC == 0 && w->cols % VEC == 0;
    return phase == EXPERT_WEIGHT ? whole && a->m % VEC == 0 : whole && a->w_wide;
}

static void launch_tensor(const op_call *c, expert_args *a, expert_phase phase) {
    static const gpu_kernel *const kernels[3][2] = {{&expert_mma_fwd, &expert_mma_fwd_64},
                                                    {&expert_mma_dx, &expert_mma_dx_64},
                                                    {&expert_mma_dw, &expert_mma_dw_64}};
    bool weight = phase == EXPERT_WEIGHT;
    int64_t down = weight ? a->m : a->rows / a->E;
    bool small = down <= TENSOR_SMALL || a->n <= TENSOR_SMALL;
    int32_t size = small ? TENSOR_SMALL : TENSOR_BIG;
    gpu_grid g = {weight ? weight_tiles(a, size, size) : tiles_of(a, size, size), 1, 1,
                  small ? 64 : 256, (uint32_t)(4 * size * EXPERT_K * (int32_t)sizeof(STORE))};
    launch_experts(c, kernels[phase][small], g, a);
}
#endif

static void run_tiles(const op_call *c, expert_args *a, expert_phase phase) {
#if !defined(CUDA_STORE_F32)
    if (for_tensor_cores(a, &c->in[1], phase)) {
        launch_tensor(c, a, phase);
        return;
    }
#endif
    launch_plain(c, a, phase);
}

static void expert_fwd(const op_call *c) {
    expert_args a = expert_open(c, EXPERT_FORWARD);
    if (!c->attr->experts.by_row && a.rows > (int64_t)EXPERT_FEW * a.E) {
        run_tiles(c, &a, EXPERT_FORWARD);
        return;
    }
    gpu_grid g = {tiles_of(&a, EXPERT_ROWS, EXPERT_ROW_WARPS), 1, 1, EXPERT_ROW_WARPS * GPU_WARP,
                  0};
    launch_experts(c, &expert_by_row, g, &a);
}

static void expert_bwd_input(const op_call *c) {
    expert_args a = expert_open(c, EXPERT_INPUT);
    if (c->din[0].data) run_tiles(c, &a, EXPERT_INPUT);
}

static void expert_bwd_weight(const op_call *c) {
    expert_args a = expert_open(c, EXPERT_WEIGHT);
    if (c->din[1].data) run_tiles(c, &a, EXPERT_WEIGHT);
}

const op_impl CUDA_IMPL(EXPERT_LINEAR) = {expert_fwd, expert_bwd_input, expert_bwd_weight, NULL};
#endif
