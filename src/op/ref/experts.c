/* Products of experts with the tokens that go through them, and what comes of them.
 *
 *   EXPERT_LINEAR  y[m] = x[m] w_e^T for starts[e] <= m < starts[e+1]
 *   EXPERT_SUM     y[n] = sum_j weights[n,j] z[slots[n,j]] + res[n], over slots that are not negative
 *                  dz[slots[n,j]] = weights[n,j] dy[n]; dweights[n,j] = z[slots[n,j]] . dy[n] */
#include "op/ref/ref.h"
#include "op/ref/stored.h"

/* ---- products ---- */

static const int32_t *starts_of(const op_call *c) {
    return c->in[2].data;
}

/* The matrix of expert e in w, or in its gradient. */
static tensor expert_of(const op_call *c, const tensor *w, int64_t e) {
    tensor t = *w;
    t.data = op_expert_at(c->attr, w, e);
    t.rows = w->rows / c->attr->experts.n;
    return t;
}

/* Rows from `first` on are 0; what is added to them is nothing. */
static void zero_rows(const tensor *t, int64_t first, bool add) {
    for (int64_t m = first; !add && m < t->rows; m++)
        for (int64_t i = 0; i < t->cols; i++) row_of(t, m)[i] = store(0);
}

static void expert_linear_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    const int32_t *starts = starts_of(c);
    zero_rows(y, starts[c->attr->experts.n], false);
    PARALLEL_FOR
    for (int64_t e = 0; e < c->attr->experts.n; e++) {
        tensor w = expert_of(c, &c->in[1], e);
        for (int64_t m = starts[e]; m < starts[e + 1]; m++)
            for (int64_t o = 0; o < y->cols; o++)
                row_of(y, m)[o] = store(stored_dot(row_of(x, m), x->dt, &w, o));
    }
}

static void input_row(const op_call *c, int64_t m, const tensor *w, bool add) {
    const tensor *dy = &c->dout[0], *dx = &c->din[0];
    if (w->dt != dy->dt) {
        stored_give(dy, w, dx, m, add);
        return;
    }
    for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dx->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t o = 0; o < dy->cols; o++)
            axpy(acc, load(row_of(dy, m)[o]), row_of(w, o) + first, len);
        for (int64_t i = 0; i < len; i++) put(row_of(dx, m) + first + i, acc[i], add);
    }
}

static void expert_linear_bwd_input(const op_call *c) {
    const int32_t *starts = starts_of(c);
    if (!c->din[0].data) return;
    bool add = op_accumulates(c, 0);
    zero_rows(&c->din[0], starts[c->attr->experts.n], add);
    PARALLEL_FOR
    for (int64_t e = 0; e < c->attr->experts.n; e++) {
        tensor w = expert_of(c, &c->in[1], e);
        for (int64_t m = starts[e]; m < starts[e + 1]; m++) input_row(c, m, &w, add);
    }
}

static void expert_linear_bwd_weight(const op_call *c) {
    const tensor *x = &c->in[0], *dy = &c->dout[0];
    const int32_t *starts = starts_of(c);
    if (!c->din[1].data) return;
    bool add = op_accumulates(c, 1);
    PARALLEL_FOR_2
    for (int64_t e = 0; e < c->attr->experts.n; e++) {
        for (int64_t o = 0; o < dy->cols; o++) {
            tensor dw = expert_of(c, &c->din[1], e);
            REAL *to = real_row_of(&dw, o);
            for (int64_t b = 0; b < blocks_of(dw.cols); b++) {
                int64_t first = b * BLOCK, len = block_len(dw.cols, first);
                ACC acc[BLOCK] = {0};
                for (int64_t m = starts[e]; m < starts[e + 1]; m++)
                    axpy(acc, load(row_of(dy, m)[o]), row_of(x, m) + first, len);
                for (int64_t i = 0; i < len; i++) put_real(to + first + i, acc[i], add);
            }
        }
    }
}

const op_impl REF_IMPL(EXPERT_LINEAR) = {expert_linear_fwd, expert_linear_bwd_input,
                                         expert_linear_bwd_weight, NULL};

/* ---- sums ---- */

static const int32_t *slots_of(const op_call *c, int64_t n) {
    return (const int32_t *)c->in[2].data + n * c->in[2].ld;
}

static void expert_sum_fwd(const op_call *c) {
    const tensor *z = &c->in[0], *weights = &c->in[1], *res = &c->in[3], *y = &c->out[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t b = 0; b < blocks_of(y->cols); b++) {
            int64_t first = b * BLOCK, len = block_len(y->cols, first);
            ACC acc[BLOCK] = {0};
            for (int64_t j = 0; j < weights->cols; j++) {
                int64_t slot = slots_of(c, n)[j];
                if (slot >= 0) axpy(acc, real_row_of(weights, n)[j], row_of(z, slot) + first, len);
            }
            if (res->data) axpy(acc, 1, row_of(res, n) + first, len);
            for (int64_t i = 0; i < len; i++) row_of(y, n)[first + i] = store(acc[i]);
        }
    }
}

static void expert_sum_bwd(const op_call *c) {
    const tensor *z = &c->in[0], *weights = &c->in[1], *dy = &c->dout[0];
    const tensor *dz = &c->din[0], *dweights = &c->din[1];
    if (dz->data) zero_rows(dz, op_expert_rows(&c->in[2]), op_accumulates(c, 0));
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++) {
        for (int64_t j = 0; j < weights->cols; j++) {
            int64_t slot = slots_of(c, n)[j];
            ACC by = real_row_of(weights, n)[j];
            for (int64_t i = 0; dz->data && slot >= 0 && i < dz->cols; i++)
                put(row_of(dz, slot) + i, by * (ACC)load(row_of(dy, n)[i]), op_accumulates(c, 0));
            if (dweights->data)
                put_real(real_row_of(dweights, n) + j,
                         slot < 0 ? 0 : dot(row_of(z, slot), row_of(dy, n), z->cols),
                         op_accumulates(c, 1));
        }
    }
}

const op_impl REF_IMPL(EXPERT_SUM) = {expert_sum_fwd, expert_sum_bwd, NULL, NULL};
