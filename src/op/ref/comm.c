/* Collectives: the calls of comm that the ops are. What comes out has the same bits on every rank.
 */
#include "op/ref/ref.h"

#include <string.h>

#if REF_F16 /* comm has no sums of it */
#define COMM_IMPL(ID, fwd, bwd, workspace) const op_impl REF_IMPL(ID) = {NULL, NULL, NULL, NULL}
#else
#define COMM_IMPL(ID, fwd, bwd, workspace) const op_impl REF_IMPL(ID) = {fwd, bwd, NULL, workspace}

/* n: as comm_call counts them. */
static void collect(const op_call *c, comm_kind kind, const tensor *from, const tensor *to,
                    int64_t n) {
    comm_call call = {.kind = kind,
                      .in = from->data,
                      .out = to->data,
                      .n = n,
                      .dt = from->dt,
                      .what = c->attr->comm.what};
    comm_run(c->run->mesh->axis[c->attr->comm.axis], &call);
}

static int64_t size_of(const tensor *t) {
    return t->rows * t->cols;
}

static void fan_out_fwd(const op_call *c) {
    (void)c; /* the same memory */
}

static void fan_out_bwd(const op_call *c) {
    collect(c, COMM_ALL_REDUCE, &c->dout[0], &c->din[0], size_of(&c->din[0]));
}

static void all_reduce_fwd(const op_call *c) {
    collect(c, COMM_ALL_REDUCE, &c->in[0], &c->out[0], size_of(&c->out[0]));
}

static void gather_rows_fwd(const op_call *c) {
    collect(c, COMM_ALL_GATHER, &c->in[0], &c->out[0], size_of(&c->in[0]));
}

static void gather_rows_bwd(const op_call *c) {
    collect(c, COMM_REDUCE_SCATTER, &c->dout[0], &c->din[0], size_of(&c->din[0]));
}

static void scatter_sum_fwd(const op_call *c) {
    collect(c, COMM_REDUCE_SCATTER, &c->in[0], &c->out[0], size_of(&c->out[0]));
}

static void scatter_sum_bwd(const op_call *c) {
    collect(c, COMM_ALL_GATHER, &c->dout[0], &c->din[0], size_of(&c->dout[0]));
}

/* Columns of a piece: those of the widest part. Narrower ones travel with what lies behind them. */
static int64_t piece_cols(const op_attr *attr) {
    return (attr->comm.cols + attr->comm.ranks - 1) / attr->comm.ranks;
}

/* Pieces of equal size go through the workspace, a piece per rank. */
static void gather_cols_fwd(const op_call *c) {
    const tensor *x = &c->in[0], *y = &c->out[0];
    int64_t N = x->rows, W = piece_cols(c->attr);
    STORE *piece = (STORE *)c->ws + c->attr->comm.rank * N * W;
    memset(piece, 0, (size_t)(N * W) * sizeof *piece);
    for (int64_t n = 0; n < N; n++)
        memcpy(piece + n * W, row_of(x, n), (size_t)x->cols * sizeof *piece);
    tensor mine = {piece, x->dt, N, W, W}, all = {c->ws, x->dt, N * c->attr->comm.ranks, W, W};
    collect(c, COMM_ALL_GATHER, &mine, &all, N * W);
    for (int r = 0; r < c->attr->comm.ranks; r++) {
        op_part part = op_part_of(y->cols, c->attr->comm.ranks, r);
        for (int64_t n = 0; n < N; n++)
            memcpy(row_of(y, n) + part.first, (const STORE *)c->ws + (r * N + n) * W,
                   (size_t)part.n * sizeof *piece);
    }
}

static void gather_cols_workspace(const op_infer *io, int64_t ws[3]) {
    ws[0] = io->attr->comm.ranks * io->in[0].rows * piece_cols(io->attr) * (int64_t)sizeof(STORE);
}
#endif

COMM_IMPL(FAN_OUT, fan_out_fwd, fan_out_bwd, NULL);
COMM_IMPL(ALL_REDUCE, all_reduce_fwd, NULL, NULL);
COMM_IMPL(GATHER_ROWS, gather_rows_fwd, gather_rows_bwd, NULL);
COMM_IMPL(SCATTER_SUM, scatter_sum_fwd, scatter_sum_bwd, NULL);
COMM_IMPL(GATHER_COLS, gather_cols_fwd, NULL, gather_cols_workspace);
