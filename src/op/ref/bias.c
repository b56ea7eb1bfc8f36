/* y = x + bias; dbias = column sums of dy. x and y may be the same memory. */
#include "op/ref/ref.h"

static void bias_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    const REAL *bias = real_row_of(&c->in[1], 0);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        for (int64_t i = 0; i < y->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(x, n)[i]) + (ACC)bias[i]);
}

static void bias_bwd_weight(const op_call *c) {
    if (c->din[1].data) column_sums(c, &c->dout[0], &c->din[1], op_accumulates(c, 1));
}

const op_impl REF_IMPL(BIAS) = {bias_fwd, NULL, bias_bwd_weight, NULL};
