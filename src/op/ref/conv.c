/* A causal convolution of each column over time, then SiLU: c_t = sum_j w_j x_{t-W+1+j}, y = c / (1 + e^-c);
 * dc = dy silu'(c);  dx_s = sum_j w_j dc_{s+W-1-j};  dw_j = sum_t dc_t x_{t-W+1+j}. */
#include <string.h>

#include "op/ref/ref.h"
#include "op/span.h"

/* Column i of row t of sequence b, which begins with row `row0` of the call. It may lie before that: in the state, if there
 * is one. */
static ACC x_at(const op_call *c, const tensor *x, const tensor *state, int64_t row0, int64_t b,
                int64_t t, int64_t i) {
    int64_t W = c->attr->conv.W;
    if (t >= 0) return (ACC)load(row_of(x, row0 + t)[i]);
    return state ? (ACC)load(row_of(state, b * (W - 1) + t + W - 1)[i]) : 0;
}

/* The first row that row t of sequence b looks at. */
static int64_t first_of(const op_call *c, int64_t b, int64_t t) {
    int64_t start = 0;
    if (c->in[2].data) start = int_at(&c->in[2], b * c->attr->conv.T + t);
    int64_t first = t - c->attr->conv.W + 1;
    return first > start ? first : start > 0 ? start : 0;
}

static ACC convolve(const op_call *c, const tensor *x, const tensor *w, const tensor *state,
                    int64_t row0, int64_t b, int64_t t, int64_t i, int64_t first) {
    int64_t W = c->attr->conv.W;
    ACC sum = 0;
    for (int64_t s = first; s <= t; s++)
        sum += (ACC)real_row_of(w, 0)[i * W + s - t + W - 1] * x_at(c, x, state, row0, b, s, i);
    return sum;
}

static ACC silu(ACC x) {
    return x / (1 + exp(-x));
}

static void conv_fwd(const op_call *c) {
    int64_t T = c->attr->conv.T;
    PARALLEL_FOR
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t i = 0; i < c->in[0].cols; i++)
            row_of(&c->out[0], n)[i] =
                store(silu(convolve(c, &c->in[0], &c->in[1], NULL, n / T * T, n / T, n % T, i,
                                    first_of(c, n / T, n % T))));
}

static void conv_state_fwd(const op_call *c) {
    int64_t B = c->attr->conv.B, T = c->attr->conv.T, W = c->attr->conv.W;
    bool by_row = c->attr->conv.by_row;
    const tensor *x = &c->in[1], *out = &c->out[0];
    PARALLEL_FOR
    for (int64_t i = 0; i < x->cols; i++)
        for (int64_t b = 0; b < B; b++) {
            op_span k = span_at(&c->in[3], by_row, b, B, T);
            int64_t end = span_end(&k, by_row, T);
            const tensor *state = k.pos > 0 || k.rows == 0 ? &c->in[0] : NULL;
            ACC last[OP_MAX_TAPS];
            for (int64_t t = 0; t < k.rows; t++) {
                ACC y = convolve(c, x, &c->in[2], state, k.first, b, t, i, t - W + 1);
                row_of(&c->out[1], k.first + t)[i] = store(silu(y));
            }
            for (int64_t t = 0; t < k.pad; t++) row_of(&c->out[1], end + t)[i] = store(0);
            for (int64_t s = 0; s < W - 1; s++)
                last[s] = x_at(c, x, state, k.first, b, k.rows - W + 1 + s, i);
            for (int64_t s = 0; s < W - 1; s++) row_of(out, b * (W - 1) + s)[i] = store(last[s]);
        }
}

static ACC slope_at(const op_call *c, int64_t b, int64_t t, int64_t i) {
    ACC x =
        convolve(c, &c->in[0], &c->in[1], NULL, b * c->attr->conv.T, b, t, i, first_of(c, b, t));
    ACC s = 1 / (1 + exp(-x));
    return (ACC)load(row_of(&c->dout[0], b * c->attr->conv.T + t)[i]) * s * (1 + x * (1 - s));
}

/* dx of one row, from the rows that look at it. */
static void row_grad(const op_call *c, int64_t b, int64_t s, int64_t i) {
    int64_t T = c->attr->conv.T, W = c->attr->conv.W;
    ACC dx = 0;
    for (int64_t t = s; t < T && t < s + W; t++)
        if (first_of(c, b, t) <= s)
            dx += (ACC)real_row_of(&c->in[1], 0)[i * W + s - t + W - 1] * slope_at(c, b, t, i);
    put(row_of(&c->din[0], b * T + s) + i, dx, op_accumulates(c, 0));
}

static void conv_bwd(const op_call *c) {
    int64_t T = c->attr->conv.T, W = c->attr->conv.W;
    PARALLEL_FOR
    for (int64_t i = 0; i < c->in[0].cols; i++) {
        ACC dw[OP_MAX_TAPS] = {0};
        for (int64_t n = 0; n < c->in[0].rows; n++) {
            int64_t b = n / T, t = n % T;
            if (c->din[0].data) row_grad(c, b, t, i);
            ACC slope = slope_at(c, b, t, i);
            for (int64_t s = first_of(c, b, t); s <= t; s++)
                dw[s - t + W - 1] += slope * x_at(c, &c->in[0], NULL, b * T, b, s, i);
        }
        for (int64_t j = 0; j < W && c->din[1].data; j++)
            put_real(real_row_of(&c->din[1], 0) + i * W + j, dw[j], op_accumulates(c, 1));
    }
}

const op_impl REF_IMPL(CONV) = {conv_fwd, conv_bwd, NULL, NULL};
const op_impl REF_IMPL(CONV_STATE) = {conv_state_fwd, NULL, NULL, NULL};
