/* Rules of attention, and of what latent attention has beside it. */
#include <math.h>

#include "op/rules/rules.h"

/* Queries are the last Tq of Tk positions. Causal without window: half of Tq*Tq, plus the keys before
 * the first query. */
double op_attention_pairs(const op_attention *a) {
    double Tq = a->Tq, Tk = a->Tk, window = a->window;
    double chunk = a->chunk > 0 ? a->chunk : Tk;
    double before = Tk > Tq ? Tk - Tq : 0;
    if (a->pairs > 0) return (double)a->pairs;
    if (window <= 0 && chunk >= Tk) return a->causal ? Tq * before + Tq * Tq / 2 : Tq * Tk;
    double pairs = 0;
    for (double i = 0; i < Tq; i++) {
        double past = fmod(before + i, chunk) + 1;
        if (window > 0 && past > window) past = window;
        pairs += a->causal ? past : past + Tk - (before + i + 1);
    }
    return pairs;
}

static status expect_heads(const op_infer *io, int H, int K, int D, int Dv, err *e) {
    TRY(expect_positive(io, "H", H, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_positive(io, "D", D, e));
    TRY(expect_positive(io, "Dv", Dv, e));
    if (H % K)
        return err_set(e, ST_USAGE, "%s: %d query heads are not a multiple of %d kv heads",
                       op_name(io), H, K);
    if (D <= OP_MAX_HEAD_DIM && Dv <= OP_MAX_HEAD_DIM) return ST_OK;
    return err_set(e, ST_USAGE, "%s: head size %d is over the limit of %d", op_name(io),
                   D > Dv ? D : Dv, OP_MAX_HEAD_DIM);
}

static status expect_window(const op_infer *io, int window, int chunk, err *e) {
    if (window >= 0 && chunk >= 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %d but must not be negative", op_name(io),
                   window < 0 ? "window" : "chunk", window < 0 ? window : chunk);
}

/* A number of each head. */
static status expect_sinks(const op_infer *io, int i, int H, err *e) {
    TRY(expect_dtype(io, i, real_dt(io), e));
    TRY(expect_rows(io, i, 1, "the size of sinks", e));
    return expect_cols(io, i, H, "H", e);
}

static status attention_check_attr(const op_infer *io, err *e) {
    const op_attr *at = io->attr;
    TRY(expect_positive(io, "B", at->attention.B, e));
    TRY(expect_positive(io, "Tq", at->attention.Tq, e));
    TRY(expect_positive(io, "Tk", at->attention.Tk, e));
    TRY(expect_dropout(io, at->attention.dropout, e));
    TRY(expect_heads(io, at->attention.H, at->attention.K, at->attention.D, at->attention.Dv, e));
    TRY(expect_window(io, at->attention.window, at->attention.chunk, e));
    TRY(expect_sinks(io, ATTENTION_SINKS, at->attention.H, e));
    return expect_softcap(io, at->attention.softcap, e);
}

/* Keys and values beside the queries of a program, or as a cache has them. */
static status attention_check_keys(const op_infer *io, err *e) {
    const op_attr *at = io->attr;
    int64_t rows = (int64_t)at->attention.B * at->attention.Tk, K = at->attention.K;
    if (!at->attention.by_head) {
        TRY(expect_rows(io, 1, rows, "B*Tk", e));
        TRY(expect_rows(io, 2, rows, "B*Tk", e));
        TRY(expect_cols(io, 1, K * at->attention.D, "K*D", e));
        TRY(expect_cols(io, 2, K * at->attention.Dv, "K*Dv", e));
        TRY(expect_dtype(io, 1, act_dt(io), e));
        return expect_dtype(io, 2, act_dt(io), e);
    }
    if (io->want_grad)
        return err_set(e, ST_USAGE, "attention: there is no gradient with keys from a cache");
    TRY(expect_rows(io, 1, rows * K, "B*K*Tk", e));
    TRY(expect_rows(io, 2, rows * K, "B*K*Tk", e));
    TRY(expect_cols(io, 1, at->attention.D, "D", e));
    TRY(expect_cols(io, 2, at->attention.Dv, "Dv", e));
    TRY(expect_cache_dtype(io, 1, e));
    return expect_dtype(io, 2, io->in[1].dt, e);
}

static status attention_check_bias(const op_infer *io, err *e) {
    if (!given(io, 6)) return ST_OK;
    TRY(expect_cols(io, 6, io->attr->attention.H, "H", e));
    TRY(expect_dtype(io, 6, act_dt(io), e));
    int32_t zero = io->attr->attention.bias_zero;
    if (zero >= 0 && zero < io->in[6].rows) return ST_OK;
    return err_set(e, ST_USAGE, "attention: row %d of a bias of %lld rows is that of distance 0",
                   zero, (long long)io->in[6].rows);
}

static void count_pairs(op_infer *io) {
    const op_attention *a = &io->attr->attention;
    double pairs = (double)a->B * a->H * op_attention_pairs(a), D = a->D, Dv = a->Dv;
    io->fwd.flops = pairs * 2.0 * (D + Dv);
    /* dp, dv of Dv; s again, dq, dk of D */
    io->bwd_input.flops = pairs * 2.0 * (3 * D + 2 * Dv);
    io->flops_bwd_again = pairs * 2.0 * D;
}

status infer_ATTENTION(op_infer *io, err *e) {
    TRY(attention_check_attr(io, e));
    int64_t B = io->attr->attention.B, Tq = io->attr->attention.Tq;
    int64_t H = io->attr->attention.H;
    int64_t D = io->attr->attention.D, Dv = io->attr->attention.Dv;
    TRY(attention_check_keys(io, e));
    TRY(attention_check_bias(io, e));
    TRY(expect_numbers(io, 5, "the size of a bound", e));
    TRY(expect_rows(io, 5, B * Tq, "B*Tq", e));
    TRY(expect_numbers(io, 3, "the size of a bound", e));
    TRY(expect_dtype(io, 4, DT_I32, e));
    TRY(expect_rows(io, 0, B * Tq, "B*Tq", e));
    TRY(expect_rows(io, 3, B * Tq, "B*Tq", e));
    TRY(expect_rows(io, 4, B, "B", e));
    TRY(expect_cols(io, 0, H * D, "H*D", e));
    TRY(expect_cols(io, 4, 1, "the size of a position", e));
    set_out(io, 0, act_dt(io), B * Tq, H * Dv);
    set_out(io, 1, real_dt(io), B * H, Tq);
    count_pairs(io);
    return ST_OK;
}

status infer_RING_ATTENTION(op_infer *io, err *e) {
    const op_attention *a = &io->attr->attention;
    int64_t N = (int64_t)a->B * a->Tq, all = N * io->attr->ring.ranks;
    TRY(expect_positive(io, "B", a->B, e));
    TRY(expect_positive(io, "Tq", a->Tq, e));
    TRY(expect_positive(io, "ranks", io->attr->ring.ranks, e));
    TRY(expect_heads(io, a->H, a->K, a->D, a->Dv, e));
    TRY(expect_sinks(io, RING_SINKS, a->H, e));
    TRY(expect_softcap(io, a->softcap, e));
    if (a->Tk != a->Tq || a->causal || a->window || a->chunk || a->dropout > 0)
        return err_set(e, ST_USAGE, "ring_attention: first and end alone say what is seen");
    TRY(expect_rows(io, 0, N, "B*Tq", e));
    TRY(expect_rows(io, 1, N, "B*Tq", e));
    TRY(expect_rows(io, 2, N, "B*Tq", e));
    TRY(expect_cols(io, 0, (int64_t)a->H * a->D, "H*D", e));
    TRY(expect_cols(io, 1, (int64_t)a->K * a->D, "K*D", e));
    TRY(expect_cols(io, 2, (int64_t)a->K * a->Dv, "K*Dv", e));
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_dtype(io, 2, act_dt(io), e));
    TRY(expect_numbers(io, 3, "the size of a bound", e));
    TRY(expect_numbers(io, 4, "the size of a bound", e));
    TRY(expect_rows(io, 3, all, "ranks*B*Tq", e));
    TRY(expect_rows(io, 4, all, "ranks*B*Tq", e));
    set_out(io, 0, act_dt(io), N, (int64_t)a->H * a->Dv);
    set_out(io, 1, real_dt(io), (int64_t)a->B * a->H, a->Tq);
    count_pairs(io);
    return ST_OK;
}

status infer_PAGE_ATTENTION(op_infer *io, err *e) {
    const op_attr *at = io->attr;
    TRY(expect_positive(io, "page", at->paged.page, e));
    TRY(expect_heads(io, at->paged.H, at->paged.K, at->paged.D, at->paged.Dv, e));
    TRY(expect_window(io, at->paged.window, at->paged.chunk, e));
    TRY(expect_sinks(io, PAGE_ATTENTION_SINKS, at->paged.H, e));
    TRY(expect_softcap(io, at->paged.softcap, e));
    TRY(expect_cols(io, 0, (int64_t)at->paged.H * at->paged.D, "H*D", e));
    TRY(expect_cols(io, 1, at->paged.page, "page", e));
    TRY(expect_cols(io, 2, at->paged.Dv, "Dv", e));
    int64_t pages = io->in[1].rows / at->paged.D / at->paged.K;
    TRY(expect_rows(io, 1, pages * at->paged.K * at->paged.D, "whole pages", e));
    TRY(expect_rows(io, 2, pages * at->paged.K * at->paged.page, "those of as many pages as k", e));
    if (!given(io, 2) && at->paged.Dv > at->paged.D)
        return err_set(e, ST_USAGE, "page_attention: keys of %d columns hold no values of %d",
                       (int)at->paged.D, (int)at->paged.Dv);
    TRY(expect_cache_dtype(io, 1, e));
    TRY(expect_dtype(io, 2, io->in[1].dt, e));
    TRY(expect_dtype(io, 3, DT_I32, e));
    TRY(expect_dtype(io, 4, DT_I32, e));
    TRY(same_rows(io, 4, 0, e));
    TRY(expect_cols(io, 4, 2, "the size of a place", e));
    set_out(io, 0, act_dt(io), io->in[0].rows, (int64_t)at->paged.H * at->paged.Dv);
    /* As if every row saw half of what its sequence has room for. */
    double keys = (double)io->in[3].cols * at->paged.page / 2;
    io->fwd.flops = 2.0 * elements(&io->in[0]) / at->paged.D * keys * (at->paged.D + at->paged.Dv);
    return ST_OK;
}

status infer_LATENT_KV(op_infer *io, err *e) {
    const op_heads *at = &io->attr->heads;
    TRY(expect_positive(io, "heads", at->heads, e));
    TRY(expect_positive(io, "D", at->D, e));
    if (at->Dv < 0) return err_set(e, ST_USAGE, "latent_kv: Dv is %d", (int)at->Dv);
    TRY(expect_cols(io, 0, (int64_t)at->heads * (at->D + at->Dv), "heads*(D+Dv)", e));
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(same_rows(io, 1, 0, e));
    set_out(io, 0, act_dt(io), io->in[0].rows, at->heads * (at->D + at->Dv + io->in[1].cols));
    io->bwd_input.flops = elements(&io->out[0]);
    return ST_OK;
}

status infer_HEADWISE(op_infer *io, err *e) {
    const op_heads *at = &io->attr->heads;
    int64_t rows = at->turned ? at->in : at->out;
    TRY(expect_positive(io, "heads", at->heads, e));
    TRY(expect_positive(io, "in", at->in, e));
    TRY(expect_positive(io, "out", at->out, e));
    TRY(expect_cols(io, 0, (int64_t)at->heads * (at->in + at->tail), "heads*(in+tail)", e));
    TRY(expect_cols(io, 1, at->turned ? at->out : at->in, at->turned ? "out" : "in", e));
    TRY(expect_matrix(io, 1, e));
    if (at->tail < 0 || at->first < 0 || at->step < 0 ||
        (at->heads - 1) * (int64_t)at->step + at->first + rows > io->in[1].rows)
        return err_set(e, ST_USAGE, "headwise: w has %lld rows, too few for %d heads",
                       (long long)io->in[1].rows, (int)at->heads);
    set_out(io, 0, act_dt(io), io->in[0].rows, (int64_t)at->heads * (at->out + at->tail));
    io->fwd.flops = 2.0 * (double)io->in[0].rows * at->heads * at->in * at->out;
    return ST_OK;
}
