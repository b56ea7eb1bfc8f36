/* Rules of routers and experts. */
#include "op/router.h"
#include "op/rules/rules.h"

status infer_ROUTER_PROBS(op_infer *io, err *e) {
    (void)e;
    set_out(io, 0, real_dt(io), io->in[0].rows, io->in[0].cols);
    count_elementwise(io, 6, 5);
    return ST_OK;
}

static status router_check_groups(const op_infer *io, int64_t E, err *e) {
    const op_router *r = &io->attr->router;
    if (r->groups <= 1) return ST_OK;
    if (E % r->groups)
        return err_set(e, ST_USAGE, "router_pick: %lld experts do not divide into %d groups",
                       (long long)E, r->groups);
    if (r->best < 1 || r->best > E / r->groups)
        return err_set(e, ST_USAGE, "router_pick: a group of %lld has no %d best experts",
                       (long long)(E / r->groups), r->best);
    if (r->kept < 1 || r->kept > r->groups || r->k > r->kept * (E / r->groups))
        return err_set(e, ST_USAGE, "router_pick: %d of %d groups have no %d experts", r->kept,
                       r->groups, r->k);
    return ST_OK;
}

status infer_ROUTER_PICK(op_infer *io, err *e) {
    int64_t E = io->in[0].cols, k = io->attr->router.k;
    TRY(expect_positive(io, "k", k, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_rows(io, 1, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 1, E, "the number of experts", e));
    if (k > E)
        return err_set(e, ST_USAGE, "router_pick: k is %lld, and there are %lld experts",
                       (long long)k, (long long)E);
    TRY(router_check_groups(io, E, e));
    set_out(io, 0, real_dt(io), io->in[0].rows, k);
    set_out(io, 1, DT_I32, io->in[0].rows, k);
    count_elementwise(io, 2, 2);
    return ST_OK;
}

static status expect_sequences(const op_infer *io, int64_t S, err *e) {
    if (io->in[0].rows % S == 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %lld rows are no %lld sequences", op_classes[io->kind].name,
                   (long long)io->in[0].rows, (long long)S);
}

status infer_ROUTER_SORT(op_infer *io, err *e) {
    int64_t E = io->attr->router.experts, N = io->in[0].rows, k = io->in[0].cols;
    TRY(expect_positive(io, "experts", E, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, DT_I32, e));
    TRY(same_rows(io, 1, 0, e));
    TRY(same_cols(io, 1, 0, e));
    int64_t S = router_sequences(&io->attr->router), places = S * E * io->attr->router.capacity;
    TRY(expect_sequences(io, S, e));
    set_out(io, 0, DT_I32, places > 0 && places < N * k ? places : N * k, 1);
    set_out(io, 1, DT_I32, N, k);
    set_out(io, 2, DT_I32, 1, E + 1);
    return ST_OK;
}

static status expect_starts(op_infer *io, int i, int64_t E, err *e) {
    TRY(expect_dtype(io, i, DT_I32, e));
    TRY(expect_rows(io, i, 1, "one", e));
    return expect_cols(io, i, E + 1, "one more than the experts", e);
}

status infer_EXPERT_LINEAR(op_infer *io, err *e) {
    const tensor *x = &io->in[0], *w = &io->in[1];
    int64_t E = io->attr->experts.n;
    TRY(expect_positive(io, "experts", E, e));
    TRY(expect_matrix(io, 1, e));
    TRY(same_cols(io, 0, 1, e));
    if (w->rows % E)
        return err_set(e, ST_USAGE, "expert_linear: w has %lld rows, no multiple of %lld experts",
                       (long long)w->rows, (long long)E);
    TRY(expect_starts(io, 2, E, e));
    set_out(io, 0, act_dt(io), x->rows, w->rows / E);
    double product = 2.0 * elements(x) * (double)(w->rows / E);
    io->fwd.flops = product;
    if (io->want_grad & 1u) io->bwd_input.flops = product;
    if (io->want_grad & 2u) io->bwd_weight.flops = product;
    return ST_OK;
}

status infer_EXPERT_RANKS(op_infer *io, err *e) {
    const op_expert_ranks *a = &io->attr->expert_ranks;
    const tensor *x = &io->in[0], *w_out = &io->in[2];
    TRY(expect_positive(io, "ranks", a->ranks, e));
    TRY(expect_positive(io, "rows", a->rows, e));
    TRY(expect_positive(io, "experts", a->experts, e));
    int64_t own = a->experts / a->ranks, H = w_out->cols * (1 + a->gated);
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_dtype(io, 2, act_dt(io), e));
    TRY(same_cols(io, 1, 0, e));
    TRY(expect_rows(io, 1, own * H, "those of the rank's experts", e));
    TRY(expect_rows(io, 2, own * x->cols, "those of the rank's experts", e));
    TRY(expect_starts(io, 3, a->experts, e));
    set_out(io, 0, act_dt(io), x->rows, x->cols);
    set_out(io, 1, DT_I32, a->ranks, a->experts + 1);
    set_out(io, 2, DT_I32, 1, 1);
    double first = 2.0 * elements(x) * (double)H, second = 2.0 * elements(x) * (double)w_out->cols;
    io->fwd.flops = first + second;
    io->bwd_input.flops = 2 * (first + second) + first;
    io->flops_bwd_again = first;
    return ST_OK;
}

status infer_EXPERT_SUM(op_infer *io, err *e) {
    const tensor *z = &io->in[0], *weights = &io->in[1];
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_dtype(io, 2, DT_I32, e));
    TRY(same_rows(io, 2, 1, e));
    TRY(same_cols(io, 2, 1, e));
    if (z->rows > weights->rows * weights->cols)
        return err_set(e, ST_USAGE, "expert_sum: z has %lld rows, and there are %lld weights",
                       (long long)z->rows, (long long)(weights->rows * weights->cols));
    TRY(expect_dtype(io, 3, act_dt(io), e));
    TRY(expect_rows(io, 3, weights->rows, "the number of rows of weights", e));
    TRY(same_cols(io, 3, 0, e));
    set_out(io, 0, act_dt(io), weights->rows, z->cols);
    count_elementwise(io, 2, 3);
    return ST_OK;
}

static status expect_picks(op_infer *io, err *e) {
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, DT_I32, e));
    return same_rows(io, 1, 0, e);
}

status infer_ROUTER_LOAD(op_infer *io, err *e) {
    int64_t E = io->in[0].cols, S = router_sequences(&io->attr->router);
    TRY(expect_picks(io, e));
    TRY(expect_sequences(io, S, e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(expect_rows(io, 2, 2 * S, "two for each sequence", e));
    TRY(expect_cols(io, 2, E, "the number of experts", e));
    set_out(io, 0, real_dt(io), 2 * S, E);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

status infer_ROUTER_BALANCE(op_infer *io, err *e) {
    TRY(expect_positive(io, "k", io->attr->router.k, e));
    TRY(expect_positive(io, "layers", io->attr->router.layers, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    if (io->in[0].rows % 2)
        return err_set(e, ST_USAGE,
                       "router_balance: a load has two rows for each sequence, not %lld",
                       (long long)io->in[0].rows);
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_rows(io, 1, 1, "one", e));
    TRY(same_cols(io, 1, 0, e));
    set_out(io, 0, real_dt(io), 1, 1);
    count_elementwise(io, 2, 1);
    return ST_OK;
}

status infer_ROUTER_Z(op_infer *io, err *e) {
    (void)e;
    set_out(io, 0, real_dt(io), 1, 1);
    count_elementwise(io, 3, 6);
    return ST_OK;
}

status infer_ROUTER_TALLY(op_infer *io, err *e) {
    TRY(expect_picks(io, e));
    TRY(expect_starts(io, 2, io->in[0].cols, e));
    set_out(io, 0, real_dt(io), 4, io->in[0].cols);
    count_elementwise(io, 4, 0);
    return ST_OK;
}
