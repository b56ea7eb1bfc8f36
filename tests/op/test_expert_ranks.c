/* Experts that ranks share out, on ranks that are threads: z and all gradients must be those of EXPERT_LINEAR and GATED with all
 * experts at one place, in double, whatever goes where and in how many rounds. */
#include "test.h"

#include "comm/comm_test.h"
#include "op/op.h"

enum { RANKS = 3, OWN = 2, E = RANKS * OWN, M = 21, TAKEN = 19, C = 5, F = 4, H = 2 * F };

typedef struct load {
    int rows[RANKS][E]; /* of each rank to each expert; TAKEN in all, the rest of M is dropped */
    int cap, rounds;
} load;

static const load LOADS[] = {
    {{{4, 3, 3, 3, 3, 3}, {3, 3, 4, 3, 3, 3}, {3, 3, 3, 3, 3, 4}}, 4, 2},    /* even */
    {{{0, 19, 0, 0, 0, 0}, {0, 19, 0, 0, 0, 0}, {0, 19, 0, 0, 0, 0}}, 4, 5}, /* all to one */
    {{{19, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 19}, {1, 2, 3, 4, 4, 5}}, 2, 10},
    {{{1, 2, 3, 4, 4, 5}, {5, 4, 4, 3, 2, 1}, {0, 0, 9, 0, 10, 0}}, M, 1}};

typedef struct numbers {
    double x[RANKS][M * C], dz[RANKS][M * C], z[RANKS][M * C], dx[RANKS][M * C];
    double w_in[E * H * C], w_out[E * C * F], dw_in[E * H * C], dw_out[E * C * F];
} numbers;

typedef struct work {
    numbers *whole;
    const load *load;
    bool fails; /* the world, before rows are exchanged */
} work;

static double value(int what, int64_t i) {
    return sin((double)(i * 7 + what * 131) * 0.37) * (1 + 0.1 * what);
}

static void fill(double *to, int64_t n, int what) {
    for (int64_t i = 0; i < n; i++) to[i] = value(what, i);
}

static tensor mat(void *data, dtype dt, int64_t rows, int64_t cols) {
    return (tensor){data, dt, rows, cols, cols};
}

/* ---- all experts at one place: a row at a time, by the formulas ---- */

static double silu(double g) {
    return g / (1 + exp(-g));
}

static double dsilu(double g) {
    double s = 1 / (1 + exp(-g));
    return s * (1 + g * (1 - s));
}

static void row(numbers *n, int r, int m, int e) {
    const double *x = n->x[r] + m * C, *dz = n->dz[r] + m * C;
    double *w_in = n->w_in + e * H * C, *w_out = n->w_out + e * C * F;
    double h[H] = {0}, dh[H];
    for (int i = 0; i < H; i++)
        for (int c = 0; c < C; c++) h[i] += w_in[i * C + c] * x[c];
    for (int f = 0; f < F; f++) {
        double a = silu(h[f]) * h[F + f], da = 0;
        for (int c = 0; c < C; c++) {
            n->z[r][m * C + c] += w_out[c * F + f] * a;
            n->dw_out[(e * C + c) * F + f] += dz[c] * a;
            da += w_out[c * F + f] * dz[c];
        }
        dh[f] = da * h[F + f] * dsilu(h[f]), dh[F + f] = da * silu(h[f]);
    }
    for (int i = 0; i < H; i++)
        for (int c = 0; c < C; c++) {
            n->dw_in[(e * H + i) * C + c] += dh[i] * x[c];
            n->dx[r][m * C + c] += w_in[i * C + c] * dh[i];
        }
}

static void compute_whole(numbers *n, const load *l) {
    fill(n->w_in, E * H * C, 1), fill(n->w_out, E * C * F, 2);
    for (int r = 0; r < RANKS; r++) {
        fill(n->x[r], M * C, 3 + r), fill(n->dz[r], M * C, 9 + r);
        for (int e = 0, m = 0; e < E; e++)
            for (int i = 0; i < l->rows[r][e]; i++) row(n, r, m++, e);
    }
}

/* ---- ranks ---- */

static void expect(const double *got, const double *want, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++)
        CHECK(fabs(got[i] - want[i]) <= 1e-12, "%s %d: %g, not %g", what, (int)i, got[i], want[i]);
}

static void on_rank(comm_world *world, void *ctx) {
    work *w = ctx;
    numbers *n = w->whole;
    mesh m;
    dev *d;
    err e = {0};
    double z[M * C], dx[M * C], dw_in[OWN * H * C], dw_out[OWN * C * F];
    int32_t starts[E + 1] = {0}, all[RANKS * (E + 1)], rounds = 0;
    mesh_open(&m,
              &(mesh_shape){.dp = RANKS, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1, .ep = RANKS},
              world);
    int rank = m.rank[MESH_EP];
    CHECK(dev_open(&d, DEV_CPU, 1, NULL) == ST_OK, "device");
    for (int i = 0; i < E; i++) starts[i + 1] = starts[i] + w->load->rows[rank][i];
    op_attr attr = {.expert_ranks = {.experts = E,
                                     .ranks = RANKS,
                                     .rank = rank,
                                     .rows = w->load->cap,
                                     .act = ACT_SILU,
                                     .gated = true,
                                     .what = "rows"}};
    op_infer io = {.kind = OP_EXPERT_RANKS, .attr = &attr, .dev = d, .want_grad = 7};
    io.in[0] = mat(n->x[rank], DT_F64, M, C);
    io.in[1] = mat(n->w_in + rank * OWN * H * C, DT_F64, OWN * H, C);
    io.in[2] = mat(n->w_out + rank * OWN * C * F, DT_F64, OWN * C, F);
    io.in[3] = mat(starts, DT_I32, 1, E + 1);
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = OP_EXPERT_RANKS, .attr = &attr, .run = &run};
    memcpy(c.in, io.in, sizeof c.in);
    c.out[0] = mat(z, DT_F64, M, C), c.out[1] = mat(all, DT_I32, RANKS, E + 1);
    c.out[2] = mat(&rounds, DT_I32, 1, 1);
    c.ws_bytes = io.fwd.ws_bytes > io.bwd_input.ws_bytes ? io.fwd.ws_bytes : io.bwd_input.ws_bytes;
    c.ws = xcalloc(1, (size_t)c.ws_bytes);
    memset(c.ws, 0xff, (size_t)c.ws_bytes); /* NaN */
    const op_impl *k = op_find(d, OP_EXPERT_RANKS, DT_F64);
    if (w->fails) {
        for (int i = 0; i < RANKS * (E + 1); i++) all[i] = i << 24; /* old memory */
        if (rank == 0)
            comm_fail(world, &(err){.code = ST_RANK, .message = "a rank is gone"});
        else
            k->fwd(&c);
        CHECK(rounds <= w->load->rounds, "%d rounds", rounds);
        free(c.ws);
        dev_close(d);
        return;
    }
    k->fwd(&c);
    CHECK(rounds == w->load->rounds, "%d rounds, not %d", rounds, w->load->rounds);
    expect(z, n->z[rank], M * C, "z");
    c.dout[0] = mat(n->dz[rank], DT_F64, M, C), c.din[0] = mat(dx, DT_F64, M, C);
    c.din[1] = mat(dw_in, DT_F64, OWN * H, C), c.din[2] = mat(dw_out, DT_F64, OWN * C, F);
    k->bwd_input(&c);
    expect(dx, n->dx[rank], M * C, "dx");
    expect(dw_in, n->dw_in + rank * OWN * H * C, OWN * H * C, "dw_in");
    expect(dw_out, n->dw_out + rank * OWN * C * F, OWN * C * F, "dw_out");
    free(c.ws);
    dev_close(d);
}

static void test_expert_ranks(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(LOADS); i++) {
        numbers *n = xcalloc(1, sizeof *n);
        work w = {n, &LOADS[i], false};
        compute_whole(n, w.load);
        run_threads(RANKS, on_rank, &w);
        free(n);
    }
}

/* Where a rank is gone nobody knows its load: no more is moved than there is, and the others come to an end. */
static void test_failed_world(void **state) {
    (void)state;
    numbers *n = xcalloc(1, sizeof *n);
    work w = {n, &LOADS[0], true};
    compute_whole(n, w.load);
    run_threads(RANKS, on_rank, &w);
    free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expert_ranks),
                                       cmocka_unit_test(test_failed_world)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
