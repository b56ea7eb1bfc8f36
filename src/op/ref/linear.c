/* y = x w^T + bias + res; dx = dy w; dw = dy^T x; dbias = column sums of dy. */
#include "op/ref/ref.h"
#include "op/ref/stored.h"

static void linear_fwd(const op_call *c) {
    const tensor *bias = &c->in[2], *res = &c->in[3], *y = &c->out[0];
    PARALLEL_FOR_2
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t o = 0; o < y->cols; o++) {
            ACC sum = stored_dot(row_of(&c->in[0], n), c->in[0].dt, &c->in[1], o);
            if (bias->data) sum += real_row_of(bias, 0)[o];
            if (res->data) sum += load(row_of(res, n)[o]);
            if (c->attr->linear.exact)
                real_row_of(y, n)[o] = (REAL)sum;
            else
                row_of(y, n)[o] = store(sum);
        }
    }
}

/* dx[n,i] = sum_o dy[n,o] w[o,i] */
static void linear_bwd_input(const op_call *c) {
    const tensor *w = &c->in[1], *dy = &c->dout[0], *dx = &c->din[0];
    if (!dx->data) return;
    bool add = op_accumulates(c, 0);
    if (w->dt != dy->dt) {
        PARALLEL_FOR
        for (int64_t n = 0; n < dx->rows; n++) stored_give(dy, w, dx, n, add);
        return;
    }
    PARALLEL_FOR_2
    for (int64_t n = 0; n < dx->rows; n++) {
        for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
            int64_t first = b * BLOCK, len = block_len(dx->cols, first);
            ACC acc[BLOCK];
            sum_given(acc, dy, w, n, first, len);
            for (int64_t i = 0; i < len; i++) put(row_of(dx, n) + first + i, acc[i], add);
        }
    }
}

/* dw[o,i] = sum_n dy[n,o] x[n,i] */
static void linear_dw(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0], *dw = &c->din[1];
    bool add = op_accumulates(c, 1);
    PARALLEL_FOR_2
    for (int64_t o = 0; o < dw->rows; o++) {
        for (int64_t b = 0; b < blocks_of(dw->cols); b++) {
            int64_t first = b * BLOCK, len = block_len(dw->cols, first);
            ACC acc[BLOCK] = {0};
            for (int64_t n = 0; n < dy->rows; n++)
                axpy(acc, load(row_of(dy, n)[o]), row_of(x, n) + first, len);
            for (int64_t i = 0; i < len; i++) put_real(real_row_of(dw, o) + first + i, acc[i], add);
        }
    }
}

static void linear_bwd_weight(const op_call *c) {
    if (c->din[1].data) linear_dw(c);
    if (c->din[2].data) column_sums(c, &c->dout[0], &c->din[2], op_accumulates(c, 2));
}

const op_impl REF_IMPL(LINEAR) = {linear_fwd, linear_bwd_input, linear_bwd_weight, NULL};
