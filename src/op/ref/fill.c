/* y = c, or c * run->grad_scale. */
#include "op/ref/ref.h"

static void fill_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    ACC v = (ACC)c->attr->fill.c * (c->attr->fill.scaled ? (ACC)c->run->grad_scale : 1);
    bool stored = dtype_bytes(y->dt) == sizeof(STORE); /* or a statistic, which is a REAL */
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t i = 0; i < y->cols; i++) {
            if (stored)
                row_of(y, n)[i] = store(v);
            else
                real_row_of(y, n)[i] = (REAL)v;
        }
    }
}

const op_impl REF_IMPL(FILL) = {fill_fwd, NULL, NULL, NULL};
