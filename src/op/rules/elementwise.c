/* Rules of ops that compute each element by itself. */
#include "op/rules/rules.h"

status infer_ADD(op_infer *io, err *e) {
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 0);
    return ST_OK;
}

status infer_BIAS(op_infer *io, err *e) {
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_rows(io, 1, 1, "the shape of a bias", e));
    TRY(same_cols(io, 0, 1, e));
    out_like(io, 0, 0);
    io->fwd.flops = io->bwd_weight.flops = elements(&io->in[0]);
    return ST_OK;
}

status infer_COPY(op_infer *io, err *e) {
    (void)e;
    out_like(io, 0, 0);
    return ST_OK;
}

status infer_CONCAT(op_infer *io, err *e) {
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    set_out(io, 0, act_dt(io), io->in[0].rows, io->in[0].cols + io->in[1].cols);
    return ST_OK;
}

status infer_ACT(op_infer *io, err *e) {
    act_kind kind = io->attr->act.kind;
    if ((kind == ACT_SOFTCAP || kind == ACT_CLAMP) && !(io->attr->act.c > 0))
        return err_set(e, ST_USAGE, "act: the limit is %g but must be positive",
                       (double)io->attr->act.c);
    out_like(io, 0, 0);
    count_elementwise(io, 8, 12);
    return ST_OK;
}

status infer_FILL(op_infer *io, err *e) {
    (void)e;
    out_like(io, 0, 0);
    return ST_OK;
}

status infer_SCALE(op_infer *io, err *e) {
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

status infer_GATED(op_infer *io, err *e) {
    act_kind kind = io->attr->act.kind;
    if (kind == ACT_SOFTCAP || kind == ACT_CLAMP)
        return err_set(e, ST_USAGE, "gated: a limit is no activation of a gate");
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(same_cols(io, 0, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 9, 15);
    return ST_OK;
}

status infer_DROPOUT(op_infer *io, err *e) {
    TRY(expect_dropout(io, io->attr->dropout.p, e));
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

status infer_ROPE(op_infer *io, err *e) {
    int64_t heads = io->attr->rope.heads, dim = io->attr->rope.head_dim;
    int64_t rotary = io->attr->rope.rotary_dim;
    TRY(expect_numbers(io, 1, "the size of a position", e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_cols(io, 2, rotary, "rotary_dim", e));
    TRY(expect_positive(io, "heads", heads, e));
    TRY(expect_positive(io, "head_dim", dim, e));
    if (rotary < 2 || rotary % 2 || rotary > dim)
        return err_set(e, ST_USAGE,
                       "rope: rotary_dim is %lld but must be even and at most head_dim %lld",
                       (long long)rotary, (long long)dim);
    if (io->attr->rope.first < 0 || io->attr->rope.first + rotary > dim)
        return err_set(e, ST_USAGE, "rope: %lld columns from %d on are no part of a head of %lld",
                       (long long)rotary, (int)io->attr->rope.first, (long long)dim);
    if (heads * dim > io->in[0].cols)
        return err_set(e, ST_USAGE, "rope: %lld heads of %lld need %lld columns but x has %lld",
                       (long long)heads, (long long)dim, (long long)(heads * dim),
                       (long long)io->in[0].cols);
    out_like(io, 0, 0);
    io->fwd.flops = 3.0 * (double)io->in[0].rows * (double)(heads * rotary);
    io->bwd_input.flops = io->fwd.flops;
    return ST_OK;
}

status infer_FIXED_ADD(op_infer *io, err *e) {
    const tensor *x = &io->in[0];
    TRY(expect_dtype(io, 0, real_dt(io), e));
    if (x->ld != x->cols)
        return err_set(e, ST_USAGE, "fixed_add: rows of x are %lld apart but have %lld columns",
                       (long long)x->ld, (long long)x->cols);
    set_out(io, 0, DT_I64, x->rows, x->cols);
    count_elementwise(io, 2, 0);
    return ST_OK;
}
