#include "op/rules/rules.h"

#include "base/nf4.h"
#include "base/quant.h"

const char *op_name(const op_infer *io) {
    return op_classes[io->kind].name;
}

bool given(const op_infer *io, int i) {
    return io->in[i].rows > 0;
}

/* Columns or rows of input i, and what they must be as many as. */
static status compare(const op_infer *io, int i, const char *unit, int64_t have, const char *other,
                      const char *verb, int64_t want, err *e) {
    char name[16];
    if (!given(io, i) || have == want) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s has %lld %s but %s %s %lld", op_name(io),
                   op_input_name(io->kind, i, name), (long long)have, unit, other, verb,
                   (long long)want);
}

status expect_cols(const op_infer *io, int i, int64_t cols, const char *why, err *e) {
    return compare(io, i, "columns", io->in[i].cols, why, "is", cols, e);
}

status expect_rows(const op_infer *io, int i, int64_t rows, const char *why, err *e) {
    return compare(io, i, "rows", io->in[i].rows, why, "is", rows, e);
}

status same_cols(const op_infer *io, int i, int j, err *e) {
    char other[16];
    if (!given(io, j)) return ST_OK;
    return compare(io, i, "columns", io->in[i].cols, op_input_name(io->kind, j, other), "has",
                   io->in[j].cols, e);
}

status same_rows(const op_infer *io, int i, int j, err *e) {
    char other[16];
    if (!given(io, j)) return ST_OK;
    return compare(io, i, "rows", io->in[i].rows, op_input_name(io->kind, j, other), "has",
                   io->in[j].rows, e);
}

status expect_dtype(const op_infer *io, int i, dtype want, err *e) {
    char name[16];
    if (!given(io, i) || io->in[i].dt == want) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %s but must be %s", op_name(io),
                   op_input_name(io->kind, i, name), dtype_name(io->in[i].dt), dtype_name(want));
}

status expect_numbers(const op_infer *io, int i, const char *what, err *e) {
    TRY(expect_dtype(io, i, DT_I32, e));
    return expect_cols(io, i, 1, what, e);
}

status expect_positive(const op_infer *io, const char *what, int64_t n, err *e) {
    if (n > 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %lld but must be positive", op_name(io), what,
                   (long long)n);
}

status expect_softcap(const op_infer *io, float cap, err *e) {
    if (cap >= 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: softcap is %g but must not be negative", op_name(io),
                   (double)cap);
}

status expect_dropout(const op_infer *io, float p, err *e) {
    if (p >= 0 && p < 1) return ST_OK;
    return err_set(e, ST_USAGE, "%s: dropout is %g but must be in [0, 1)", op_name(io), (double)p);
}

dtype act_dt(const op_infer *io) {
    switch (io->kind) { /* in 0 is a state, or a cache */
        case OP_KV_STORE:
        case OP_PAGE_STORE:
        case OP_DELTA_STATE:
        case OP_CONV_STATE: return io->in[1].dt;
        default: break;
    }
    return io->kind == OP_EMBED ? io->attr->embed.dt : io->in[0].dt;
}

status expect_cache_dtype(const op_infer *io, int i, err *e) {
    if (io->in[i].dt == DT_F16 && act_dt(io) == DT_F32) return ST_OK;
    return expect_dtype(io, i, act_dt(io), e);
}

dtype real_dt(const op_infer *io) {
    return act_dt(io) == DT_F64 ? DT_F64 : DT_F32;
}

void set_out(op_infer *io, int i, dtype dt, int64_t rows, int64_t cols) {
    io->out[i] = (tensor){NULL, dt, rows, cols, cols};
}

void out_like(op_infer *io, int i, int in) {
    set_out(io, i, act_dt(io), io->in[in].rows, io->in[in].cols);
}

double elements(const tensor *t) {
    return (double)t->rows * (double)t->cols;
}

status expect_summand(const op_infer *io, int i, err *e) {
    TRY(expect_dtype(io, i, act_dt(io), e));
    TRY(same_rows(io, i, 0, e));
    return same_cols(io, i, 0, e);
}

void count_elementwise(op_infer *io, double fwd, double bwd) {
    io->fwd.flops = fwd * elements(&io->in[0]);
    io->bwd_input.flops = bwd * elements(&io->in[0]);
}

static bool is_stored_weight(dtype dt) {
    return dt == DT_F16 || dt == DT_BF16 || dtype_is_blocks(dt);
}

status expect_matrix(const op_infer *io, int i, err *e) {
    const tensor *w = &io->in[i];
    char name[16];
    if (w->dt == act_dt(io)) return ST_OK;
    if (act_dt(io) != DT_F32 || !is_stored_weight(w->dt)) return expect_dtype(io, i, act_dt(io), e);
    if (io->want_grad >> i & 1u)
        return err_set(e, ST_USAGE, "%s: there is no gradient of %s in %s", op_name(io),
                       op_input_name(io->kind, i, name), dtype_name(w->dt));
    if (w->dt == DT_FP8) return ST_OK;
    int32_t block = w->dt == DT_NF4 ? NF4_BLOCK : quant_by_dtype(w->dt)->block;
    if (w->cols % block == 0 && w->ld % block == 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s has %lld columns but blocks of %s are of %d", op_name(io),
                   op_input_name(io->kind, i, name), (long long)w->cols, dtype_name(w->dt), block);
}
