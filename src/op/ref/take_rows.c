/* TAKE_ROWS: y[n,:] = x[rows[n],:], or 0. Backward: dx[m,:] = sum over n with rows[n] = m of dy[n,:]. */
#include <string.h>

#include "op/ref/ref.h"
#include "op/take_rows.h"

static void take_rows_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++) {
        int64_t row = take_row(c, n);
        if (row < 0)
            memset(row_of(y, n), 0, (size_t)y->cols * sizeof(STORE));
        else
            memcpy(row_of(y, n), row_of(x, row), (size_t)y->cols * sizeof(STORE));
    }
}

static void give_row(const op_call *c, take_places p, int64_t row, bool add) {
    const tensor *dy = &c->dout[0], *dx = &c->din[0];
    for (int64_t b = 0; b < blocks_of(dx->cols); b++) {
        int64_t first = b * BLOCK, len = block_len(dx->cols, first);
        ACC acc[BLOCK] = {0};
        for (int64_t n = p.first[row]; n >= 0; n = p.next[n])
            axpy(acc, 1, row_of(dy, n) + first, len);
        for (int64_t i = 0; i < len; i++) put(row_of(dx, row) + first + i, acc[i], add);
    }
}

static void take_rows_bwd(const op_call *c) {
    if (!c->din[0].data) return;
    bool add = op_accumulates(c, 0);
    take_places p = take_find_places(c);
    PARALLEL_FOR
    for (int64_t row = 0; row < c->din[0].rows; row++) give_row(c, p, row, add);
}

static void take_rows_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = take_places_bytes(io);
}

const op_impl REF_IMPL(TAKE_ROWS) = {take_rows_fwd, take_rows_bwd, NULL, take_rows_workspace};

/* AHEAD: y[n] = x[n + by] of the same sequence and document, or a number of its own. */
static void ahead_fwd(const op_call *c) {
    const tensor *x = &c->in[1], *start = &c->in[2], *y = &c->out[0];
    int64_t T = c->attr->ahead.T, by = c->attr->ahead.by;
    for (int64_t n = 0; n < y->rows; n++) {
        bool there = n % T + by < T;
        if (there && start->data) there = int_at(start, n) == int_at(start, n + by);
        ((int32_t *)y->data)[n * y->ld] = there ? int_at(x, n + by) : c->attr->ahead.otherwise;
    }
}

const op_impl REF_IMPL(AHEAD) = {ahead_fwd, NULL, NULL, NULL};
