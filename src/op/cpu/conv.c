/* CONV, CONV_STATE: a causal convolution of each column over time, then SiLU. Bound by memory: forward reads W rows, which are in the cache, for each
 * that is written; backward passes once over the rows, a block of columns at a time, and keeps the gradients of the last W rows. Workspace: the taps,
 * turned, and in backward their gradients. */
#include "op/cpu/ops.h"
#include "op/cpu/rows.h"
#include "op/cpu/vmath.h"
#include "op/span.h"

enum { BLOCK = 4 * VW }; /* columns */

/* taps [W, C] of w [C, W]. */
static void turn_taps(float *to, const tensor *w, int64_t W, int64_t C) {
    const float *from = w->data;
    for (int64_t i = 0; i < C; i++)
        for (int64_t j = 0; j < W; j++) to[j * C + i] = from[i * W + j];
}

/* The first of the W taps that counts for row t of sequence b: not before the sequence or its document. */
V_INLINE int64_t first_tap(const op_call *c, int64_t b, int64_t t) {
    const tensor *start = &c->in[2];
    int64_t T = c->attr->conv.T, W = c->attr->conv.W, low = 0;
    if (start->data) low = ((const int32_t *)start->data)[(b * T + t) * start->ld];
    low = low > 0 ? low : 0;
    return low > t - W + 1 ? low - t + W - 1 : 0;
}

/* Columns from j on of row t's sum over taps; n: columns that there are. */
V_INLINE vf convolve(const tensor *x, const float *taps, int64_t W, int64_t row, int64_t first,
                     int64_t j, int64_t n, dtype dt) {
    vf sum = v_zero();
    for (int64_t k = first; k < W; k++)
        sum = v_fma(get_upto(taps, k * x->cols + j, n, DT_F32),
                    row_get(x, row - W + 1 + k, j, n, dt), sum);
    return sum;
}

V_INLINE void forward_row(const op_call *c, int64_t n, dtype dt) {
    const tensor *x = &c->in[0];
    int64_t T = c->attr->conv.T, W = c->attr->conv.W, first = first_tap(c, n / T, n % T);
    FOR_VECTORS(x->cols, j, left) {
        vf s = convolve(x, c->ws, W, n, first, j, left, dt);
        row_put(&c->out[0], n, j, s * v_logistic(s), left, false, dt);
    }
}

static void conv_fwd(const op_call *c) {
    const tensor *x = &c->in[0];
    turn_taps(c->ws, &c->in[1], c->attr->conv.W, x->cols);
#pragma omp parallel for num_threads(loop_threads(c, x->rows * x->cols)) schedule(static)
    for (int64_t n = 0; n < x->rows; n++) WITH_DTYPE(x->dt, forward_row, c, n);
}

/* ---- sequences that go on ---- */

/* Row t of sequence b, which may be one of the state's; a state counts as 0 at position 0. */
V_INLINE vf row_of_sequence(const op_call *c, const op_span *k, int64_t b, int64_t t, int64_t j,
                            int64_t n, dtype dt) {
    int64_t W = c->attr->conv.W;
    if (t >= 0) return row_get(&c->in[1], k->first + t, j, n, dt);
    bool zero = k->pos == 0 && k->rows > 0;
    return zero ? v_zero() : row_get(&c->in[0], b * (W - 1) + t + W - 1, j, n, dt);
}

V_INLINE void continue_columns(const op_call *c, const op_span *k, int64_t b, int64_t j, int64_t n,
                               dtype dt) {
    int64_t W = c->attr->conv.W, cols = c->in[1].cols;
    int64_t end = span_end(k, c->attr->conv.by_row, c->attr->conv.T);
    vf last[OP_MAX_TAPS];
    for (int64_t t = 0; t < k->rows; t++) {
        vf s = v_zero();
        for (int64_t i = 0; i < W; i++)
            s = v_fma(get_upto(c->ws, i * cols + j, n, DT_F32),
                      row_of_sequence(c, k, b, t - W + 1 + i, j, n, dt), s);
        row_put(&c->out[1], k->first + t, j, s * v_logistic(s), n, false, dt);
    }
    for (int64_t t = 0; t < k->pad; t++) row_put(&c->out[1], end + t, j, v_zero(), n, false, dt);
    for (int64_t i = 0; i < W - 1; i++)
        last[i] = row_of_sequence(c, k, b, k->rows - W + 1 + i, j, n, dt);
    for (int64_t i = 0; i < W - 1; i++)
        row_put(&c->out[0], b * (W - 1) + i, j, last[i], n, false, dt);
}

V_INLINE void continue_sequence(const op_call *c, int64_t b, dtype dt) {
    op_span k = span_at(&c->in[3], c->attr->conv.by_row, b, c->attr->conv.B, c->attr->conv.T);
    FOR_VECTORS(c->in[1].cols, j, n) continue_columns(c, &k, b, j, n, dt);
}

static void conv_state_fwd(const op_call *c) {
    int64_t B = c->attr->conv.B, C = c->in[1].cols;
    turn_taps(c->ws, &c->in[2], c->attr->conv.W, C);
#pragma omp parallel for num_threads(B > 1 ? loop_threads(c, c->in[1].rows * C) : 1)               \
    schedule(static)
    for (int64_t b = 0; b < B; b++) WITH_DTYPE(c->in[1].dt, continue_sequence, c, b);
}

/* ---- backward ---- */

/* One vector of columns of a sequence. ring[k] is dx of row t - W + 1 + k so far: the first is finished with row t. dw [W]: sums so far. */
V_INLINE void backward_columns(const op_call *c, int64_t b, int64_t j, int64_t n, vf *dw,
                               dtype dt) {
    const tensor *x = &c->in[0];
    int64_t T = c->attr->conv.T, W = c->attr->conv.W;
    bool add = op_accumulates(c, 0), wanted = c->din[0].data != NULL;
    vf ring[OP_MAX_TAPS + 1], tap[OP_MAX_TAPS];
    for (int64_t k = 0; k <= W; k++) ring[k] = v_zero();
    for (int64_t k = 0; k < W; k++) tap[k] = get_upto(c->ws, k * x->cols + j, n, DT_F32);
    for (int64_t t = 0; t < T + W - 1; t++) {
        int64_t row = b * T + t, first = t < T ? first_tap(c, b, t) : W;
        if (t < T) {
            vf s = convolve(x, c->ws, W, row, first, j, n, dt), p = v_logistic(s);
            vf dc = row_get(&c->dout[0], row, j, n, dt) * p * v_fma(s, 1.0f - p, v_set1(1.0f));
            for (int64_t k = first; k < W; k++) {
                dw[k] = v_fma(dc, row_get(x, row - W + 1 + k, j, n, dt), dw[k]);
                ring[k] = v_fma(dc, tap[k], ring[k]);
            }
        }
        if (wanted && t >= W - 1) row_put(&c->din[0], row - W + 1, j, ring[0], n, add, dt);
        for (int64_t k = 0; k < W; k++) ring[k] = ring[k + 1];
    }
}

V_INLINE void backward_block(const op_call *c, int64_t col, dtype dt) {
    const tensor *x = &c->in[0];
    int64_t W = c->attr->conv.W, end = x->cols - col < BLOCK ? x->cols : col + BLOCK;
    bool add = op_accumulates(c, 1);
    for (int64_t j = col; j < end; j += VW) {
        int64_t n = end - j < VW ? end - j : VW;
        vf dw[OP_MAX_TAPS];
        float lanes[VW], *to = c->din[1].data;
        for (int64_t k = 0; k < W; k++) dw[k] = v_zero();
        for (int64_t b = 0; b < c->attr->conv.B; b++) backward_columns(c, b, j, n, dw, dt);
        for (int64_t k = 0; k < W && to; k++) {
            v_store(lanes, dw[k]);
            for (int64_t i = 0; i < n; i++) {
                float *p = to + (j + i) * W + k;
                *p = add ? *p + lanes[i] : lanes[i];
            }
        }
    }
}

static void conv_bwd(const op_call *c) {
    const tensor *x = &c->in[0];
    turn_taps(c->ws, &c->in[1], c->attr->conv.W, x->cols);
#pragma omp parallel for num_threads(loop_threads(c, x->rows * x->cols)) schedule(static)
    for (int64_t col = 0; col < x->cols; col += BLOCK) WITH_DTYPE(x->dt, backward_block, c, col);
}

static void conv_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t taps = io->in[io->kind == OP_CONV ? 1 : 2].cols * (int64_t)sizeof(float);
    ws[0] = taps;
    if (io->kind == OP_CONV) ws[1] = taps;
}

const op_impl CPU_FN(cpu_conv) = {conv_fwd, conv_bwd, NULL, conv_workspace};
const op_impl CPU_FN(cpu_conv_state) = {conv_state_fwd, NULL, NULL, conv_workspace};
