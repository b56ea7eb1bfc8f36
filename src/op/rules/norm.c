/* Rules of norms. */
#include "op/rules/rules.h"

int64_t op_norm_width(const op_attr *attr, int64_t cols) {
    return attr->norm.width ? attr->norm.width : cols;
}

/* Weights of a norm: inputs 1 to `last`, [1,width] each. */
static status infer_norm(op_infer *io, int last, err *e) {
    int64_t cols = io->in[0].cols, width = op_norm_width(io->attr, cols);
    if (width < 1 || cols % width)
        return err_set(e, ST_USAGE, "%s: x has %lld columns, no multiple of groups of %lld",
                       op_name(io), (long long)cols, (long long)width);
    for (int i = 1; i <= last; i++) {
        TRY(expect_dtype(io, i, real_dt(io), e));
        TRY(expect_cols(io, i, width, "the width of a group", e));
        TRY(expect_rows(io, i, 1, "the shape of a norm weight", e));
    }
    if (!(io->attr->norm.eps >= 0))
        return err_set(e, ST_USAGE, "%s: eps is %g but must not be negative", op_name(io),
                       (double)io->attr->norm.eps);
    TRY(expect_summand(io, last + 1, e));
    out_like(io, 0, 0);
    for (int i = 1; i <= last; i++) set_out(io, i, real_dt(io), io->in[0].rows, cols / width);
    bool center = last == 2; /* LAYERNORM */
    count_elementwise(io, center ? 7 : 4, center ? 13 : 9);
    return ST_OK;
}

static status infer_norm_ranks(op_infer *io, int last, err *e) {
    TRY(infer_norm(io, last, e));
    if (io->attr->norm.width || io->attr->norm.copies < 1 ||
        io->attr->norm.all_cols < io->in[0].cols)
        return err_set(e, ST_USAGE, "%s: %lld columns in groups of %d are no whole part of %lld",
                       op_name(io), (long long)io->in[0].cols, (int)io->attr->norm.width,
                       (long long)io->attr->norm.all_cols);
    return ST_OK;
}

status infer_NORM_ROPE(op_infer *io, err *e) {
    int64_t dim = io->attr->norm_rope.head_dim, rotary = io->attr->norm_rope.rotary_dim;
    int64_t cols = io->in[0].cols, first = io->attr->norm_rope.first;
    if (dim < 1 || dim > OP_MAX_HEAD_DIM || cols % dim)
        return err_set(e, ST_USAGE, "%s: x has %lld columns, no multiple of heads of %lld",
                       op_name(io), (long long)cols, (long long)dim);
    if (rotary < 2 || rotary % 2 || first < 0 || first + rotary > dim)
        return err_set(e, ST_USAGE, "%s: %lld columns from %lld on are no pairs of a head of %lld",
                       op_name(io), (long long)rotary, (long long)first, (long long)dim);
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_cols(io, 1, dim, "the width of a head", e));
    TRY(expect_rows(io, 1, 1, "the shape of a norm weight", e));
    TRY(expect_numbers(io, 2, "the size of a position", e));
    TRY(same_rows(io, 0, 2, e));
    TRY(expect_dtype(io, 3, real_dt(io), e));
    TRY(expect_cols(io, 3, rotary, "rotary_dim", e));
    out_like(io, 0, 0);
    set_out(io, 1, real_dt(io), io->in[0].rows, cols / dim);
    count_elementwise(io, 7, 12);
    return ST_OK;
}

status infer_RMSNORM(op_infer *io, err *e) {
    return infer_norm(io, 1, e);
}
status infer_LAYERNORM(op_infer *io, err *e) {
    return infer_norm(io, 2, e);
}
status infer_RMSNORM_RANKS(op_infer *io, err *e) {
    return infer_norm_ranks(io, 1, e);
}
status infer_LAYERNORM_RANKS(op_infer *io, err *e) {
    return infer_norm_ranks(io, 2, e);
}
