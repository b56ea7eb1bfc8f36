/* Ops that communicate, on ranks that are threads: every output and gradient against the sums and
 * rows that they are made of, and on emulated GPUs, by NCCL, against the CPU's. */
#include "test.h"

#include <stdlib.h>

#include "comm/comm_test.h"
#include "op/op.h"

enum { RANKS = 3, ROWS = 4, COLS = 5, ALL = RANKS * ROWS * COLS, WIDTH = 8 };

typedef struct rank_work {
    dtype dt;
    op_kind kind;
    bool backward;
    int64_t rows, cols; /* of what goes in */
    double in[ALL], out[RANKS * ALL];
    int64_t n_out;
} rank_work;

static double value(int rank, int64_t i) {
    return (double)((rank + 1) * 8 + i % 7) / 8.0;
}

static void put(void *p, int64_t i, double v, dtype dt) {
    if (dt == DT_F64) ((double *)p)[i] = v;
    if (dt == DT_F32) ((float *)p)[i] = (float)v;
    if (dt == DT_BF16) ((uint16_t *)p)[i] = f32_to_bf16((float)v);
    if (dt == DT_F16) ((uint16_t *)p)[i] = f32_to_f16((float)v);
}

static double get(const void *p, int64_t i, dtype dt) {
    if (dt == DT_F64) return ((const double *)p)[i];
    if (dt == DT_F16) return (double)f16_to_f32(((const uint16_t *)p)[i]);
    return dt == DT_F32 ? (double)((const float *)p)[i]
                        : (double)bf16_to_f32(((const uint16_t *)p)[i]);
}

static void run_rank(comm_world *world, void *works) {
    rank_work *w = (rank_work *)works + comm_world_rank(world);
    double in[ALL], out[RANKS * ALL], ws[RANKS * ALL];
    dev *d;
    mesh m;
    mesh_shape shape = {.dp = 1, .dp_replicate = 1, .tp = RANKS, .cp = 1, .pp = 1};
    mesh_open(&m, &shape, world);
    int rank = m.rank[MESH_TP];
    if (dev_open(&d, DEV_CPU, 1, NULL) != ST_OK) return;
    op_attr attr = {.comm = {.axis = MESH_TP, .ranks = RANKS, .rank = rank, .what = "test"}};
    if (w->kind == OP_GATHER_COLS) {
        attr.comm.cols = WIDTH;
        w->cols = op_part_of(WIDTH, RANKS, rank).n;
    }
    op_infer io = {.kind = w->kind, .attr = &attr, .dev = d};
    io.in[0] = (tensor){NULL, w->dt, w->rows, w->cols, w->cols};
    err e = {0};
    if (op_infer_call(&io, &e) == ST_OK && io.fwd.ws_bytes <= (int64_t)sizeof ws) {
        op_run run = {.dev = d, .mesh = &m};
        op_call c = {.kind = w->kind, .attr = &attr, .run = &run, .ws = ws};
        tensor *from = w->backward ? &c.dout[0] : &c.in[0],
               *to = w->backward ? &c.din[0] : &c.out[0];
        *from = w->backward ? io.out[0] : io.in[0];
        *to = w->backward ? io.in[0] : io.out[0];
        from->data = in;
        to->data = w->kind == OP_FAN_OUT ? (void *)in : out;
        for (int64_t i = 0; i < from->rows * from->cols; i++) put(in, i, value(rank, i), w->dt);
        const op_impl *impl = op_find(d, w->kind, w->dt);
        (w->backward ? impl->bwd_input : impl->fwd)(&c);
        w->n_out = to->rows * to->cols;
        for (int64_t i = 0; i < w->n_out; i++) w->out[i] = get(to->data, i, w->dt);
    }
    dev_close(d);
}

static void run_ranks(rank_work works[RANKS], op_kind kind, dtype dt, bool backward, int64_t rows) {
    for (int r = 0; r < RANKS; r++)
        works[r] =
            (rank_work){.dt = dt, .kind = kind, .backward = backward, .rows = rows, .cols = COLS};
    run_threads(RANKS, run_rank, works);
}

static double sum_at(int64_t i) {
    double sum = 0;
    for (int r = 0; r < RANKS; r++) sum += value(r, i);
    return sum;
}

/* What each op and its backward must give; the values are exact in every format. */
static double expected(op_kind kind, bool backward, int rank, int64_t i, int64_t n_in) {
    bool gathers = kind == (backward ? OP_SCATTER_SUM : OP_GATHER_ROWS);
    bool scatters = kind == (backward ? OP_GATHER_ROWS : OP_SCATTER_SUM);
    if (gathers) return value((int)(i / n_in), i % n_in);
    if (scatters) return sum_at(rank * n_in / RANKS + i);
    return kind == OP_FAN_OUT && !backward ? value(rank, i) : sum_at(i);
}

static void check(op_kind kind, bool backward) {
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    for (int k = 0; k < ARRAY_LEN(dts); k++) {
        rank_work works[RANKS];
        bool many_rows = kind == OP_SCATTER_SUM;
        run_ranks(works, kind, dts[k], backward, many_rows ? RANKS * ROWS : ROWS);
        bool from_many = many_rows != backward && (many_rows || kind == OP_GATHER_ROWS);
        int64_t n_in = (from_many ? RANKS : 1) * ROWS * COLS;
        for (int r = 0; r < RANKS; r++) {
            assert_true(works[r].n_out > 0);
            for (int64_t i = 0; i < works[r].n_out; i++) {
                double want = expected(kind, backward, r, i, n_in);
                if (works[r].out[i] != want)
                    fail_msg("%s %d rank %d element %d: %g, not %g", op_classes[kind].name,
                             backward, r, (int)i, works[r].out[i], want);
            }
        }
    }
}

static void test_sums_and_rows(void **state) {
    (void)state;
    check(OP_ALL_REDUCE, false);
    check(OP_FAN_OUT, false);
    check(OP_FAN_OUT, true);
    check(OP_GATHER_ROWS, false);
    check(OP_GATHER_ROWS, true);
    check(OP_SCATTER_SUM, false);
    check(OP_SCATTER_SUM, true);
}

/* Parts of 2, 3 and 3 columns. */
static void test_columns(void **state) {
    (void)state;
    rank_work works[RANKS];
    run_ranks(works, OP_GATHER_COLS, DT_F32, false, ROWS);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(works[r].n_out, ROWS * WIDTH);
        for (int from = 0; from < RANKS; from++) {
            op_part p = op_part_of(WIDTH, RANKS, from);
            for (int64_t n = 0; n < ROWS; n++)
                for (int64_t j = 0; j < p.n; j++)
                    assert_true(works[r].out[n * WIDTH + p.first + j] == value(from, n * p.n + j));
        }
    }
}

/* ---- on emulated GPUs: the bits of the CPU ---- */

enum { ROOM = 1 << 16, TOKENS = RANKS * ROWS };

typedef struct exchange {
    op_kind kind;
    dtype dt;
    bool backward;
    int64_t unit; /* columns are multiples of it: by themselves, or 16 bytes at a time */
    dev_kind device;
    char got[RANKS][ROOM];
    size_t bytes[RANKS];
} exchange;

/* Memory of a device, of which the first bytes are taken. */
typedef struct room {
    dev *d;
    char *at;
} room;

static bool has_order(op_kind kind) {
    return kind == OP_GATHER_KV || kind == OP_SPLIT_HEADS || kind == OP_JOIN_HEADS;
}

static void set_shapes(op_infer *io, const exchange *x, int rank) {
    bool many = x->kind == OP_JOIN_HEADS || x->kind == OP_SCATTER_SUM;
    int64_t rows = many ? TOKENS : ROWS, cols = x->unit * (x->kind == OP_JOIN_HEADS ? 1 : RANKS);
    if (x->kind == OP_GATHER_COLS) cols = op_part_of(io->attr->comm.cols, RANKS, rank).n;
    io->in[0] = (tensor){NULL, x->dt, rows, cols, cols};
    if (x->kind == OP_GATHER_KV) io->in[1] = (tensor){NULL, x->dt, rows, x->unit, x->unit};
    if (has_order(x->kind))
        io->in[x->kind == OP_GATHER_KV ? 2 : 1] = (tensor){NULL, DT_I32, TOKENS, 1, 1};
}

/* The tensor with memory and numbers of its own: sums of them are exact in every format. An order is a permutation. */
static tensor put_tensor(room *r, tensor t, int rank) {
    int64_t n = t.rows * t.cols;
    size_t bytes = (size_t)n * dtype_bytes(t.dt);
    char *host = xmalloc(bytes);
    for (int64_t i = 0; i < n; i++)
        if (t.dt == DT_I32)
            ((int32_t *)(void *)host)[i] = (int32_t)(i * 5 + 2) % TOKENS;
        else
            put(host, i, (double)(rank * 16 + i % 16) / 8, t.dt);
    dev_write(r->d, r->at, host, bytes);
    free(host);
    t.data = r->at;
    r->at += (bytes + 63) / 64 * 64;
    return t;
}

static void take_tensor(exchange *x, int rank, dev *d, const tensor *t) {
    size_t bytes = (size_t)(t->rows * t->cols) * dtype_bytes(t->dt);
    dev_read(d, x->got[rank] + x->bytes[rank], t->data, bytes);
    x->bytes[rank] += bytes;
}

static void run_exchange(exchange *x, const op_infer *io, op_call *c, room *r, int rank) {
    const op_impl *impl = op_find(r->d, x->kind, x->dt);
    int grads = x->kind == OP_GATHER_KV ? 2 : 1;
    for (int i = 0; i < OP_MAX_IN; i++)
        if (io->in[i].rows) c->in[i] = put_tensor(r, io->in[i], rank);
    tensor y = put_tensor(r, io->out[0], rank);
    for (int i = 0; x->backward && i < grads; i++) c->din[i] = put_tensor(r, io->in[i], rank);
    *(x->backward ? &c->dout[0] : &c->out[0]) = y;
    c->ws = r->at;
    op_launch(r->d, x->backward ? impl->bwd_input : impl->fwd, c);
    for (int i = 0; x->backward && i < grads; i++) take_tensor(x, rank, r->d, &c->din[i]);
    if (!x->backward) take_tensor(x, rank, r->d, &y);
}

static void exchange_on_rank(comm_world *world, void *ctx) {
    exchange *x = ctx;
    mesh m;
    dev *d;
    void *memory;
    err e = {0};
    mesh_open(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = RANKS, .cp = 1, .pp = 1}, world);
    int rank = m.rank[MESH_TP];
    CHECK(dev_open_of_rank(&d, x->device, rank, 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(world, d, &e) == ST_OK, "%s", e.message);
    CHECK(comm_by_nccl(world) == (x->device == DEV_CUDA), "goes by %s", comm_transport(world));
    CHECK(dev_reserve(d, &memory, ROOM, "tensors", &e) == ST_OK, "%s", e.message);
    op_attr attr = {.comm = {.axis = MESH_TP, .ranks = RANKS, .rank = rank, .what = "test"}};
    if (x->kind == OP_GATHER_COLS) attr.comm.cols = x->unit == 1 ? WIDTH : RANKS * x->unit;
    op_infer io = {.kind = x->kind, .attr = &attr, .dev = d, .want_grad = 3};
    set_shapes(&io, x, rank);
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = x->kind, .attr = &attr, .run = &run, .acc = 2}; /* dv is added */
    c.ws_bytes = x->backward ? io.bwd_input.ws_bytes : io.fwd.ws_bytes;
    run_exchange(x, &io, &c, &(room){d, memory}, rank);
    CHECK(dev_check(d, &e) == ST_OK, "%s", e.message);
    comm_leave_device(world, d);
    dev_release(d, memory, ROOM);
    dev_close(d);
}

static void compare_exchange(exchange *x) {
    static exchange there;
    x->device = DEV_CPU;
    run_threads(RANKS, exchange_on_rank, x);
    there = *x;
    there.device = DEV_CUDA;
    memset(there.bytes, 0, sizeof there.bytes);
    run_threads(RANKS, exchange_on_rank, &there);
    for (int r = 0; r < RANKS; r++) {
        assert_true(x->bytes[r] > 0 && x->bytes[r] == there.bytes[r]);
        if (memcmp(x->got[r], there.got[r], x->bytes[r]) != 0)
            fail_msg("%s %d of %s, %d columns: rank %d differs on a GPU", op_classes[x->kind].name,
                     x->backward, dtype_name(x->dt), (int)x->unit, r);
    }
}

static void test_on_gpus(void **state) {
    (void)state;
    static const op_kind kinds[] = {OP_ALL_REDUCE, OP_GATHER_ROWS, OP_SCATTER_SUM, OP_GATHER_COLS,
                                    OP_GATHER_KV,  OP_SPLIT_HEADS, OP_JOIN_HEADS};
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16};
    static exchange x;
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_COUNT", "8", 1);
    for (int k = 0; k < ARRAY_LEN(kinds) * ARRAY_LEN(dts) * 4; k++) {
        op_kind kind = kinds[k / 4 / ARRAY_LEN(dts)];
        bool backward = k % 2;
        if (backward && (kind == OP_ALL_REDUCE || kind == OP_GATHER_COLS)) continue;
        memset(&x, 0, sizeof x);
        x.kind = kind, x.dt = dts[k / 4 % ARRAY_LEN(dts)], x.backward = backward;
        x.unit = k / 2 % 2 ? 8 : 1;
        compare_exchange(&x);
    }
}

/* ---- norms of rows that ranks share ---- */

enum { NORM_ROWS = 5, MOST_COLS = 72, NORM_NUMBERS = 8 * NORM_ROWS * MOST_COLS };

typedef struct norms {
    op_kind kind;
    dtype dt;
    dev_kind device;
    int cols, copies;
    double got[RANKS][NORM_NUMBERS]; /* y, statistics, dx, dw, db */
    int n[RANKS];
} norms;

static void take_numbers(norms *x, int rank, dev *d, const tensor *t) {
    char host[NORM_ROWS * MOST_COLS * 8];
    dev_read(d, host, t->data, (size_t)(t->rows * t->cols) * dtype_bytes(t->dt));
    for (int64_t i = 0; i < t->rows * t->cols; i++)
        x->got[rank][x->n[rank]++] = get(host, i, t->dt);
}

/* Forward, then backward with gradients that are added to what is there. */
static void run_norms(norms *x, const op_infer *io, op_call *c, room *r, int rank) {
    const op_impl *impl = op_find(r->d, x->kind, x->dt);
    int inputs = x->kind == OP_LAYERNORM_RANKS ? 3 : 2;
    for (int i = 0; i < inputs; i++) c->in[i] = put_tensor(r, io->in[i], rank + i);
    for (int o = 0; o < inputs; o++) c->out[o] = put_tensor(r, io->out[o], rank);
    c->ws = r->at, c->ws_bytes = io->fwd.ws_bytes;
    op_launch(r->d, impl->fwd, c);
    for (int o = 0; o < inputs; o++) take_numbers(x, rank, r->d, &c->out[o]);
    c->dout[0] = put_tensor(r, io->out[0], rank + 5);
    for (int i = 0; i < inputs; i++) c->din[i] = put_tensor(r, io->in[i], rank);
    c->acc = 5; /* dx and db */
    c->ws = r->at, c->ws_bytes = io->bwd_input.ws_bytes;
    op_launch(r->d, impl->bwd_input, c);
    for (int i = 0; i < inputs; i++) take_numbers(x, rank, r->d, &c->din[i]);
}

static void norms_on_rank(comm_world *world, void *ctx) {
    norms *x = ctx;
    mesh m;
    dev *d;
    void *memory;
    err e = {0};
    mesh_open(&m, &(mesh_shape){.dp = 1, .dp_replicate = 1, .tp = RANKS, .cp = 1, .pp = 1}, world);
    int rank = m.rank[MESH_TP], cols = x->cols + (x->copies == 1) * rank;
    CHECK(dev_open_of_rank(&d, x->device, rank, 1, &e) == ST_OK, "%s", e.message);
    CHECK(comm_use_device(world, d, &e) == ST_OK, "%s", e.message);
    CHECK(dev_reserve(d, &memory, ROOM, "tensors", &e) == ST_OK, "%s", e.message);
    op_attr attr = {.norm = {.eps = 1e-5f,
                             .unit_offset = x->cols % 2,
                             .all_cols = RANKS * x->cols + 3,
                             .copies = x->copies,
                             .axis = MESH_TP}};
    if (x->copies > 1) attr.norm.all_cols = x->cols;
    op_infer io = {.kind = x->kind, .attr = &attr, .dev = d, .want_grad = 7};
    io.in[0] = (tensor){NULL, x->dt, NORM_ROWS, cols, cols};
    io.in[1] = io.in[2] = (tensor){NULL, DT_F32, 1, cols, cols};
    if (x->kind == OP_RMSNORM_RANKS) io.in[2] = (tensor){0};
    CHECK(op_infer_call(&io, &e) == ST_OK, "%s", e.message);
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = x->kind, .attr = &attr, .run = &run};
    run_norms(x, &io, &c, &(room){d, memory}, rank);
    CHECK(dev_check(d, &e) == ST_OK, "%s", e.message);
    comm_leave_device(world, d);
    dev_release(d, memory, ROOM);
    dev_close(d);
}

static void compare_norms(norms *x) {
    static norms there;
    x->device = DEV_CPU;
    run_threads(RANKS, norms_on_rank, x);
    there = *x;
    there.device = DEV_CUDA;
    memset(there.n, 0, sizeof there.n);
    run_threads(RANKS, norms_on_rank, &there);
    double limit = x->dt == DT_F32 ? 1e-5 : x->dt == DT_F16 ? 2e-3 : 1.6e-2;
    for (int r = 0; r < RANKS; r++) {
        assert_true(x->n[r] > 0 && x->n[r] == there.n[r]);
        for (int i = 0; i < x->n[r]; i++)
            if (!(fabs(there.got[r][i] - x->got[r][i]) <= limit * (1 + fabs(x->got[r][i]))))
                fail_msg("%s of %s, %d columns, %d copies, rank %d, number %d: %g, not %g",
                         op_classes[x->kind].name, dtype_name(x->dt), x->cols, x->copies, r, i,
                         there.got[r][i], x->got[r][i]);
    }
}

/* Rows of few and of many pieces, whole ones and others; each rank with columns of its own, or all with the same. */
static void test_norms_on_gpus(void **state) {
    (void)state;
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16};
    static const int cols[] = {1, 8, 69};
    static norms x;
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_COUNT", "8", 1);
    for (int k = 0; k < 2 * 2 * ARRAY_LEN(dts) * ARRAY_LEN(cols); k++) {
        memset(&x, 0, sizeof x);
        x.kind = k % 2 ? OP_RMSNORM_RANKS : OP_LAYERNORM_RANKS;
        x.copies = k / 2 % 2 ? RANKS : 1;
        x.dt = dts[k / 4 % ARRAY_LEN(dts)];
        x.cols = cols[k / 4 / ARRAY_LEN(dts)];
        compare_norms(&x);
    }
}

static void test_refusals(void **state) {
    (void)state;
    dev *d;
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 1, NULL), ST_OK);
    err e = {0};
    op_attr attr = {.comm = {.axis = MESH_TP, .ranks = 3, .rank = 0}};
    op_infer io = {.kind = OP_SCATTER_SUM, .attr = &attr, .dev = d};
    io.in[0] = (tensor){NULL, DT_F32, 7, 4, 4};
    assert_int_equal(op_infer_call(&io, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "7 rows do not divide over 3 ranks"));
    io.kind = OP_ALL_REDUCE;
    io.in[0].ld = 9;
    assert_int_equal(op_infer_call(&io, &e), ST_USAGE);
    attr.comm.rank = 3;
    io.in[0].ld = 4;
    assert_int_equal(op_infer_call(&io, &e), ST_USAGE);
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_and_rows), cmocka_unit_test(test_columns),
        cmocka_unit_test(test_on_gpus), cmocka_unit_test(test_norms_on_gpus),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
