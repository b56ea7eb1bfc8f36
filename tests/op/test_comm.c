/* Ops that communicate, on ranks that are threads: every output and gradient against the sums and
 * rows that they are made of. */
#include "test.h"

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_and_rows),
                                       cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
