/* What ranks exchange in another order than it lies in: GATHER_KV, SPLIT_HEADS and JOIN_HEADS (tokens that ranks share), GATHER_COLS
 * (columns that they share). Rows go into the workspace as they travel, a part for each rank, and from there to their place. Each such
 * move reads a number and writes one; where a gradient is added to, it reads two. */
#include "op/cuda/pieces.h"

/* Row from_at[n] of `from`, or n where that is absent, to row to_at[n] of `to`. */
typedef struct exchange_args {
    mat from, to, from_at, to_at;
    pieces p;
    int32_t add;
} exchange_args;

KERNEL(exchange_rows, exchange_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    int64_t from = a->from_at.p ? *i32_row_of(a->from_at, n) : n;
    int64_t to = a->to_at.p ? *i32_row_of(a->to_at, n) : n;
    piece_load(v, row_of(a->from, from) + c, a->p.wide);
    piece_put(row_of(a->to, to) + c, v, a->p.wide, a->add);
}

#ifndef __CUDACC__
#include "op/collective.h"

/* Indices are permutations. A scope for each move: what comes from other ranks in between was written by no kernel. */
static void move(const op_call *c, tensor to, const tensor *to_at, tensor from,
                 const tensor *from_at, bool add) {
    exchange_args a = {.from = mat_of(&from), .to = mat_of(&to), .add = add};
    gpu_range range[3] = {rows_range("rows", &from, GPU_READ),
                          rows_range("their place", &to, add ? GPU_UPDATE : GPU_WRITE)};
    const tensor *at = to_at ? to_at : from_at;
    if (to_at) a.to_at = mat_of(to_at);
    if (from_at) a.from_at = mat_of(from_at);
    if (at) range[2] = rows_range("their order", at, GPU_READ);
    if (to.rows == 0 || to.cols == 0) return;
    a.p = pieces_of(to.rows, to.cols, is_wide(&from) && is_wide(&to));
    cuda_scope_begin(c->run->dev, op_classes[c->kind].name, range, at ? 3 : 2);
    launch(c, &exchange_rows, grid_of_pieces(&a.p), &a);
    cuda_scope_end(c->run->dev);
}

static tensor columns(tensor t, int64_t first, int64_t n) {
    t.data = (STORE *)t.data + first;
    t.cols = n;
    return t;
}

/* Part number p of the workspace, [rows, cols]. */
static tensor part_of(const op_call *c, int64_t p, int64_t rows, int64_t cols) {
    return (tensor){(STORE *)c->ws + p * rows * cols, c->in[0].dt, rows, cols, cols};
}

/* ---- keys and values ---- */

static void gather_kv_fwd(const op_call *c) {
    const tensor *k = &c->in[0], *v = &c->in[1], *y = &c->out[0];
    tensor own = part_of(c, c->attr->comm.rank, k->rows, y->cols);
    move(c, columns(own, 0, k->cols), NULL, *k, NULL, false);
    move(c, columns(own, k->cols, v->cols), NULL, *v, NULL, false);
    op_collect(c, true, c->in, own.data, c->ws);
    move(c, *y, NULL, part_of(c, 0, y->rows, y->cols), &c->in[2], false);
}

static void gather_kv_bwd(const op_call *c) {
    const tensor *dy = &c->dout[0];
    int64_t Wk = c->in[0].cols;
    tensor own = part_of(c, c->attr->comm.rank, c->in[0].rows, dy->cols);
    move(c, part_of(c, 0, dy->rows, dy->cols), &c->in[2], *dy, NULL, false);
    op_collect(c, false, c->in, c->ws, own.data);
    for (int i = 0; i < 2; i++)
        if (c->din[i].data)
            move(c, c->din[i], NULL, columns(own, i ? Wk : 0, c->din[i].cols), NULL,
                 op_accumulates(c, i));
}

static void gather_kv_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t W = io->in[0].cols + io->in[1].cols;
    ws[0] = ws[1] = io->attr->comm.ranks * io->in[0].rows * W * (int64_t)sizeof(STORE);
}

/* ---- heads; parts go out of the first half of the workspace and come into the second ---- */

static void to_heads(const op_call *c, bool forward, const tensor *x, const tensor *y) {
    int64_t W = y->cols, ranks = x->cols / W;
    tensor come = part_of(c, 1, y->rows, W);
    for (int64_t p = 0; p < ranks; p++)
        move(c, part_of(c, p, x->rows, W), NULL, columns(*x, p * W, W), NULL, false);
    op_collect(c, forward, c->in, c->ws, come.data);
    move(c, *y, NULL, come, &c->in[1], !forward && op_accumulates(c, 0));
}

static void to_tokens(const op_call *c, bool forward, const tensor *x, const tensor *y) {
    int64_t W = x->cols, ranks = y->cols / W;
    move(c, part_of(c, 0, x->rows, W), &c->in[1], *x, NULL, false);
    op_collect(c, forward, c->in, c->ws, part_of(c, 1, x->rows, W).data);
    for (int64_t p = 0; p < ranks; p++)
        move(c, columns(*y, p * W, W), NULL, part_of(c, ranks + p, y->rows, W), NULL,
             !forward && op_accumulates(c, 0));
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

/* ---- columns, in pieces as wide as the widest part ---- */

static void gather_cols_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int64_t W = op_piece_cols(c->attr);
    int ranks = c->attr->comm.ranks;
    tensor own = part_of(c, c->attr->comm.rank, x->rows, W);
    dev_fill(c->run->dev, own.data, 0, (size_t)(x->rows * W) * sizeof(STORE));
    move(c, columns(own, 0, x->cols), NULL, *x, NULL, false);
    op_collect(c, true, x, own.data, c->ws);
    for (int r = 0; r < ranks; r++) {
        op_part part = op_part_of(y->cols, ranks, r);
        move(c, columns(*y, part.first, part.n), NULL,
             columns(part_of(c, r, x->rows, W), 0, part.n), NULL, false);
    }
}

static void gather_cols_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] =
        io->attr->comm.ranks * io->in[0].rows * op_piece_cols(io->attr) * (int64_t)sizeof(STORE);
}

const op_impl CUDA_IMPL(GATHER_KV) = {gather_kv_fwd, gather_kv_bwd, NULL, gather_kv_workspace};
const op_impl CUDA_IMPL(SPLIT_HEADS) = {split_heads_fwd, split_heads_bwd, NULL, heads_workspace};
const op_impl CUDA_IMPL(JOIN_HEADS) = {join_heads_fwd, join_heads_bwd, NULL, heads_workspace};
const op_impl CUDA_IMPL(GATHER_COLS) = {gather_cols_fwd, NULL, NULL, gather_cols_workspace};
#endif
