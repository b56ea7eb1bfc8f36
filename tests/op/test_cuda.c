/* The op matrix on the emulated CUDA device: values against the double reference, and every access of
 * every kernel watched (gpu/emulated/watch.c). */
#include <stdalign.h>

#include "op/matrix.h"

/* The emulated device, with two orders of threads and blocks. Its kernels may touch only what a call
 * names, wherever that lies, so the buffers are the host's. */
static void cuda_open(backend *b) {
    static const char *const seeds[DEVS] = {"1", "2"};
    err e;
    setenv("ATHANOR_CUDA", "emulated", 1);
    for (int k = 0; k < DEVS; k++) {
        setenv("ATHANOR_CUDA_SEED", seeds[k], 1);
        if (dev_open(&b->devs[k], DEV_CUDA, k + 1, &e) != ST_OK) fail_msg("%s", e.message);
    }
    unsetenv("ATHANOR_CUDA");
    unsetenv("ATHANOR_CUDA_SEED");
    if (dev_open(&b->host, DEV_CPU, 2, &e) != ST_OK) fail_msg("%s", e.message);
    snprintf(b->name, sizeof b->name, "emulated GPU");
}

/* ATHANOR_TEST_OP: only this op, for who works on its kernels. */
static bool is_wanted(op_kind kind) {
    const char *only = getenv("ATHANOR_TEST_OP");
    return !only || strcmp(only, op_classes[kind].name) == 0;
}

static void test_ops(void **state) {
    (void)state;
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16};
    const int n = UNDER_ASAN ? 2 : ARRAY_LEN(dts); /* f16 is the same code as bf16 */
    backend b = {.reference = false, .slow = true};
    cuda_open(&b);
    for (int kind = 0; kind < OP_COUNT; kind++)
        for (int k = 0; k < n && is_wanted((op_kind)kind); k++)
            if (op_find(b.devs[0], (op_kind)kind, dts[k])) check_op(&b, (op_kind)kind, dts[k]);
    backend_close(&b);
    dev_close(b.host);
}

/* ---- what must have the CPU's bits ---- */

/* A call with one input and one output of so many floats, in rows of `cols`. */
static op_call call_of(op_kind kind, const op_attr *attr, const op_run *run, float *x, void *y,
                       dtype dt, int64_t n, int64_t cols) {
    op_call c = {.kind = kind, .attr = attr, .run = run, .acc_param = 1};
    c.in[0] = (tensor){x, DT_F32, n / cols, cols, cols};
    c.out[0] = (tensor){y, dt, n / cols, cols, cols};
    return c;
}

enum { FLOATS = 96 };

/* Columns in fours and not, rows of a larger tensor, micro-batches. */
static void test_dropout_draws(void **state) {
    (void)state;
    backend b = {.reference = false};
    cuda_open(&b);
    static const int64_t cols[] = {1, 3, 6, 8, 32};
    alignas(64) float x[FLOATS], here[FLOATS], there[FLOATS];
    for (int i = 0; i < FLOATS; i++) x[i] = (float)(i + 1);
    for (int k = 0; k < 2 * ARRAY_LEN(cols); k++) {
        op_attr attr = {.dropout = {.p = 0.4f, .stream = 7}};
        if (k % 2) attr.dropout.all_rows = 2000, attr.dropout.first_row = 77;
        op_run host = run_on(b.host, false), device = run_on(b.devs[k % DEVS], false);
        op_call c = call_of(OP_DROPOUT, &attr, &host, x, here, DT_F32, FLOATS, cols[k / 2]);
        side_run(&c, op_find(b.host, OP_DROPOUT, DT_F32)->fwd);
        c.run = &device, c.out[0].data = there;
        side_run(&c, op_find(b.devs[0], OP_DROPOUT, DT_F32)->fwd);
        assert_memory_equal(here, there, sizeof here);
    }
    backend_close(&b), dev_close(b.host);
}

/* What is no number stays none, so that a run sees it. */
static void test_activations_keep_nan(void **state) {
    (void)state;
    backend b = {.reference = false};
    cuda_open(&b);
    alignas(64) float x[FLOATS] = {[3] = NAN}, y[FLOATS];
    op_run run = run_on(b.devs[0], false);
    for (int k = ACT_GELU_TANH; k <= ACT_CLAMP; k++) {
        op_attr attr = {.act = {(act_kind)k, 1.5f}};
        op_call c = call_of(OP_ACT, &attr, &run, x, y, DT_F32, FLOATS, 8);
        side_run(&c, op_find(b.devs[0], OP_ACT, DT_F32)->fwd);
        for (int i = 0; i < FLOATS; i++) assert_int_equal(isnan(y[i]), i == 3);
    }
    backend_close(&b), dev_close(b.host);
}

/* Every magnitude, ties, and what is beyond the limit, which raises the device's flag. */
static void test_fixed_add(void **state) {
    (void)state;
    backend b = {.reference = false};
    cuda_open(&b);
    float x[FLOATS];
    int64_t here[FLOATS], there[FLOATS];
    for (int beyond = 0; beyond < 2; beyond++) {
        for (int i = 0; i < FLOATS; i++) {
            double u = uniform(3, i, 1.0);
            x[i] = (float)ldexp(i % 5 ? u : floor(u * 64) + 0.5, i % 5 ? i % 60 - 51 : -50);
        }
        if (beyond) x[3] = NAN, x[77] = -1e9f, x[12] = INFINITY;
        op_run run[2] = {run_on(b.host, false), run_on(b.devs[beyond], false)};
        for (int k = 0; k < 2; k++) {
            op_call c =
                call_of(OP_FIXED_ADD, NULL, &run[k], x, k ? there : here, DT_I64, FLOATS, 8);
            run[k].fixed_overflow = dev_flag(run[k].dev);
            run[k].first_micro = true;
            side_run(&c, op_find(run[k].dev, OP_FIXED_ADD, DT_F32)->fwd);
            run[k].first_micro = false;
            side_run(&c, op_find(run[k].dev, OP_FIXED_ADD, DT_F32)->fwd);
            assert_int_equal(*dev_flag(run[k].dev), beyond);
        }
        assert_memory_equal(here, there, sizeof here);
    }
    backend_close(&b), dev_close(b.host);
}

/* ---- tables ---- */

enum { TABLE_ROWS = 12, TABLE_COLS = 24, PLACES = 150 };

/* The gradient of rows first .. first + n - 1 of the table. */
static void table_gradient(dev *d, const int32_t *ids, const float *dy, int32_t first, int32_t n,
                           float *grad) {
    op_infer io = {.kind = OP_EMBED, .dev = d, .want_grad = 1};
    op_attr attr = {.embed = {DT_F32, 5, TABLE_ROWS, first}};
    op_run run = run_on(d, false);
    op_call c = {.kind = OP_EMBED, .attr = &attr, .run = &run};
    io.attr = &attr;
    io.in[0] = c.in[0] = (tensor){NULL, DT_F32, n, TABLE_COLS, TABLE_COLS};
    io.in[1] = c.in[1] = (tensor){(void *)(uintptr_t)ids, DT_I32, PLACES, 1, 1};
    c.dout[0] = (tensor){(void *)(uintptr_t)dy, DT_F32, PLACES, TABLE_COLS, TABLE_COLS};
    c.din[0] = (tensor){grad, DT_F32, n, TABLE_COLS, TABLE_COLS};
    err e;
    if (op_infer_call(&io, &e) != ST_OK) fail_msg("%s", e.message);
    c.ws_bytes = io.bwd_weight.ws_bytes;
    c.ws = aligned_alloc(64, (size_t)(c.ws_bytes + 63) / 64 * 64);
    side_run(&c, op_find(d, OP_EMBED, DT_F32)->bwd_weight);
    free(c.ws);
}

/* Ranks that have parts of a table get the bits of the whole one. */
static void test_parts_of_a_table(void **state) {
    (void)state;
    backend b = {.reference = false};
    cuda_open(&b);
    int32_t ids[PLACES];
    static float dy[PLACES * TABLE_COLS];
    alignas(64) float whole[TABLE_ROWS * TABLE_COLS], parts[TABLE_ROWS * TABLE_COLS];
    for (int i = 0; i < PLACES; i++) ids[i] = i % 2 ? 3 : i * 7 % TABLE_ROWS;
    for (int i = 0; i < PLACES * TABLE_COLS; i++) dy[i] = (float)uniform(8, i, 1.0);
    table_gradient(b.devs[0], ids, dy, 0, TABLE_ROWS, whole);
    table_gradient(b.devs[1], ids, dy, 0, 4, parts);
    table_gradient(b.devs[0], ids, dy, 4, TABLE_ROWS - 4, parts + 4 * TABLE_COLS);
    assert_memory_equal(whole, parts, sizeof whole);
    for (int i = 0; i < TABLE_COLS; i++) assert_true(whole[5 * TABLE_COLS + i] == 0);
    backend_close(&b), dev_close(b.host);
}

/* Rows of 16 bits in an f32 program; an id outside is a fault that names the line. */
static void test_look_up(void **state) {
    (void)state;
    backend b = {.reference = false};
    cuda_open(&b);
    uint16_t table[2][8];
    int32_t ids[3] = {1, 0, 1};
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 16; i++)
            table[i / 8][i % 8] = half ? f32_to_f16((float)i / 3) : f32_to_bf16((float)i / 3);
        float y[3][8];
        op_attr attr = {.embed = {.dt = DT_F32, .no_grad_id = -1}};
        op_run run = run_on(b.devs[0], false);
        op_call c = {.kind = OP_EMBED, .attr = &attr, .run = &run};
        c.in[0] = (tensor){table, half ? DT_F16 : DT_BF16, 2, 8, 8};
        c.in[1] = (tensor){ids, DT_I32, 3, 1, 1};
        c.out[0] = (tensor){y, DT_F32, 3, 8, 8};
        side_run(&c, op_find(b.devs[0], OP_EMBED, DT_F32)->fwd);
        for (int i = 0; i < 24; i++) {
            uint16_t h = table[ids[i / 8]][i % 8];
            assert_true(y[i / 8][i % 8] == (half ? f16_to_f32(h) : bf16_to_f32(h)));
        }
        if (!half) continue;
        ids[1] = 2;
        op_launch(b.devs[0], op_find(b.devs[0], OP_EMBED, DT_F32)->fwd, &c);
        dev_sync(b.devs[0]);
        err e;
        assert_int_equal(dev_check(b.devs[0], &e), ST_RANK);
        assert_non_null(strstr(e.message, "rows.cu:"));
        assert_non_null(strstr(e.message, "an id outside the table"));
    }
    backend_close(&b), dev_close(b.host);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout_draws), cmocka_unit_test(test_activations_keep_nan),
        cmocka_unit_test(test_fixed_add),     cmocka_unit_test(test_parts_of_a_table),
        cmocka_unit_test(test_look_up),       cmocka_unit_test(test_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
