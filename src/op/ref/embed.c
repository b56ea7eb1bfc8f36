/* y[n,:] = table[ids[n],:]. Backward: dtable[v,:] = sum over n with ids[n] = v of dy[n,:]. */
#include <string.h>

#include "op/ref/ref.h"

static int32_t id_at(const op_call *c, int64_t n) {
    int32_t id = int_at(&c->in[1], n);
    CHECK(id >= 0 && id < c->in[0].rows, "embed: id %d is outside the table of %lld rows", id,
          (long long)c->in[0].rows);
    return id;
}

static void embed_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        memcpy(row_of(y, n), row_of(&c->in[0], id_at(c, n)), (size_t)y->cols * sizeof(STORE));
}

/* Each thread owns a range of columns and walks all rows in order. */
static void embed_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *dt = &c->din[0];
    bool add = op_accumulates(c, 0);
    int threads = ref_threads(c);
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(dt->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dt->cols, first);
        for (int64_t v = 0; v < dt->rows && !add; v++)
            memset(real_row_of(dt, v) + first, 0, (size_t)len * sizeof(REAL));
        for (int64_t n = 0; n < dy->rows; n++) {
            REAL *to = real_row_of(dt, id_at(c, n)) + first;
            const STORE *from = row_of(dy, n) + first;
            for (int64_t i = 0; i < len; i++) to[i] += load(from[i]);
        }
    }
}

const op_impl REF_IMPL(EMBED) = {embed_fwd, NULL, embed_bwd_weight, NULL};
