/* y = a + b; da = dy, db = dy. */
#include "op/ref/ref.h"

static void add_fwd(const op_call *c) {
    const tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        for (int64_t i = 0; i < y->cols; i++)
            row_of(y, n)[i] = store((ACC)load(row_of(a, n)[i]) + (ACC)load(row_of(b, n)[i]));
    }
}

/* dy is read before anything is written: din[1] may be its memory. */
static void add_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0], *da = &c->din[0], *db = &c->din[1];
    bool add_a = op_accumulates(c, 0), add_b = op_accumulates(c, 1);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++) {
        for (int64_t i = 0; i < dy->cols; i++) {
            ACC g = load(row_of(dy, n)[i]);
            if (da->data) put(row_of(da, n) + i, g, add_a);
            if (db->data) put(row_of(db, n) + i, g, add_b);
        }
    }
}

const op_impl REF_IMPL(ADD) = {add_fwd, add_bwd, NULL, NULL};
