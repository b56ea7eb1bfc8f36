/* Ops of context parallelism, on ranks that are threads: each computes its tokens, and all together must
 * give what ATTENTION gives of whole sequences, in double; heads and rows must come back as they were. */
#include "test.h"

#include "comm/comm_test.h"
#include "op/op.h"

enum { RANKS = 3, B = 2, T = 12, OWN = T / RANKS, N = B * OWN, H = 6, K = 3, D = 4, DV = 2 };
enum { WQ = H * D, WK = K * D, WV = K * DV, WO = H * DV, WINDOW = 7 };

static double value(int what, int64_t i) {
    return sin((double)(i * 7 + what * 131) * 0.37) * (1 + 0.1 * what);
}

/* Tokens go to ranks in no order but their own; the same number of each sequence to each rank. */
static int rank_of(int t) {
    static const int of[T] = {0, 2, 1, 1, 0, 2, 2, 0, 1, 0, 2, 1};
    return of[t];
}

static int place(int rank, int i) {
    for (int t = 0; t < T; t++)
        if (rank_of(t) == rank && i-- == 0) return t;
    return -1;
}

/* Row of all ranks' rows, one rank's behind another's, of token t of sequence b. */
static int row_of(int b, int t) {
    int before = 0;
    for (int s = 0; s < t; s++) before += rank_of(s) == rank_of(t);
    return rank_of(t) * N + b * OWN + before;
}

static int first_of(int t) {
    return t - WINDOW + 1 > 0 ? t - WINDOW + 1 : 0;
}

/* ---- whole sequences ---- */

typedef struct numbers {
    double q[B * T * WQ], k[B * T * WK], v[B * T * WV], o[B * T * WO], lse[B * H * T];
    double dq[B * T * WQ], dk[B * T * WK], dv[B * T * WV], dO[B * T * WO];
    double sinks[H], dsinks[H];
} numbers;

static tensor mat(void *data, dtype dt, int64_t rows, int64_t cols) {
    return (tensor){data, dt, rows, cols, cols};
}

static void attend_whole(numbers *x) {
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, 1, NULL), ST_OK);
    op_run run = {.dev = d};
    op_attr attr = {.attention = {.B = B, .Tq = T, .Tk = T, .H = H, .K = K, .D = D, .Dv = DV}};
    attr.attention.causal = true, attr.attention.window = WINDOW, attr.attention.scale = 0.5f;
    op_call c = {.kind = OP_ATTENTION, .attr = &attr, .run = &run};
    c.in[0] = mat(x->q, DT_F64, B * T, WQ), c.in[1] = mat(x->k, DT_F64, B * T, WK);
    c.in[2] = mat(x->v, DT_F64, B * T, WV);
    c.in[ATTENTION_SINKS] = mat(x->sinks, DT_F64, 1, H);
    c.out[0] = mat(x->o, DT_F64, B * T, WO), c.out[1] = mat(x->lse, DT_F64, B * H, T);
    const op_impl *impl = op_find_reference(OP_ATTENTION, DT_F64);
    impl->fwd(&c);
    c.dout[0] = mat(x->dO, DT_F64, B * T, WO);
    c.din[0] = mat(x->dq, DT_F64, B * T, WQ), c.din[1] = mat(x->dk, DT_F64, B * T, WK);
    c.din[2] = mat(x->dv, DT_F64, B * T, WV);
    c.din[ATTENTION_SINKS] = mat(x->dsinks, DT_F64, 1, H);
    impl->bwd_input(&c);
    dev_close(d);
}

static void make(numbers *x) {
    memset(x, 0, sizeof *x);
    for (int i = 0; i < B * T * WQ; i++) x->q[i] = value(0, i);
    for (int i = 0; i < B * T * WK; i++) x->k[i] = value(1, i);
    for (int i = 0; i < B * T * WV; i++) x->v[i] = value(2, i);
    for (int i = 0; i < B * T * WO; i++) x->dO[i] = value(3, i);
    for (int i = 0; i < H; i++) x->sinks[i] = value(4, i);
    attend_whole(x);
}

/* ---- ranks ---- */

typedef struct work {
    const numbers *whole;
    dtype dt;
    double tolerance;
    dev_kind device;
    double dsinks[RANKS][H];
} work;

/* Rank `rank`'s rows of a whole [B*T,W], as dt. */
static void share(const double *whole, int64_t W, int rank, dtype dt, void *own) {
    for (int n = 0; n < N; n++)
        for (int64_t j = 0; j < W; j++) {
            double x = whole[(n / OWN * T + place(rank, n % OWN)) * W + j];
            if (dt == DT_F64)
                ((double *)own)[n * W + j] = x;
            else
                ((float *)own)[n * W + j] = (float)x;
        }
}

static void expect(const double *whole, int64_t W, int rank, const work *w, const void *own,
                   const char *what) {
    double want[N * WQ];
    share(whole, W, rank, DT_F64, want);
    for (int64_t i = 0; i < N * W; i++) {
        double got = w->dt == DT_F64 ? ((const double *)own)[i] : (double)((const float *)own)[i];
        CHECK(fabs(got - want[i]) <= w->tolerance, "%s of rank %d, element %d: %g, not %g", what,
              rank, (int)i, got, want[i]);
    }
}

static int keys_before(int rank, int t) {
    int n = 0;
    for (int s = 0; s < t; s++) n += rank_of(s) == rank;
    return n;
}

static void bound(int rank, int32_t *first, int32_t *end) {
    for (int hop = 0; hop < RANKS; hop++)
        for (int n = 0; n < N; n++) {
            int of = (rank - hop + RANKS) % RANKS, t = place(rank, n % OWN);
            first[hop * N + n] = keys_before(of, first_of(t));
            end[hop * N + n] = keys_before(of, t + 1);
        }
}

static void run_both(op_call *c, const op_infer *io, void *ws, int64_t room) {
    CHECK(io->fwd.ws_bytes <= room && io->bwd_input.ws_bytes <= room, "workspace");
    const op_impl *impl = op_find(c->run->dev, c->kind, c->in[0].dt);
    op_call forward = *c;
    memset(forward.dout, 0, sizeof forward.dout);
    memset(forward.din, 0, sizeof forward.din);
    c->ws = forward.ws = ws;
    forward.ws_bytes = io->fwd.ws_bytes;
    op_launch(c->run->dev, impl->fwd, &forward);
    c->ws_bytes = io->bwd_input.ws_bytes;
    op_launch(c->run->dev, impl->bwd_input, c);
}

/* The same in the memory of a device: tensors go there, and what the op writes comes back. */
static void run_there(op_call *c, const op_infer *io) {
    enum { ROOM = 1 << 20, MOST = 2 * (OP_MAX_IN + OP_MAX_OUT) };
    dev *d = c->run->dev;
    tensor *all[MOST];
    void *here[MOST], *memory;
    int n = 0;
    CHECK(dev_reserve(d, &memory, ROOM, "tensors", NULL) == ST_OK, "memory");
    for (int i = 0; i < OP_MAX_IN; i++) all[n++] = &c->in[i], all[n++] = &c->din[i];
    for (int i = 0; i < OP_MAX_OUT; i++) all[n++] = &c->out[i], all[n++] = &c->dout[i];
    char *at = memory;
    for (int i = 0; i < n; i++) {
        here[i] = all[i]->data;
        if (!here[i]) continue;
        size_t bytes = (size_t)(all[i]->rows * all[i]->cols) * dtype_bytes(all[i]->dt);
        dev_write(d, at, here[i], bytes);
        all[i]->data = at;
        at += (bytes + 63) / 64 * 64;
    }
    run_both(c, io, at, (char *)memory + ROOM - at);
    for (int i = 0; i < n; i++)
        if (here[i])
            dev_read(d, here[i], all[i]->data,
                     (size_t)(all[i]->rows * all[i]->cols) * dtype_bytes(all[i]->dt));
    err e = {0};
    CHECK(dev_check(d, &e) == ST_OK, "%s", e.message);
    dev_release(d, memory, ROOM);
}

static void ring_on_rank(comm_world *world, void *ctx) {
    work *w = ctx;
    mesh m;
    dev *d;
    err e = {0};
    static _Thread_local double ws[1 << 16];
    double q[N * WQ], k[N * WK], v[N * WV], o[N * WO], dO[N * WO], lse[B * H * OWN];
    double dq[N * WQ] = {0}, dk[N * WK], dv[N * WV], sinks[H], dsinks[H] = {0};
    int32_t first[RANKS * N], end[RANKS * N];
    mesh_open(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = 1, .cp = RANKS, .pp = 1}, world);
    int rank = m.rank[MESH_CP];
    CHECK(dev_open_of_rank(&d, w->device, rank, 1, NULL) == ST_OK, "device");
    CHECK(comm_use_device(world, d, &e) == ST_OK, "%s", e.message);
    op_attr attr = {.ring = {.ranks = RANKS, .rank = rank, .what = "ring"}};
    attr.attention = (op_attention){.B = B, .Tq = OWN, .Tk = OWN, .H = H, .K = K, .D = D, .Dv = DV};
    attr.attention.scale = 0.5f;
    share(w->whole->q, WQ, rank, w->dt, q), share(w->whole->k, WK, rank, w->dt, k);
    share(w->whole->v, WV, rank, w->dt, v), share(w->whole->dO, WO, rank, w->dt, dO);
    for (int h = 0; h < H && w->dt == DT_F64; h++) sinks[h] = w->whole->sinks[h];
    for (int h = 0; h < H && w->dt == DT_F32; h++) ((float *)sinks)[h] = (float)w->whole->sinks[h];
    bound(rank, first, end);
    op_infer io = {
        .kind = OP_RING_ATTENTION, .attr = &attr, .dev = d, .want_grad = 7 | 1 << RING_SINKS};
    io.in[0] = mat(q, w->dt, N, WQ), io.in[1] = mat(k, w->dt, N, WK),
    io.in[2] = mat(v, w->dt, N, WV);
    io.in[3] = mat(first, DT_I32, RANKS * N, 1), io.in[4] = mat(end, DT_I32, RANKS * N, 1);
    io.in[RING_SINKS] = mat(sinks, w->dt, 1, H);
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = OP_RING_ATTENTION, .attr = &attr, .run = &run};
    memcpy(c.in, io.in, sizeof c.in);
    c.out[0] = io.out[0], c.out[0].data = o, c.out[1] = io.out[1], c.out[1].data = lse;
    c.dout[0] = mat(dO, w->dt, N, WO), c.din[0] = mat(dq, w->dt, N, WQ);
    c.din[1] = mat(dk, w->dt, N, WK), c.din[2] = mat(dv, w->dt, N, WV);
    c.din[RING_SINKS] = mat(dsinks, w->dt, 1, H);
    if (w->device == DEV_CUDA)
        run_there(&c, &io);
    else
        run_both(&c, &io, ws, sizeof ws);
    comm_leave_device(world, d);
    expect(w->whole->o, WO, rank, w, o, "o");
    expect(w->whole->dq, WQ, rank, w, dq, "dq");
    expect(w->whole->dk, WK, rank, w, dk, "dk");
    expect(w->whole->dv, WV, rank, w, dv, "dv");
    for (int h = 0; h < H; h++)
        w->dsinks[rank][h] = w->dt == DT_F64 ? dsinks[h] : (double)((float *)dsinks)[h];
    dev_close(d);
}

static void check_ring(dev_kind device, dtype dt, double tolerance) {
    numbers *x = xcalloc(1, sizeof *x);
    work w = {.whole = x, .dt = dt, .tolerance = tolerance, .device = device};
    make(x);
    run_threads(RANKS, ring_on_rank, &w);
    for (int h = 0; h < H; h++) {
        double sum = 0;
        for (int r = 0; r < RANKS; r++) sum += w.dsinks[r][h];
        assert_true(fabs(sum - x->dsinks[h]) <= tolerance);
    }
    free(x);
}

static void test_ring(void **state) {
    (void)state;
    check_ring(DEV_CPU, DT_F64, 1e-12);
    check_ring(DEV_CPU, DT_F32, 2e-6);
}

/* By NCCL, and through the host's memory. */
static void test_ring_on_gpus(void **state) {
    (void)state;
    setenv("ATHANOR_CUDA", "emulated", 1);
    for (int own = 0; own < 2; own++) {
        setenv("ATHANOR_CUDA_COUNT", own ? "3" : "1", 1);
        check_ring(DEV_CUDA, DT_F32, 4e-6);
    }
}

/* ---- rows and heads ---- */

static void set_order(int32_t *order) {
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) order[b * T + t] = row_of(b, t);
}

/* All tokens in their order; the gradient is the sum of what all ranks say of this rank's. */
static void gather_on_rank(comm_world *world, void *ctx) {
    work *w = ctx;
    mesh m;
    dev *d;
    err e = {0};
    double k[N * WK], v[N * WV], kv[B * T * (WK + WV)], ws[B * T * (WK + WV)];
    int32_t order[B * T];
    mesh_open(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = 1, .cp = RANKS, .pp = 1}, world);
    int rank = m.rank[MESH_CP];
    CHECK(dev_open(&d, DEV_CPU, 1, NULL) == ST_OK, "device");
    op_attr attr = {.comm = {.axis = MESH_CP, .ranks = RANKS, .rank = rank, .what = "kv"}};
    share(w->whole->k, WK, rank, DT_F64, k), share(w->whole->v, WV, rank, DT_F64, v);
    set_order(order);
    op_infer io = {.kind = OP_GATHER_KV, .attr = &attr, .dev = d, .want_grad = 3};
    io.in[0] = mat(k, DT_F64, N, WK), io.in[1] = mat(v, DT_F64, N, WV);
    io.in[2] = mat(order, DT_I32, B * T, 1);
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = OP_GATHER_KV, .attr = &attr, .run = &run};
    memcpy(c.in, io.in, sizeof c.in);
    c.out[0] = mat(kv, DT_F64, B * T, WK + WV), c.dout[0] = c.out[0];
    c.din[0] = mat(k, DT_F64, N, WK), c.din[1] = mat(v, DT_F64, N, WV);
    c.acc = 2; /* dv is added */
    run_both(&c, &io, ws, sizeof ws);
    for (int i = 0; i < B * T; i++) {
        CHECK(memcmp(kv + i * (WK + WV), w->whole->k + i * WK, WK * sizeof *k) == 0, "key %d", i);
        CHECK(memcmp(kv + i * (WK + WV) + WK, w->whole->v + i * WV, WV * sizeof *v) == 0, "v %d",
              i);
    }
    for (int i = 0; i < N * WK; i++) k[i] /= RANKS;
    for (int i = 0; i < N * WV; i++) v[i] /= RANKS + 1;
    expect(w->whole->k, WK, rank, w, k, "dk");
    expect(w->whole->v, WV, rank, w, v, "dv");
    dev_close(d);
}

/* This rank's heads of all tokens; back again, all heads of this rank's tokens. */
static void heads_on_rank(comm_world *world, void *ctx) {
    enum { W = WQ / RANKS };
    work *w = ctx;
    mesh m;
    dev *d;
    err e = {0};
    double x[N * WQ], y[B * T * W], back[N * WQ], ws[2 * N * WQ];
    int32_t order[B * T];
    mesh_open(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = 1, .cp = RANKS, .pp = 1}, world);
    int rank = m.rank[MESH_CP];
    CHECK(dev_open(&d, DEV_CPU, 1, NULL) == ST_OK, "device");
    op_attr attr = {.comm = {.axis = MESH_CP, .ranks = RANKS, .rank = rank, .what = "heads"}};
    set_order(order);
    op_run run = {.dev = d, .mesh = &m};
    for (int joins = 0; joins < 2; joins++) {
        op_infer io = {.kind = joins ? OP_JOIN_HEADS : OP_SPLIT_HEADS, .attr = &attr, .dev = d};
        io.want_grad = 1;
        tensor of_tokens = mat(x, DT_F64, N, WQ), of_heads = mat(y, DT_F64, B * T, W);
        share(w->whole->q, WQ, rank, DT_F64, x);
        for (int n = 0; n < B * T; n++)
            memcpy(y + n * W, w->whole->q + n * WQ + rank * W, W * sizeof *y);
        io.in[0] = joins ? of_heads : of_tokens, io.in[1] = mat(order, DT_I32, B * T, 1);
        CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
        op_call c = {.kind = io.kind, .attr = &attr, .run = &run};
        memcpy(c.in, io.in, sizeof c.in);
        c.out[0] = joins ? of_tokens : of_heads, c.dout[0] = c.out[0];
        memset(c.out[0].data, 0, joins ? sizeof x : sizeof y);
        c.din[0] = joins ? mat(back, DT_F64, B * T, W) : mat(back, DT_F64, N, WQ);
        run_both(&c, &io, ws, sizeof ws);
        CHECK(memcmp(back, c.in[0].data, sizeof back) == 0, "there and back");
        for (int n = 0; n < B * T; n++)
            CHECK(memcmp(y + n * W, w->whole->q + n * WQ + rank * W, W * sizeof *y) == 0, "head");
        expect(w->whole->q, WQ, rank, w, x, "tokens");
    }
    dev_close(d);
}

static void test_rows_and_heads(void **state) {
    (void)state;
    numbers *x = xcalloc(1, sizeof *x);
    work w = {.whole = x, .dt = DT_F64, .tolerance = 1e-14};
    make(x);
    run_threads(RANKS, gather_on_rank, &w);
    run_threads(RANKS, heads_on_rank, &w);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_ring_on_gpus),
                                       cmocka_unit_test(test_rows_and_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
