/* Collectives of context parallelism: tokens of one rank and of all ranks, in the order of the
 * sequences. Rows are put in order in the workspace; what travels has no gaps. */
#include <string.h>

#include "op/collective.h"
#include "op/ref/ref.h"

/* ---- keys and values ---- */

static void put_row(STORE *to, const STORE *from, int64_t n, bool add) {
    if (!add) memcpy(to, from, (size_t)n * sizeof *to);
    for (int64_t j = 0; add && j < n; j++) put(to + j, (ACC)load(from[j]), true);
}

static void add_row(const op_call *c, int i, int64_t n, const STORE *from) {
    const tensor *t = &c->din[i];
    if (t->data) put_row(row_of(t, n), from, t->cols, op_accumulates(c, i));
}

static void gather_kv_fwd(const op_call *c) {
    const tensor *k = &c->in[0], *v = &c->in[1], *y = &c->out[0];
    int64_t N = k->rows, W = y->cols;
    STORE *all = c->ws, *own = all + c->attr->comm.rank * N * W;
    PARALLEL_FOR
    for (int64_t n = 0; n < N; n++) {
        put_row(own + n * W, row_of(k, n), k->cols, false);
        put_row(own + n * W + k->cols, row_of(v, n), v->cols, false);
    }
    op_collect(c, true, c->in, own, all);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        put_row(row_of(y, n), all + int_at(&c->in[2], n) * W, W, false);
}

static void gather_kv_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0];
    int64_t N = c->in[0].rows, W = dy->cols;
    STORE *all = c->ws, *own = all + c->attr->comm.rank * N * W;
    PARALLEL_FOR
    for (int64_t n = 0; n < dy->rows; n++)
        put_row(all + int_at(&c->in[2], n) * W, row_of(dy, n), W, false);
    op_collect(c, false, c->in, all, own);
    PARALLEL_FOR
    for (int64_t n = 0; n < N; n++) {
        add_row(c, 0, n, own + n * W);
        add_row(c, 1, n, own + n * W + c->in[0].cols);
    }
}

static void gather_kv_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t W = io->in[0].cols + io->in[1].cols;
    ws[0] = ws[1] = io->attr->comm.ranks * io->in[0].rows * W * (int64_t)sizeof(STORE);
}

/* ---- heads ---- */

/* parts [ranks][N,W] of x [N, ranks*W]; part p is that of rank p. */
static void cut_columns(const op_call *c, const tensor *x, STORE *parts, int64_t W) {
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++)
        for (int64_t p = 0; p < x->cols / W; p++)
            put_row(parts + (p * x->rows + n) * W, row_of(x, n) + p * W, W, false);
}

/* Forward and backward of both ops move rows in one of two ways. In the forward nothing is added. */
static void to_heads(const op_call *c, bool forward, const tensor *x, const tensor *y) {
    int64_t W = y->cols;
    STORE *parts = c->ws, *come = parts + y->rows * W;
    bool add = !forward && op_accumulates(c, 0);
    cut_columns(c, x, parts, W);
    op_collect(c, forward, c->in, parts, come);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        put_row(row_of(y, n), come + int_at(&c->in[1], n) * W, W, add);
}

static void to_tokens(const op_call *c, bool forward, const tensor *x, const tensor *y) {
    int64_t W = x->cols;
    STORE *parts = c->ws, *come = parts + x->rows * W;
    bool add = !forward && op_accumulates(c, 0);
    PARALLEL_FOR
    for (int64_t n = 0; n < x->rows; n++)
        put_row(parts + int_at(&c->in[1], n) * W, row_of(x, n), W, false);
    op_collect(c, forward, c->in, parts, come);
    PARALLEL_FOR
    for (int64_t n = 0; n < y->rows; n++)
        for (int64_t p = 0; p < y->cols / W; p++)
            put_row(row_of(y, n) + p * W, come + (p * y->rows + n) * W, W, add);
}

static void split_heads_fwd(const op_call *c) {
    to_heads(c, true, &c->in[0], &c->out[0]);
}
static void split_heads_bwd(const op_call *c) {
    to_tokens(c, false, &c->dout[0], &c->din[0]);
}
static void join_heads_fwd(const op_call *c) {
    to_tokens(c, true, &c->in[0], &c->out[0]);
}
static void join_heads_bwd(const op_call *c) {
    to_heads(c, false, &c->dout[0], &c->din[0]);
}

static void heads_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = ws[1] = 2 * io->in[0].rows * io->in[0].cols * (int64_t)sizeof(STORE);
}

const op_impl REF_IMPL(GATHER_KV) = {gather_kv_fwd, gather_kv_bwd, NULL, gather_kv_workspace};
const op_impl REF_IMPL(SPLIT_HEADS) = {split_heads_fwd, split_heads_bwd, NULL, heads_workspace};
const op_impl REF_IMPL(JOIN_HEADS) = {join_heads_fwd, join_heads_bwd, NULL, heads_workspace};
