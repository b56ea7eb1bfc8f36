/* y = x keep / (1-p) + res; dx = dy keep / (1-p), with the same keeps. x and y may be the same memory. */
#include "op/dropout.h"
#include "op/ref/ref.h"

static void mask_rows(const op_call *c, const tensor *from, const tensor *res, const tensor *to,
                      bool add) {
    REAL scale = dropout_scale(c->attr->dropout.p);
    PARALLEL_FOR
    for (int64_t n = 0; n < to->rows; n++) {
        dropout_draw draw = dropout_open(c->run, c->attr->dropout.p, c->attr->dropout.stream);
        uint64_t first = dropout_row_counter(c, to, n);
        for (int64_t i = 0; i < to->cols; i++) {
            bool keep = dropout_keeps(&draw, first + (uint64_t)i);
            ACC v = keep ? load(row_of(from, n)[i]) * scale : 0;
            if (res && res->data) v += (ACC)load(row_of(res, n)[i]);
            put(row_of(to, n) + i, v, add);
        }
    }
}

static void dropout_fwd(const op_call *c) {
    mask_rows(c, &c->in[0], &c->in[1], &c->out[0], false);
}

static void dropout_bwd(const op_call *c) {
    if (c->din[0].data) mask_rows(c, &c->dout[0], NULL, &c->din[0], op_accumulates(c, 0));
}

const op_impl REF_IMPL(DROPOUT) = {dropout_fwd, dropout_bwd, NULL, NULL};
