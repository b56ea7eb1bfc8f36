/* Rules of products with weights: LINEAR, what is joined with it, and the head with its loss. */
#include "op/rules/rules.h"

status infer_LINEAR(op_infer *io, err *e) {
    const tensor *x = &io->in[0], *w = &io->in[1];
    TRY(expect_matrix(io, 1, e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_cols(io, 0, 1, e));
    TRY(expect_rows(io, 2, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 2, w->rows, "the number of rows of w", e));
    TRY(expect_dtype(io, 3, act_dt(io), e));
    TRY(expect_rows(io, 3, x->rows, "the number of rows of x", e));
    TRY(expect_cols(io, 3, w->rows, "the number of rows of w", e));
    if (io->attr->linear.exact && given(io, 3) && act_dt(io) != real_dt(io))
        return err_set(e, ST_USAGE, "linear: an exact result has no res in %s",
                       dtype_name(act_dt(io)));
    set_out(io, 0, io->attr->linear.exact ? real_dt(io) : act_dt(io), x->rows, w->rows);
    double product = 2.0 * elements(x) * (double)w->rows;
    io->fwd.flops = product + (given(io, 2) + given(io, 3)) * elements(&io->out[0]);
    if (io->want_grad & 1u) io->bwd_input.flops = product;
    if (io->want_grad & 2u) io->bwd_weight.flops += product;
    if (io->want_grad & 4u) io->bwd_weight.flops += elements(&io->out[0]);
    return ST_OK;
}

status infer_LINEAR_DGELU(op_infer *io, err *e) {
    const tensor *dy = &io->in[0], *w = &io->in[1], *x = &io->in[2];
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_rows(io, 1, dy->cols, "the number of columns of dy", e));
    TRY(expect_dtype(io, 2, act_dt(io), e));
    TRY(same_rows(io, 0, 2, e));
    TRY(same_cols(io, 1, 2, e));
    out_like(io, 0, 2);
    io->fwd.flops = 2.0 * elements(dy) * (double)w->cols + 12 * elements(x);
    return ST_OK;
}

/* w and its gradient, both far larger than the caches, are read once per chunk: at 80 rows the
 * three products of SmolLM2's head reach half the machine's speed, at 512 nearly all of it. */
enum { HEAD_CHUNK_BYTES = 96 << 20, HEAD_CHUNK_MIN_ROWS = 16, HEAD_CHUNK_MAX_ROWS = 1024 };

int64_t op_head_chunk_rows(const op_attr *attr, int64_t rows, int64_t vocab) {
    int64_t chunk = attr->head.chunk_rows;
    if (chunk == 0) {
        chunk = HEAD_CHUNK_BYTES / (4 * vocab);
        chunk -= chunk % HEAD_CHUNK_MIN_ROWS;
        if (chunk < HEAD_CHUNK_MIN_ROWS) chunk = HEAD_CHUNK_MIN_ROWS;
        if (chunk > HEAD_CHUNK_MAX_ROWS) chunk = HEAD_CHUNK_MAX_ROWS;
    }
    return chunk < rows ? chunk : rows;
}

/* What HEAD_CE and HEAD_NLL share: their inputs, nll and lse. */
static status infer_head(op_infer *io, err *e) {
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_numbers(io, 2, "the size of a target", e));
    TRY(same_cols(io, 0, 1, e));
    TRY(same_rows(io, 0, 2, e));
    TRY(expect_dtype(io, 3, real_dt(io), e));
    TRY(expect_rows(io, 3, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 3, io->in[1].rows, "the number of rows of w", e));
    TRY(expect_softcap(io, io->attr->head.softcap, e));
    if (io->attr->head.chunk_rows < 0)
        return err_set(e, ST_USAGE, "%s: chunk_rows is %lld but must not be negative", op_name(io),
                       (long long)io->attr->head.chunk_rows);
    set_out(io, 0, real_dt(io), io->in[0].rows, 1);
    set_out(io, 1, real_dt(io), io->in[0].rows, 1);
    return ST_OK;
}

/* FLOPs of so many products with the vocabulary, and of what is done to each logit. */
static double head_flops(const op_infer *io, int products, bool grad) {
    double product = 2.0 * elements(&io->in[0]) * (double)io->in[1].rows;
    double logits = (double)io->in[0].rows * (double)io->in[1].rows;
    double each = 4.0; /* softmax */
    if (given(io, 3)) each += grad && (io->want_grad & 8u) ? 2.0 : 1.0;
    if (io->attr->head.softcap > 0) each += grad ? 12.0 : 8.0;
    return products * product + each * logits;
}

/* The gradients are made in the forward pass, so that is where their FLOPs count. */
status infer_HEAD_CE(op_infer *io, err *e) {
    TRY(infer_head(io, e));
    bool grad = io->attr->head.with_grad, want_dw = grad && (io->want_grad & 2u);
    if (grad) set_out(io, 2, act_dt(io), io->in[0].rows, io->in[0].cols);
    io->fwd.flops = head_flops(io, 1 + grad + want_dw, grad);
    return ST_OK;
}

status infer_HEAD_DISTILL(op_infer *io, err *e) {
    float w = io->attr->head.distill, t = io->attr->head.temperature;
    if (!given(io, 4)) return err_set(e, ST_USAGE, "head_distill: there is no teacher");
    TRY(expect_dtype(io, 4, real_dt(io), e));
    TRY(same_rows(io, 0, 4, e));
    if (!given(io, 5)) TRY(expect_cols(io, 4, io->in[1].rows, "the number of rows of w", e));
    if (given(io, 5)) {
        TRY(expect_dtype(io, 5, DT_I32, e));
        TRY(same_rows(io, 0, 5, e));
        TRY(same_cols(io, 4, 5, e));
    }
    if (!(w >= 0 && w <= 1) || !(t > 0))
        return err_set(e, ST_USAGE, "head_distill: the weight is %g and the temperature %g",
                       (double)w, (double)t);
    TRY(infer_HEAD_CE(io, e));
    io->fwd.flops += (io->attr->head.with_grad ? 12.0 : 8.0) * elements(&io->in[4]);
    return ST_OK;
}

status infer_HEAD_NLL(op_infer *io, err *e) {
    TRY(infer_head(io, e));
    if (io->attr->head.z_loss != 0)
        return err_set(e, ST_USAGE, "head_nll: z_loss is %g but this loss has none",
                       (double)io->attr->head.z_loss);
    bool want_dx = io->want_grad & 1u, want_dw = io->want_grad & 2u;
    io->fwd.flops = io->flops_bwd_again = head_flops(io, 1, false);
    io->bwd_input.flops = head_flops(io, 1 + want_dx + want_dw, true);
    return ST_OK;
}

static status expect_part(const op_infer *io, err *e) {
    int64_t first = io->attr->head.first, end = first + io->in[0].cols;
    if (first >= 0 && end <= io->attr->head.all_rows) return ST_OK;
    return err_set(e, ST_USAGE, "%s: logits %lld to %lld are no part of a vocabulary of %d",
                   op_name(io), (long long)first, (long long)end, (int)io->attr->head.all_rows);
}

status infer_HEAD_STATS(op_infer *io, err *e) {
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_numbers(io, 1, "the size of a target", e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_softcap(io, io->attr->head.softcap, e));
    TRY(expect_part(io, e));
    set_out(io, 0, real_dt(io), io->in[0].rows, io->in[0].cols);
    set_out(io, 1, real_dt(io), io->in[0].rows, OP_HEAD_STATS_COLS);
    io->fwd.flops = (io->attr->head.softcap > 0 ? 7.0 : 3.0) * elements(&io->in[0]);
    return ST_OK;
}

status infer_HEAD_GRAD(op_infer *io, err *e) {
    const tensor *logits = &io->in[0], *stats = &io->in[2];
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_numbers(io, 1, "the size of a target", e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_cols(io, 2, OP_HEAD_STATS_COLS, "the size of the stats of a row", e));
    TRY(expect_dtype(io, 3, real_dt(io), e));
    TRY(expect_rows(io, 3, logits->rows, "the number of rows of logits", e));
    TRY(expect_cols(io, 3, 1, "one number a row", e));
    TRY(expect_part(io, e));
    if (stats->rows % logits->rows)
        return err_set(e, ST_USAGE, "head_grad: %lld rows of stats are no multiple of %lld rows",
                       (long long)stats->rows, (long long)logits->rows);
    set_out(io, 1, real_dt(io), logits->rows, 1);
    set_out(io, 2, real_dt(io), logits->rows, 1);
    if (!io->attr->head.with_grad) return ST_OK;
    dtype dt = io->attr->head.dt;
    set_out(io, 0, dt, logits->rows, logits->cols);
    /* Rows that stay where they are, in narrower elements. */
    io->out[0].ld = logits->ld * (int64_t)(dtype_bytes(logits->dt) / dtype_bytes(dt));
    io->fwd.flops = (io->attr->head.softcap > 0 ? 9.0 : 4.0) * elements(logits);
    return ST_OK;
}
