/* EXPERT_LINEAR and EXPERT_SUM. The first is a product for each expert with the rows that have picked it, 2 M I O FLOPs in
 * all. A row's bits do not depend on how many rows its expert has.
 *   packed   experts with many rows one after the other with all threads, the others side by side, a thread each
 *   by row   for few rows, as in decoding, and for weights in blocks: pieces of the experts that have rows are shared
 *            out, so that all threads read weights even if there is one such expert
 * The second is bound by memory: k rows are read for each that is written. */
#include <omp.h>

#include "op/cpu/ops.h"
#include "op/cpu/parts.h"
#include "op/cpu/rows.h"
#include "op/cpu/tables.h"

/* ---- products ---- */

/* Rows from which all threads share an expert. */
enum { MANY_ROWS = 192 };

typedef enum expert_phase { EXPERT_FORWARD, EXPERT_INPUT, EXPERT_WEIGHT } expert_phase;

/* The machine's own: with AMX this file serves bf16 without being compiled for it. */
static const cpu_kernels *kernels_for(const dev *d, dtype x) {
    return cpu_kernels_of(dev_isa(d), x);
}

static const int32_t *starts_of(const op_call *c) {
    return c->in[2].data;
}

static const void *at_row(const tensor *t, int64_t row) {
    return (const char *)t->data + row * t->ld * (int64_t)dtype_bytes(t->dt);
}

/* The operand B: the matrix of expert e, in the format of x or in another. */
static void set_weight(gemm_args *g, const op_call *c, int64_t e, dtype x) {
    const tensor *w = &c->in[1];
    g->b = op_expert_at(c->attr, w, e), g->ldb = w->ld, g->ab_dt = x;
    if (w->dt != x) g->b_stored = w->dt;
}

static gemm_args forward_of(const op_call *c, int64_t e) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int64_t first = starts_of(c)[e];
    gemm_args g = {.m = starts_of(c)[e + 1] - first, .n = y->cols, .k = x->cols, .b_trans = true};
    g.a = at_row(x, first), g.lda = x->ld;
    g.c = (void *)(uintptr_t)at_row(y, first), g.ldc = y->ld, g.c_dt = y->dt;
    set_weight(&g, c, e, x->dt);
    return g;
}

static gemm_args input_of(const op_call *c, int64_t e) {
    const tensor *dy = &c->dout[0], *dx = &c->din[0];
    int64_t first = starts_of(c)[e];
    gemm_args g = {.m = starts_of(c)[e + 1] - first, .n = dx->cols, .k = dy->cols};
    g.a = at_row(dy, first), g.lda = dy->ld;
    g.c = (void *)(uintptr_t)at_row(dx, first), g.ldc = dx->ld, g.c_dt = dx->dt;
    g.accumulate = op_accumulates(c, 0);
    set_weight(&g, c, e, dy->dt);
    return g;
}

static gemm_args weight_of(const op_call *c, int64_t e) {
    const tensor *dy = &c->dout[0], *x = &c->in[0], *dw = &c->din[1];
    int64_t first = starts_of(c)[e], O = dy->cols;
    gemm_args g = {.m = O, .n = x->cols, .k = starts_of(c)[e + 1] - first};
    g.a = at_row(dy, first), g.lda = dy->ld, g.a_trans = true, g.b = at_row(x, first),
    g.ldb = x->ld;
    g.ab_dt = dy->dt, g.c = op_expert_at(c->attr, dw, e), g.ldc = dw->ld, g.c_dt = DT_F32;
    g.accumulate = op_accumulates(c, 1);
    return g;
}

/* Rows behind those of all experts. */
static void zero_rows(const tensor *t, int64_t first) {
    size_t bytes = (size_t)t->cols * dtype_bytes(t->dt);
    for (int64_t m = first; m < t->rows; m++) memset((void *)(uintptr_t)at_row(t, m), 0, bytes);
}

/* An expert that no token has picked has a gradient of 0. */
static void no_rows(const gemm_args *g) {
    if (g->accumulate) return;
    for (int64_t i = 0; i < g->m; i++)
        memset((float *)g->c + i * g->ldc, 0, (size_t)g->n * sizeof(float));
}

static void run_expert(const op_call *c, expert_phase phase, int64_t e, int threads, void *ws) {
    gemm_args g = phase == EXPERT_FORWARD ? forward_of(c, e)
                  : phase == EXPERT_INPUT ? input_of(c, e)
                                          : weight_of(c, e);
    if (phase == EXPERT_WEIGHT && g.k == 0)
        no_rows(&g);
    else if (g.m > 0)
        kernels_for(c->run->dev, g.ab_dt)->gemm_tiles(threads, &g, ws);
}

static int64_t rows_of(const op_call *c, int64_t e) {
    return starts_of(c)[e + 1] - starts_of(c)[e];
}

static void run_experts(const op_call *c, expert_phase phase) {
    int64_t E = c->attr->experts.n;
    int threads = call_threads(c);
    int64_t room = c->ws_bytes / threads / 64 * 64;
    for (int64_t e = 0; e < E; e++)
        if (rows_of(c, e) >= MANY_ROWS) run_expert(c, phase, e, threads, c->ws);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t e = 0; e < E; e++)
        if (rows_of(c, e) < MANY_ROWS)
            run_expert(c, phase, e, 1, (char *)c->ws + omp_get_thread_num() * room);
}

/* ---- by row ---- */

/* With few rows for each expert packing its weights costs more than the product; weights in blocks are never packed. */
static bool is_by_row(const op_attr *attr, dtype x, dtype w, int64_t rows) {
    bool few = op_experts_have_few(rows, attr->experts.n);
    bool blocks = dtype_is_blocks(w) && !dtype_is_listed(w);
    return attr->experts.by_row || few || blocks || (w != x && !CPU_STORED);
}

/* How work is shared out: columns of a piece of an expert's y. */
typedef struct sharing {
    int32_t *active; /* experts that have rows, but fewer than BY_ROW_MANY */
    int64_t n, pieces, cols;
} sharing;

/* Some pieces for each thread, of whole tiles of columns. */
static sharing share_out(const op_call *c, int threads) {
    sharing s = {.active = c->ws};
    int64_t O = c->out[0].cols;
    for (int32_t e = 0; e < c->attr->experts.n; e++)
        if (rows_of(c, e) > 0 && rows_of(c, e) < BY_ROW_MANY) s.active[s.n++] = e;
    int64_t want = s.n ? (4 * threads + s.n - 1) / s.n : 1;
    s.cols = ((O + want - 1) / want + 31) / 32 * 32;
    s.pieces = (O + s.cols - 1) / s.cols;
    return s;
}

static int64_t list_bytes(const op_attr *attr) {
    return ((int64_t)sizeof(int32_t) * attr->experts.n + 63) / 64 * 64;
}

/* Columns [j, j + cols) of the product. */
static gemm_args columns_of(const gemm_args *whole, int64_t j, int64_t cols) {
    gemm_args g = *whole;
    dtype b = g.b_stored == DT_F32 ? g.ab_dt : g.b_stored;
    g.n = g.n - j < cols ? g.n - j : cols;
    g.b = (const char *)g.b + j * dtype_span_bytes(b, g.ldb);
    g.c = (char *)g.c + j * (int64_t)dtype_bytes(g.c_dt);
    return g;
}

static void forward_by_row(const op_call *c) {
    int threads = call_threads(c);
    sharing s = share_out(c, threads);
    char *ws = (char *)c->ws + list_bytes(c->attr);
    int64_t room = (c->ws_bytes - list_bytes(c->attr)) / threads / 64 * 64;
    for (int64_t e = 0; e < c->attr->experts.n; e++) {
        if (rows_of(c, e) < BY_ROW_MANY) continue;
        gemm_args g = forward_of(c, e);
        CPU_FN(product_by_row)(c->run->dev, c->attr->experts.rounds, threads, &g, ws);
    }
    if (c->in[0].rows * c->in[0].cols * c->out[0].cols < SMALL_PRODUCT / 16) threads = 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t t = 0; t < s.n * s.pieces; t++) {
        gemm_args whole = forward_of(c, s.active[t / s.pieces]);
        gemm_args g = columns_of(&whole, t % s.pieces * s.cols, s.cols);
        CPU_FN(product_by_row)
        (c->run->dev, c->attr->experts.rounds, 1, &g, ws + omp_get_thread_num() * room);
    }
}

/* ---- the op ---- */

static void expert_linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *w = &c->in[1];
    zero_rows(&c->out[0], starts_of(c)[c->attr->experts.n]);
    if (!CPU_STORED && w->dt != x->dt)
        op_find_reference(OP_EXPERT_LINEAR, DT_F32)->fwd(c);
    else if (is_by_row(c->attr, x->dt, w->dt, x->rows))
        forward_by_row(c);
    else
        run_experts(c, EXPERT_FORWARD);
}
static void expert_linear_bwd_input(const op_call *c) {
    if (!c->din[0].data) return;
    if (!op_accumulates(c, 0)) zero_rows(&c->din[0], starts_of(c)[c->attr->experts.n]);
    if (!CPU_STORED && c->in[1].dt != c->dout[0].dt)
        op_find_reference(OP_EXPERT_LINEAR, DT_F32)->bwd_input(c);
    else
        run_experts(c, EXPERT_INPUT);
}
static void expert_linear_bwd_weight(const op_call *c) {
    if (c->din[1].data) run_experts(c, EXPERT_WEIGHT);
}

/* ---- workspace ---- */

/* Backward always packs. */
static bool phase_is_by_row(const op_infer *io, expert_phase phase) {
    return phase == EXPERT_FORWARD &&
           is_by_row(io->attr, io->in[0].dt, io->in[1].dt, io->in[0].rows);
}

/* Bytes for a product of up to `rows` rows. Fewer can need more: of a gradient of weights they are k, which is cut evenly, so
 * that any number can be the worst; else they are shared out, and what a thread gets repeats every SPAN rows for each. */
enum { SPAN = 128 };
static int64_t product_bytes(const op_infer *io, int threads, int64_t rows, expert_phase phase) {
    int64_t I = io->in[0].cols, O = io->in[1].rows / io->attr->experts.n, most = 0;
    dtype dt = io->in[0].dt, w = io->in[1].dt;
    if (phase_is_by_row(io, phase))
        return CPU_FN(product_by_row_ws)(io->dev, io->attr->experts.rounds, threads, rows, O, I, dt,
                                         w);
    const cpu_kernels *of = kernels_for(io->dev, dt);
    int64_t least = phase == EXPERT_WEIGHT ? 1 : rows - SPAN * (int64_t)threads;
    for (int64_t n = least > 1 ? least : 1; n <= rows; n++) {
        gemm_args g = phase == EXPERT_FORWARD ? gemm_args_of(GEMM_FORWARD, n, O, I, dt)
                      : phase == EXPERT_INPUT ? gemm_args_of(GEMM_BACKWARD_INPUT, n, I, O, dt)
                                              : gemm_args_of(GEMM_BACKWARD_WEIGHT, O, I, n, dt);
        int64_t bytes = of->gemm_ws(threads, &g);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* All rows may go to one expert; of the others, which run side by side, each has few. */
static int64_t room_for(const op_infer *io, int64_t rows, expert_phase phase) {
    int threads = dev_threads(io->dev);
    int64_t most = phase_is_by_row(io, phase) ? BY_ROW_MANY - 1 : MANY_ROWS;
    int64_t few = rows < most ? rows : most;
    int64_t all = product_bytes(io, threads, rows, phase);
    int64_t one = (product_bytes(io, 1, few, phase) + 63) / 64 * 64 * threads;
    return one > all ? one : all;
}

static void expert_linear_workspace(const op_infer *io, int64_t ws[3]) {
    for (int p = 0; p < 3; p++) ws[p] = room_for(io, io->in[0].rows, (expert_phase)p);
    ws[0] += list_bytes(io->attr);
}

const op_impl CPU_FN(cpu_expert_linear) = {expert_linear_fwd, expert_linear_bwd_input,
                                           expert_linear_bwd_weight, expert_linear_workspace};

/* ---- sums ---- */

static const int32_t *slots_of(const op_call *c, int64_t n) {
    return (const int32_t *)c->in[2].data + n * c->in[2].ld;
}

static const float *weights_of(const tensor *t, int64_t n) {
    return (const float *)t->data + n * t->ld;
}

V_INLINE void sum_row(const op_call *c, int64_t n, dtype dt) {
    const tensor *z = &c->in[0], *res = &c->in[3], *y = &c->out[0];
    const float *weight = weights_of(&c->in[1], n);
    const int32_t *slot = slots_of(c, n);
    int64_t k = c->in[1].cols;
    FOR_VECTORS(y->cols, j, left) {
        vf sum = v_zero();
        for (int64_t i = 0; i < k; i++)
            if (slot[i] >= 0) sum = v_fma(v_set1(weight[i]), row_get(z, slot[i], j, left, dt), sum);
        if (res->data) sum += row_get(res, n, j, left, dt);
        row_put(y, n, j, sum, left, false, dt);
    }
}

static void expert_sum_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
#pragma omp parallel for num_threads(loop_threads(c, c->in[0].rows * y->cols)) schedule(static)
    for (int64_t n = 0; n < y->rows; n++) WITH_DTYPE(y->dt, sum_row, c, n);
}

V_INLINE void give_row(const op_call *c, int64_t n, dtype dt) {
    const tensor *z = &c->in[0], *dy = &c->dout[0], *dz = &c->din[0], *dw = &c->din[1];
    for (int64_t i = 0; i < c->in[1].cols; i++) {
        int64_t slot = slots_of(c, n)[i];
        vf weight = v_set1(weights_of(&c->in[1], n)[i]), dot = v_zero();
        FOR_VECTORS(dy->cols, j, left) {
            vf g = row_get(dy, n, j, left, dt);
            if (slot < 0) break;
            if (dz->data) row_put(dz, slot, j, weight * g, left, op_accumulates(c, 0), dt);
            if (dw->data) dot = v_fma(row_get(z, slot, j, left, dt), g, dot);
        }
        if (!dw->data) continue;
        float *to = (float *)dw->data + n * dw->ld + i;
        *to = v_sum(dot) + (op_accumulates(c, 1) ? *to : 0.0f);
    }
}

static void expert_sum_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0], *dz = &c->din[0];
    if (dz->data && !op_accumulates(c, 0)) zero_rows(dz, op_expert_rows(&c->in[2]));
#pragma omp parallel for num_threads(loop_threads(c, c->in[0].rows * dy->cols)) schedule(static)
    for (int64_t n = 0; n < dy->rows; n++) WITH_DTYPE(dy->dt, give_row, c, n);
}

const op_impl CPU_FN(cpu_expert_sum) = {expert_sum_fwd, expert_sum_bwd, NULL, NULL};
