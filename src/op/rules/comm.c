/* Rules of collectives. */
#include "op/rules/rules.h"

static status expect_ranks(const op_infer *io, err *e) {
    const tensor *x = &io->in[0];
    int32_t ranks = io->attr->comm.ranks, rank = io->attr->comm.rank;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return err_set(e, ST_USAGE, "%s: rank %d of %d", op_name(io), (int)rank, (int)ranks);
    if (x->ld == x->cols) return ST_OK;
    return err_set(e, ST_USAGE, "%s: x has %lld columns but its rows are %lld apart", op_name(io),
                   (long long)x->cols, (long long)x->ld);
}

status infer_FAN_OUT(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    out_like(io, 0, 0);
    count_elementwise(io, 0, io->attr->comm.ranks - 1);
    return ST_OK;
}

status infer_ALL_REDUCE(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    out_like(io, 0, 0);
    count_elementwise(io, io->attr->comm.ranks - 1, 0);
    return ST_OK;
}

status infer_GATHER_ROWS(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    set_out(io, 0, act_dt(io), io->in[0].rows * io->attr->comm.ranks, io->in[0].cols);
    count_elementwise(io, 0, io->attr->comm.ranks - 1);
    return ST_OK;
}

status infer_SCATTER_SUM(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    int32_t ranks = io->attr->comm.ranks;
    if (io->in[0].rows % ranks)
        return err_set(e, ST_USAGE, "scatter_sum: %lld rows do not divide over %d ranks",
                       (long long)io->in[0].rows, (int)ranks);
    set_out(io, 0, act_dt(io), io->in[0].rows / ranks, io->in[0].cols);
    count_elementwise(io, (ranks - 1.0) / ranks, 0);
    return ST_OK;
}

status infer_GATHER_COLS(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    op_part mine = op_part_of(io->attr->comm.cols, io->attr->comm.ranks, io->attr->comm.rank);
    TRY(expect_cols(io, 0, mine.n, "the share of this rank", e));
    set_out(io, 0, act_dt(io), io->in[0].rows, io->attr->comm.cols);
    return ST_OK;
}

/* ---- products beside the transfer of their rows ---- */

static status expect_pieces(const op_infer *io, err *e) {
    const op_async *at = &io->attr->async;
    const tensor *x = &io->in[0];
    if (at->ranks < 1 || at->rank < 0 || at->rank >= at->ranks || at->pieces < 1)
        return err_set(e, ST_USAGE, "%s: rank %d of %d, %d pieces", op_name(io), (int)at->rank,
                       (int)at->ranks, (int)at->pieces);
    if (x->ld != x->cols)
        return err_set(e, ST_USAGE, "%s: x has %lld columns but its rows are %lld apart",
                       op_name(io), (long long)x->cols, (long long)x->ld);
    TRY(expect_dtype(io, 1, act_dt(io), e));
    return same_cols(io, 0, 1, e);
}

/* `rows` of the product; each phase of it takes as long. */
static void count_product(op_infer *io, int64_t rows) {
    double product = 2.0 * (double)rows * elements(&io->in[1]);
    io->fwd.flops = product;
    io->bwd_input.flops = product * (double)((io->want_grad & 1u) + (io->want_grad >> 1 & 1u));
}

status infer_GATHER_LINEAR(op_infer *io, err *e) {
    TRY(expect_pieces(io, e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(expect_rows(io, 2, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 2, io->in[1].rows, "the number of rows of w", e));
    int64_t rows = io->in[0].rows * (io->attr->async.shares_rows ? io->attr->async.ranks : 1);
    set_out(io, 0, act_dt(io), rows, io->in[1].rows);
    count_product(io, rows);
    return ST_OK;
}

status infer_LINEAR_SUM(op_infer *io, err *e) {
    TRY(expect_pieces(io, e));
    int64_t rows = io->in[0].rows, ranks = io->attr->async.shares_rows ? io->attr->async.ranks : 1;
    if (rows % ranks)
        return err_set(e, ST_USAGE, "linear_sum: %lld rows do not divide over %lld ranks",
                       (long long)rows, (long long)ranks);
    set_out(io, 0, act_dt(io), rows / ranks, io->in[1].rows);
    count_product(io, rows);
    return ST_OK;
}

/* ---- context parallelism ---- */

/* Input i: where each row of all ranks is. */
static status expect_order(const op_infer *io, int i, int64_t rows, err *e) {
    TRY(expect_numbers(io, i, "the size of a number", e));
    return expect_rows(io, i, rows, "the rows of all ranks", e);
}

static status expect_share(const op_infer *io, int64_t n, const char *what, err *e) {
    int32_t ranks = io->attr->comm.ranks;
    if (ranks < 1 || io->attr->comm.rank < 0 || io->attr->comm.rank >= ranks)
        return err_set(e, ST_USAGE, "%s: rank %d of %d", op_name(io), (int)io->attr->comm.rank,
                       (int)ranks);
    if (n % ranks == 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %lld %s do not divide over %d ranks", op_name(io),
                   (long long)n, what, (int)ranks);
}

status infer_GATHER_KV(op_infer *io, err *e) {
    int64_t all = io->in[0].rows * io->attr->comm.ranks;
    TRY(expect_share(io, 0, "rows", e));
    TRY(same_rows(io, 1, 0, e));
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_order(io, 2, all, e));
    set_out(io, 0, act_dt(io), all, io->in[0].cols + io->in[1].cols);
    io->bwd_input.flops = elements(&io->out[0]) * (io->attr->comm.ranks - 1);
    return ST_OK;
}

status infer_SPLIT_HEADS(op_infer *io, err *e) {
    int32_t ranks = io->attr->comm.ranks;
    TRY(expect_share(io, io->in[0].cols, "columns", e));
    TRY(expect_order(io, 1, io->in[0].rows * ranks, e));
    set_out(io, 0, act_dt(io), io->in[0].rows * ranks, io->in[0].cols / ranks);
    return ST_OK;
}

status infer_JOIN_HEADS(op_infer *io, err *e) {
    int32_t ranks = io->attr->comm.ranks;
    TRY(expect_share(io, io->in[0].rows, "rows", e));
    TRY(expect_order(io, 1, io->in[0].rows, e));
    set_out(io, 0, act_dt(io), io->in[0].rows / ranks, io->in[0].cols * ranks);
    return ST_OK;
}
