/* y = c x; dx = c dy. x and y may be the same memory. */
#include "op/ref/ref.h"

static void scale_rows(const op_call *c, const tensor *from, const tensor *to, bool add) {
    ACC by = c->attr->scale.c;
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < to->rows; n++)
        for (int64_t i = 0; i < to->cols; i++)
            put(row_of(to, n) + i, by * (ACC)load(row_of(from, n)[i]), add);
}

static void scale_fwd(const op_call *c) {
    scale_rows(c, &c->in[0], &c->out[0], false);
}

static void scale_bwd(const op_call *c) {
    if (c->din[0].data) scale_rows(c, &c->dout[0], &c->din[0], op_accumulates(c, 0));
}

const op_impl REF_IMPL(SCALE) = {scale_fwd, scale_bwd, NULL, NULL};
