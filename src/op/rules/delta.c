/* Rules of linear attention: the gated delta rule and its convolution. */
#include "op/rules/rules.h"

/* Rows of a chunk of the parallel form: products within it are counted, too. */
enum { CHUNK = 32 };

/* qk, v and gates are inputs first, first + 1 and first + 2. */
static status delta_check(const op_infer *io, int first, err *e) {
    const op_delta *d = &io->attr->delta;
    int64_t rows = d->by_row ? d->T : (int64_t)d->B * d->T;
    TRY(expect_positive(io, "B", d->B, e));
    TRY(expect_positive(io, "T", d->T, e));
    TRY(expect_positive(io, "Hk", d->Hk, e));
    TRY(expect_positive(io, "Hv", d->Hv, e));
    TRY(expect_positive(io, "Dk", d->Dk, e));
    TRY(expect_positive(io, "Dv", d->Dv, e));
    if (d->Hv % d->Hk)
        return err_set(e, ST_USAGE, "%s: %d value heads are not a multiple of %d key heads",
                       op_name(io), d->Hv, d->Hk);
    for (int i = 0; i < 3; i++) TRY(expect_rows(io, first + i, rows, "B*T", e));
    TRY(expect_cols(io, first, 2 * (int64_t)d->Hk * d->Dk, "2*Hk*Dk", e));
    TRY(expect_cols(io, first + 1, (int64_t)d->Hv * d->Dv, "Hv*Dv", e));
    TRY(expect_cols(io, first + 2, 2 * (int64_t)d->Hv, "2*Hv", e));
    TRY(expect_dtype(io, first, act_dt(io), e));
    TRY(expect_dtype(io, first + 1, act_dt(io), e));
    return expect_dtype(io, first + 2, real_dt(io), e);
}

/* Multiply-adds with a state, and multiply-adds within a chunk, each of a row and head. */
static double with_state(const op_delta *d) {
    return (double)d->B * d->T * d->Hv * d->Dk * d->Dv;
}
static double within_chunk(const op_delta *d) {
    return (double)d->B * d->T * d->Hv * CHUNK * (d->Dk + d->Dv);
}

status infer_DELTA(op_infer *io, err *e) {
    const op_delta *d = &io->attr->delta;
    TRY(delta_check(io, 0, e));
    TRY(expect_rows(io, 3, (int64_t)d->B * d->T, "B*T", e));
    TRY(expect_numbers(io, 3, "the size of a bound", e));
    out_like(io, 0, 1);
    io->fwd.flops = 6 * with_state(d) + 2 * within_chunk(d);
    io->bwd_input.flops = 12 * with_state(d) + 6 * within_chunk(d);
    io->flops_bwd_again = 4 * with_state(d) + 2 * within_chunk(d);
    io->bwd_input.flops += io->flops_bwd_again;
    return ST_OK;
}

static status expect_span(const op_infer *io, int i, int B, bool by_row, err *e) {
    TRY(expect_dtype(io, i, DT_I32, e));
    TRY(expect_rows(io, i, B, "B", e));
    return expect_cols(io, i, by_row ? 3 : 2, "the size of a span", e);
}

status infer_DELTA_STATE(op_infer *io, err *e) {
    const op_delta *d = &io->attr->delta;
    TRY(delta_check(io, 1, e));
    TRY(expect_span(io, 4, d->B, d->by_row, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_rows(io, 0, (int64_t)d->B * d->Hv * d->Dk, "B*Hv*Dk", e));
    TRY(expect_cols(io, 0, d->Dv, "Dv", e));
    set_out(io, 0, real_dt(io), io->in[0].rows, io->in[0].cols);
    out_like(io, 1, 2);
    io->fwd.flops = d->by_row ? 6 * with_state(d) / d->B
                              : 6 * with_state(d) + (d->T > 1 ? 2 * within_chunk(d) : 0);
    return ST_OK;
}

status infer_DELTA_GATES(op_infer *io, err *e) {
    int64_t cols = io->in[0].cols;
    if (cols % 2)
        return err_set(e, ST_USAGE, "delta_gates: ba has %lld columns, which is odd",
                       (long long)cols);
    for (int i = 1; i < 3; i++) {
        TRY(expect_dtype(io, i, real_dt(io), e));
        TRY(expect_rows(io, i, 1, "a number of each head", e));
        TRY(expect_cols(io, i, cols / 2, "Hv", e));
    }
    set_out(io, 0, real_dt(io), io->in[0].rows, cols);
    count_elementwise(io, 4, 6);
    return ST_OK;
}

/* x and w are inputs first and first + 1. */
static status conv_check(const op_infer *io, int first, err *e) {
    int64_t B = io->attr->conv.B, T = io->attr->conv.T, W = io->attr->conv.W;
    TRY(expect_positive(io, "B", B, e));
    TRY(expect_positive(io, "T", T, e));
    if (W < 2 || W > OP_MAX_TAPS)
        return err_set(e, ST_USAGE, "%s: %lld taps, but they are 2 to %d", op_name(io),
                       (long long)W, OP_MAX_TAPS);
    TRY(expect_rows(io, first, io->attr->conv.by_row ? T : B * T, "B*T", e));
    TRY(expect_dtype(io, first, act_dt(io), e));
    TRY(expect_dtype(io, first + 1, real_dt(io), e));
    TRY(expect_rows(io, first + 1, 1, "the shape of taps", e));
    return expect_cols(io, first + 1, io->in[first].cols * W, "C*W", e);
}

status infer_CONV(op_infer *io, err *e) {
    double W = io->attr->conv.W;
    TRY(conv_check(io, 0, e));
    TRY(same_rows(io, 2, 0, e));
    TRY(expect_numbers(io, 2, "the size of a bound", e));
    out_like(io, 0, 0);
    count_elementwise(io, 2 * W + 4, 6 * W + 8);
    return ST_OK;
}

status infer_CONV_STATE(op_infer *io, err *e) {
    int64_t B = io->attr->conv.B, W = io->attr->conv.W;
    TRY(conv_check(io, 1, e));
    TRY(expect_span(io, 3, (int)B, io->attr->conv.by_row, e));
    TRY(expect_dtype(io, 0, act_dt(io), e));
    TRY(expect_rows(io, 0, B * (W - 1), "B*(W-1)", e));
    TRY(same_cols(io, 0, 1, e));
    set_out(io, 0, act_dt(io), io->in[0].rows, io->in[0].cols);
    out_like(io, 1, 1);
    io->fwd.flops = (2.0 * (double)W + 4) * elements(&io->in[1]);
    return ST_OK;
}
