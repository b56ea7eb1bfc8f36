/* Rules of ops that look up or place rows: tables, chosen rows, caches. */
#include "op/rules/rules.h"

status infer_EMBED(op_infer *io, err *e) {
    TRY(expect_matrix(io, 0, e));
    TRY(expect_numbers(io, 1, "the size of an id", e));
    if (io->attr->embed.no_grad_id < -1)
        return err_set(e, ST_USAGE, "embed: no_grad_id is %d but must be an id, or -1",
                       (int)io->attr->embed.no_grad_id);
    int64_t all = io->attr->embed.all_rows, end = io->attr->embed.first + io->in[0].rows;
    if (all && (io->attr->embed.first < 0 || end > all))
        return err_set(e, ST_USAGE, "embed: rows %d to %lld are no part of a table of %lld",
                       (int)io->attr->embed.first, (long long)end, (long long)all);
    set_out(io, 0, act_dt(io), io->in[1].rows, io->in[0].cols);
    io->bwd_weight.flops = elements(&io->out[0]);
    return ST_OK;
}

status infer_TAKE_ROWS(op_infer *io, err *e) {
    TRY(expect_numbers(io, 1, "the size of a row's number", e));
    set_out(io, 0, act_dt(io), io->in[1].rows, io->in[0].cols);
    io->bwd_input.flops = elements(&io->out[0]);
    return ST_OK;
}

status infer_AHEAD(op_infer *io, err *e) {
    int64_t T = io->attr->ahead.T, by = io->attr->ahead.by;
    TRY(expect_positive(io, "T", T, e));
    TRY(expect_positive(io, "by", by, e));
    TRY(expect_numbers(io, 1, "the size of an id", e));
    TRY(expect_numbers(io, 2, "the size of a position", e));
    TRY(same_rows(io, 2, 1, e));
    if (io->in[1].rows % T)
        return err_set(e, ST_USAGE, "ahead: %lld rows are no whole sequences of %lld",
                       (long long)io->in[1].rows, (long long)T);
    set_out(io, 0, DT_I32, io->in[1].rows, 1);
    return ST_OK;
}

status infer_KV_STORE(op_infer *io, err *e) {
    int64_t B = io->attr->kv.B, T = io->attr->kv.T, Tmax = io->attr->kv.Tmax, K = io->attr->kv.K;
    TRY(expect_positive(io, "B", B, e));
    TRY(expect_positive(io, "T", T, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_cache_dtype(io, 0, e));
    TRY(expect_numbers(io, 2, "the size of a position", e));
    TRY(expect_cols(io, 1, K * io->in[0].cols, "K times those of the cache", e));
    TRY(expect_rows(io, 0, B * K * Tmax, "B*K*Tmax", e));
    TRY(expect_rows(io, 1, B * T, "B*T", e));
    TRY(expect_rows(io, 2, B, "B", e));
    if (T > Tmax)
        return err_set(e, ST_USAGE, "kv_store: %lld new rows do not fit a cache of %lld",
                       (long long)T, (long long)Tmax);
    set_out(io, 0, io->in[0].dt, io->in[0].rows, io->in[0].cols);
    return ST_OK;
}

status infer_PAGE_STORE(op_infer *io, err *e) {
    int64_t K = io->attr->paged.K, page = io->attr->paged.page, rows = page;
    TRY(expect_positive(io, "page", page, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_cache_dtype(io, 0, e));
    if (io->attr->paged.turned) {
        TRY(expect_cols(io, 0, page, "page", e));
        rows = io->in[1].cols / K;
        TRY(expect_cols(io, 1, K * rows, "a multiple of K", e));
    } else {
        TRY(expect_cols(io, 1, K * io->in[0].cols, "K times those of the cache", e));
    }
    TRY(expect_numbers(io, 2, "the size of a place", e));
    TRY(same_rows(io, 2, 1, e));
    if (io->in[0].rows % (K * rows))
        return err_set(e, ST_USAGE, "page_store: %lld rows are no whole pages of %lld",
                       (long long)io->in[0].rows, (long long)(K * rows));
    set_out(io, 0, io->in[0].dt, io->in[0].rows, io->in[0].cols);
    return ST_OK;
}
