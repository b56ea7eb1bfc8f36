/* LINEAR and EMBED with weights as files store them, on every instruction set that this machine
 * has and by the reference: against sums in double, at odd shapes and addresses; the same bits on
 * every run, with any number of threads, and for a row whatever other rows come with it. */
#include "test.h"

#include "base/quant_blocks.h"
#include "op/weights.h"

/* ---- LINEAR ---- */

typedef struct product {
    tensor x, bias, res;
    weights w;
    bool by_row, rounds;
} product;

static product make_product(arena *a, dtype dt, int64_t m, int64_t n, int64_t k, bool extras) {
    product p = {.x = make_floats(a, m, k, extras ? 3 : 0, 1), .w = make_weights(a, dt, n, k, 2)};
    if (!extras) return p;
    p.bias = make_floats(a, 1, n, 0, 3);
    p.res = make_floats(a, m, n, 5, 4);
    return p;
}

/* y is NaN before; what lies behind the workspace stays. */
static tensor run_linear(arena *a, const product *p, dev *d, const op_impl *impl) {
    enum { GUARD = 64 };
    op_attr attr = {.linear = {.by_row = p->by_row, .rounds = p->rounds}};
    op_infer io = {.kind = OP_LINEAR, .attr = &attr, .dev = d};
    io.in[0] = p->x, io.in[1] = p->w.t, io.in[2] = p->bias, io.in[3] = p->res;
    err e = {0};
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    op_run run = {.dev = d};
    op_call c = {.kind = OP_LINEAR, .attr = &attr, .run = &run, .ws_bytes = io.fwd.ws_bytes};
    memcpy(c.in, io.in, sizeof(c.in));
    c.out[0] = make_floats(a, p->x.rows, p->w.t.rows, 7, 5);
    memset(c.out[0].data, 0xff, (size_t)(c.out[0].rows * c.out[0].ld) * sizeof(float));
    uint8_t *ws = aligned_alloc(64, ((size_t)io.fwd.ws_bytes + GUARD + 63) / 64 * 64);
    memset(ws, 0xff, (size_t)io.fwd.ws_bytes + GUARD);
    c.ws = ws;
    op_launch(d, impl->fwd, &c);
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    for (int i = 0; i < GUARD; i++) assert_int_equal(ws[io.fwd.ws_bytes + i], 0xff);
    for (int64_t i = 0; i < c.out[0].rows; i++) /* the gaps between rows */
        for (int64_t j = c.out[0].cols; j < c.out[0].ld; j++)
            assert_true(isnan(at(&c.out[0], i, j)));
    free(ws);
    return c.out[0];
}

/* How far a sum may be off where rows of x are rounded to 16 bits with a scale for each 32 elements (attr.rounds): these
 * numbers move by half a step, largest / 32639 / 2, at most. */
static double most_moved(const product *p, int64_t i, int64_t j) {
    double moved = 0;
    for (int64_t k = 0; k < p->x.cols; k += 32) {
        double largest = 0, weight = 0;
        for (int64_t q = k; q < k + 32; q++) {
            largest = fmax(largest, fabs((double)at(&p->x, i, q)));
            weight += fabs((double)p->w.value[j * p->x.cols + q]);
        }
        moved += largest * weight / 32639 / 2;
    }
    return moved;
}

static bool is_blocks(dtype dt) {
    return dtype_is_blocks(dt) && !dtype_is_listed(dt);
}

static void check_linear(const product *p, const tensor *y, const char *who) {
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->cols; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p->x.cols; k++) {
                double v = (double)at(&p->x, i, k) * (double)p->w.value[j * p->x.cols + k];
                sum += v, size += fabs(v);
            }
            if (p->bias.rows) sum += (double)at(&p->bias, 0, j);
            if (p->res.rows) sum += (double)at(&p->res, i, j);
            double bound =
                2e-6 * size + 1e-6 + (p->rounds && is_blocks(p->w.t.dt) ? most_moved(p, i, j) : 0);
            if (fabs((double)at(y, i, j) - sum) <= bound) continue;
            fail_msg("%s, %s, %ld rows of [%ld,%ld]: y[%ld,%ld] is %.9g but must be %.9g", who,
                     dtype_name(p->w.t.dt), (long)y->rows, (long)y->cols, (long)p->x.cols, (long)i,
                     (long)j, (double)at(y, i, j), sum);
        }
}

static void check_same(const tensor *a, const tensor *b, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        assert_memory_equal((const float *)a->data + i * a->ld, (const float *)b->data + i * b->ld,
                            (size_t)a->cols * sizeof(float));
}

/* dx = dy w, added to what is there in every other call. */
static tensor run_backward(arena *a, const product *p, const tensor *dy, dev *d,
                           const op_impl *impl, bool add) {
    op_attr attr = {0};
    op_infer io = {.kind = OP_LINEAR, .attr = &attr, .dev = d, .want_grad = 1};
    io.in[0] = p->x, io.in[1] = p->w.t;
    err e = {0};
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    op_run run = {.dev = d};
    op_call c = {.kind = OP_LINEAR, .attr = &attr, .run = &run, .ws_bytes = io.bwd_input.ws_bytes};
    c.in[1] = p->w.t, c.dout[0] = *dy, c.acc = add;
    c.din[0] = make_floats(a, p->x.rows, p->x.cols, 7, 6);
    if (!add) memset(c.din[0].data, 0xff, (size_t)(c.din[0].rows * c.din[0].ld) * sizeof(float));
    c.ws = aligned_alloc(64, ((size_t)c.ws_bytes + 64) / 64 * 64);
    memset(c.ws, 0xff, (size_t)c.ws_bytes);
    op_launch(d, impl->bwd_input, &c);
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    free(c.ws);
    return c.din[0];
}

static void check_backward(arena *a, const product *p, dev *d, const op_impl *impl, bool add,
                           const char *who) {
    int64_t outs = p->w.t.rows, cols = p->x.cols;
    tensor dy = make_floats(a, p->x.rows, outs, 2, 8);
    tensor dx = run_backward(a, p, &dy, d, impl, add);
    tensor old = make_floats(a, p->x.rows, cols, 7, 6);
    for (int64_t i = 0; i < dx.rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            double sum = add ? (double)at(&old, i, k) : 0, size = fabs(sum);
            for (int64_t j = 0; j < outs; j++) {
                double v = (double)at(&dy, i, j) * (double)p->w.value[j * cols + k];
                sum += v, size += fabs(v);
            }
            if (fabs((double)at(&dx, i, k) - sum) <= 2e-6 * size + 1e-6) continue;
            fail_msg("%s, %s, %ld rows of [%ld,%ld]: dx[%ld,%ld] is %.9g but must be %.9g", who,
                     dtype_name(p->w.t.dt), (long)dx.rows, (long)outs, (long)cols, (long)i, (long)k,
                     (double)at(&dx, i, k), sum);
        }
}

/* Columns of w, by the block of the format: one, several, and over the length that one pass of the
 * packed product takes, with a last part that is shorter than the others. */
static int64_t columns_of(dtype dt, int which) {
    static const int64_t plain[] = {5, 37, 1100}, small[] = {32, 96, 544}, k[] = {256, 512, 1280},
                         nf4[] = {64, 192, 1088};
    int64_t block = block_of(dt);
    if (dt == DT_NF4) return nf4[which];
    return block == 1 ? plain[which] : block == 32 ? small[which] : k[which];
}

static void run_shapes(arena *a, dev *d, const op_impl *impl, dtype dt, const char *who,
                       int64_t most_rows) {
    static const int64_t ROWS[] = {1, 2, 3, 4, 5, 8, 9, 64, 100}, OUT[] = {1, 7, 67};
    for (int s = 0; s < 3; s++)
        for (int m = 0; m < ARRAY_LEN(ROWS) && ROWS[m] <= most_rows; m++) {
            product p = make_product(a, dt, ROWS[m], OUT[s], columns_of(dt, s), (m + s) & 1);
            p.rounds = (m + s / 2) & 1;
            tensor y = run_linear(a, &p, d, impl), again = run_linear(a, &p, d, impl);
            check_linear(&p, &y, who);
            check_same(&y, &again, y.rows);
            check_backward(a, &p, d, impl, (m + s) & 1, who);
            arena_reset(a);
        }
}

/* Sums of integers are largest where every number and every scale of Q6_K is the lowest, and all of x is the same. */
static void test_largest_sums(void **state) {
    arena *a = *state;
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 1);
        for (int64_t rows = 1; rows < 20; rows += 6) {
            product p = make_product(a, DT_Q6_K, rows, 32, 256, false);
            quant_q6_k *block = (void *)p.w.t.data;
            int64_t apart = p.w.t.ld / 256;
            for (int64_t j = 0; j < 32; j++) {
                quant_q6_k *b = &block[j * apart];
                memset(b, 0, sizeof(*b));
                memset(b->scales, 0x80, sizeof(b->scales));
                quant_put_f16(b->d, 0.5f);
                quant_to_f32(quant_by_dtype(DT_Q6_K), p.w.value + 256 * j, b, 256);
            }
            assert_float_equal(p.w.value[0], 2048, 0);
            for (int64_t q = 0; q < rows * p.x.ld; q++) ((float *)p.x.data)[q] = -3;
            p.rounds = true;
            tensor y = run_linear(a, &p, d, op_find(d, OP_LINEAR, DT_F32));
            check_linear(&p, &y, ISAS[i]);
            arena_reset(a);
        }
        dev_close(d);
    }
}

/* Sums of rounded rows are whole, and floats are added in one order: instruction sets have the same bits. */
static void test_same_on_all_sets(void **state) {
    arena *a = *state;
    enum { AVX2 = 1 }; /* of ISAS */
    if (!has_isa(AVX2)) skip();
    dev *first = open_dev(ISAS[AVX2], 1);
    for (int i = AVX2 + 1; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 1);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            for (int64_t rows = 1; rows < 20 && is_blocks(FORMATS[f]); rows += 6) {
                product p = make_product(a, FORMATS[f], rows, 45, 768, true);
                p.rounds = true;
                tensor y = run_linear(a, &p, first, op_find(first, OP_LINEAR, DT_F32));
                tensor other = run_linear(a, &p, d, op_find(d, OP_LINEAR, DT_F32));
                check_same(&y, &other, rows);
                arena_reset(a);
            }
        dev_close(d);
    }
    dev_close(first);
}

static void test_linear(void **state) {
    arena *a = *state;
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 2);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            run_shapes(a, d, op_find(d, OP_LINEAR, DT_F32), FORMATS[f], ISAS[i], 100);
        dev_close(d);
    }
}

static void test_gpu(void **state) {
    arena *a = *state;
    dev *d = open_gpu();
    for (int f = 0; f < GPU_FORMATS; f++)
        run_shapes(a, d, op_find(d, OP_LINEAR, DT_F32), FORMATS[f], "emulated GPU", 9);
    /* Larger than what is made float at a time. */
    product p = make_product(a, DT_Q8_0, 9, 67, 1 << 16, true);
    tensor y = run_linear(a, &p, d, op_find(d, OP_LINEAR, DT_F32));
    check_linear(&p, &y, "emulated GPU");
    check_backward(a, &p, d, op_find(d, OP_LINEAR, DT_F32), true, "emulated GPU");
    dev_close(d);
}

static void test_reference(void **state) {
    arena *a = *state;
    dev *d = open_dev("base", 2);
    for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
        run_shapes(a, d, op_find_reference(OP_LINEAR, DT_F32), FORMATS[f], "reference", 3);
    dev_close(d);
}

/* Products large enough to be shared out. */
static void test_threads(void **state) {
    arena *a = *state;
    static const int64_t ROWS[] = {1, 3, 8, 40};
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *one = open_dev(ISAS[i], 1), *three = open_dev(ISAS[i], 3);
        const op_impl *impl = op_find(one, OP_LINEAR, DT_F32);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            for (int m = 0; m < ARRAY_LEN(ROWS); m++) {
                product p = make_product(a, FORMATS[f], ROWS[m], 301, 512, true);
                p.rounds = m & 1;
                tensor y = run_linear(a, &p, one, impl), other = run_linear(a, &p, three, impl);
                check_same(&y, &other, y.rows);
                arena_reset(a);
            }
        dev_close(one);
        dev_close(three);
    }
}

/* OpenMP gives one thread of three, as within a team of others. */
static tensor run_alone(arena *a, const product *p, dev *three, const op_impl *impl) {
    tensor y = {0};
#pragma omp parallel num_threads(2)
#pragma omp single
    y = run_linear(a, p, three, impl);
    return y;
}

static void test_fewer_threads(void **state) {
    arena *a = *state;
    static const int64_t ROWS[] = {1, 40};
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *one = open_dev(ISAS[i], 1), *three = open_dev(ISAS[i], 3);
        const op_impl *impl = op_find(one, OP_LINEAR, DT_F32);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            for (int m = 0; m < ARRAY_LEN(ROWS); m++) {
                product p = make_product(a, FORMATS[f], ROWS[m], 301, 512, true);
                p.rounds = true;
                tensor y = run_linear(a, &p, one, impl), alone = run_alone(a, &p, three, impl);
                check_same(&y, &alone, y.rows);
                arena_reset(a);
            }
        dev_close(one);
        dev_close(three);
    }
}

static void test_rows_are_independent(void **state) {
    arena *a = *state;
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 1);
        const op_impl *impl = op_find(d, OP_LINEAR, DT_F32);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++) {
            product p = make_product(a, FORMATS[f], 19, 45, 512, false);
            p.by_row = p.rounds = true;
            tensor all = run_linear(a, &p, d, impl);
            for (p.x.rows = 1; p.x.rows < 19; p.x.rows++) {
                tensor some = run_linear(a, &p, d, impl);
                check_same(&some, &all, some.rows);
            }
            arena_reset(a);
        }
        dev_close(d);
    }
}

/* ---- EMBED ---- */

static void look_up(arena *a, dev *d, const op_impl *impl, dtype dt, int64_t cols) {
    enum { ROWS = 11, V = 7 }; /* the whole table is read */
    int32_t ids[ROWS] = {3, 0, 5, 3, 6, 1, 2, 6, 4, 0, 3};
    weights w = make_weights(a, dt, V, cols, 9);
    op_attr attr = {.embed = {.dt = DT_F32, .no_grad_id = -1}};
    op_infer io = {.kind = OP_EMBED, .attr = &attr, .dev = d};
    io.in[0] = w.t;
    io.in[1] = (tensor){.data = ids, .dt = DT_I32, .rows = ROWS, .cols = 1, .ld = 1};
    err e = {0};
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[0].dt, DT_F32);
    double read = V * (double)dtype_row_bytes(dt, cols);
    assert_true(io.fwd.bytes == read + 4.0 * ROWS + 4.0 * ROWS * (double)cols);
    op_run run = {.dev = d};
    op_call c = {.kind = OP_EMBED, .attr = &attr, .run = &run};
    memcpy(c.in, io.in, sizeof(c.in));
    c.out[0] = make_floats(a, ROWS, cols, 3, 5);
    memset(c.out[0].data, 0xff, (size_t)(ROWS * c.out[0].ld) * sizeof(float));
    op_launch(d, impl->fwd, &c);
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    for (int64_t i = 0; i < ROWS; i++) {
        assert_memory_equal((float *)c.out[0].data + i * c.out[0].ld, w.value + ids[i] * cols,
                            (size_t)cols * sizeof(float));
        assert_true(isnan(at(&c.out[0], i, cols)));
    }
    arena_reset(a);
}

static void test_embed(void **state) {
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 2);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            for (int s = 0; s < 3; s++) {
                int64_t cols = columns_of(FORMATS[f], s);
                look_up(*state, d, op_find(d, OP_EMBED, DT_F32), FORMATS[f], cols);
                look_up(*state, d, op_find_reference(OP_EMBED, DT_F32), FORMATS[f], cols);
            }
        dev_close(d);
    }
}

/* Every byte, as quantised and as floats, the two that are no numbers among them. */
static void test_bytes_of_fp8(void **state) {
    arena *a = *state;
    uint8_t *bits = arena_alloc(a, 256);
    float *factor = ARENA_ARRAY(a, float, 8), *from = ARENA_ARRAY(a, float, 256);
    for (int i = 0; i < 256; i++) bits[i] = (uint8_t)i;
    for (int i = 0; i < 8; i++) factor[i] = 0.3f + (float)i;
    fp8_row row = {bits, factor, FP8_LEAST_SHIFT};
    fp8_row_read(&row, 0, 256, from);
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 1);
        op_attr attr = {.embed.dt = DT_F32};
        int32_t id = 0;
        op_run run = {.dev = d};
        op_call c = {.kind = OP_EMBED, .attr = &attr, .run = &run};
        c.in[0] = (tensor){.data = &row, .dt = DT_FP8, .rows = 1, .cols = 256, .ld = 256};
        c.in[1] = (tensor){.data = &id, .dt = DT_I32, .rows = 1, .cols = 1, .ld = 1};
        c.out[0] = make_floats(a, 1, 256, 0, 1);
        op_find(d, OP_EMBED, DT_F32)->fwd(&c);
        for (int k = 0; k < 256; k++) {
            float got = at(&c.out[0], 0, k);
            if (isnan(from[k]) ? !isnan(got) : memcmp(&got, &from[k], sizeof got) != 0)
                fail_msg("%s: byte %d is %g, not %g", ISAS[i], k, (double)got, (double)from[k]);
        }
        dev_close(d);
    }
    arena_reset(a);
}

static void test_embed_gpu(void **state) {
    dev *d = open_gpu();
    for (int f = 0; f < GPU_FORMATS; f++)
        for (int s = 0; s < 3; s++)
            look_up(*state, d, op_find(d, OP_EMBED, DT_F32), FORMATS[f], columns_of(FORMATS[f], s));
    dev_close(d);
}

/* ---- what is refused ---- */

static void refuse(op_kind kind, dtype x, dtype w, int64_t cols, unsigned grad, const char *why) {
    dev *d = open_dev("base", 1);
    err e = {0};
    op_attr attr = {0};
    if (kind == OP_EMBED) attr.embed.dt = x;
    op_infer io = {.kind = kind, .attr = &attr, .dev = d, .want_grad = (uint8_t)grad};
    tensor matrix = {.dt = w, .rows = 64, .cols = cols, .ld = cols};
    io.in[0] = (tensor){.dt = x, .rows = 4, .cols = cols, .ld = cols};
    io.in[1] = matrix;
    if (kind == OP_EMBED) {
        io.in[0] = matrix;
        io.in[1] = (tensor){.dt = DT_I32, .rows = 4, .cols = 1, .ld = 1};
    }
    assert_int_equal(op_infer_call(&io, &e), ST_USAGE);
    assert_string_equal(e.message, why);
    dev_close(d);
}

static void test_refusals(void **state) {
    (void)state;
    refuse(OP_LINEAR, DT_F32, DT_Q4_0, 48, 0,
           "linear: w has 48 columns but blocks of q4_0 are of 32");
    refuse(OP_LINEAR, DT_F32, DT_Q6_K, 32, 0,
           "linear: w has 32 columns but blocks of q6_k are of 256");
    refuse(OP_LINEAR, DT_F32, DT_NF4, 96, 0,
           "linear: w has 96 columns but blocks of nf4_rows are of 64");
    refuse(OP_LINEAR, DT_F32, DT_F16, 64, 2, "linear: there is no gradient of w in f16");
    refuse(OP_LINEAR, DT_BF16, DT_Q8_0, 64, 0, "linear: w is q8_0 but must be bf16");
    refuse(OP_LINEAR, DT_F32, DT_F64, 64, 0, "linear: w is f64 but must be f32");
    refuse(OP_EMBED, DT_F32, DT_Q4_K, 256, 1, "embed: there is no gradient of table in q4_k");
    refuse(OP_EMBED, DT_F64, DT_Q4_K, 256, 0, "embed: table is q4_k but must be f64");
}

static int make_arena(void **state) {
    *state = arena_new("stored");
    return 0;
}
static int free_arena(void **state) {
    arena_free(*state);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_largest_sums),
        cmocka_unit_test(test_same_on_all_sets),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fewer_threads),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_bytes_of_fp8),
        cmocka_unit_test(test_embed_gpu),
    };
    return cmocka_run_group_tests(tests, make_arena, free_arena);
}
