/* y[n,:] = table[ids[n],:]. Backward: dtable[v,:] = sum over n with ids[n] = v of dy[n,:], 0 for
 * v = no_grad_id. */
#include <string.h>

#include "op/embed.h"

#include "op/ref/ref.h"
#include "op/ref/stored.h"

static void look_up(const tensor *table, int64_t id, STORE *y, dtype dt) {
    if (id < 0) {
        memset(y, 0, (size_t)table->cols * sizeof(STORE));
        return;
    }
    if (table->dt == dt) {
        memcpy(y, row_of(table, id), (size_t)table->cols * sizeof(STORE));
        return;
    }
    float piece[PIECE];
    FOR_PIECES(table->cols, first, n) {
        stored_read(table, id, first, n, piece);
        for (int64_t i = 0; i < n; i++) y[first + i] = store(piece[i]);
    }
}

static void embed_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) look_up(&c->in[0], embed_row(c, n), row_of(y, n), y->dt);
}

/* Each thread owns a range of columns and walks all rows in order. */
static void embed_bwd_weight(const op_call *c) {
    const tensor *dy = &c->dout[0], *dt = &c->din[0];
    bool add = op_accumulates(c, 0);
    PARALLEL_FOR
    for (int64_t b = 0; b < blocks_of(dt->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dt->cols, first);
        for (int64_t v = 0; v < dt->rows && !add; v++)
            memset(real_row_of(dt, v) + first, 0, (size_t)len * sizeof(REAL));
        for (int64_t n = 0; n < dy->rows; n++) {
            int64_t row = embed_grad_row(c, n);
            if (row < 0) continue;
            REAL *to = real_row_of(dt, row) + first;
            const STORE *from = row_of(dy, n) + first;
            for (int64_t i = 0; i < len; i++) to[i] += load(from[i]);
        }
    }
}

const op_impl REF_IMPL(EMBED) = {embed_fwd, NULL, embed_bwd_weight, NULL};
