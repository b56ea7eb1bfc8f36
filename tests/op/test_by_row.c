/* LINEAR with attr.by_row: a row of y has the same bits whatever rows come with it, how many there are and where it
 * stands among them, with any number of threads: every instruction set, every format of weights, sizes
 * around every way that the kernels take. That the numbers are right the op matrix and test_stored.c say. */
#include "op/weights.h"

enum { ROWS = 150 };

typedef struct product {
    tensor x, w, bias, res;
    dtype y_dt;
} product;

/* An activation of any of the formats that programs have. */
static tensor make_rows(arena *a, dtype dt, int64_t rows, int64_t cols, int64_t gap,
                        uint32_t seed) {
    tensor f = make_floats(a, rows, cols, gap, seed), t = f;
    t.dt = dt;
    t.data = arena_alloc(a, (size_t)(rows * t.ld) * sizeof(float));
    dtype_convert(t.data, dt, f.data, DT_F32, rows * t.ld);
    return t;
}

static product make_product(arena *a, dtype dt, dtype w, int64_t n, int64_t k, bool extras) {
    product p = {.x = make_rows(a, dt, ROWS, k, extras ? 3 : 0, 1), .y_dt = dt};
    p.w = w == dt ? make_rows(a, dt, n, k, 1, 2) : make_weights(a, w, n, k, 2).t;
    if (!extras) return p;
    p.bias = make_floats(a, 1, n, 0, 3);
    p.res = make_rows(a, dt, ROWS, n, 5, 4);
    return p;
}

static void *row_at(const tensor *t, int64_t i) {
    return (char *)t->data + i * t->ld * (int64_t)dtype_bytes(t->dt);
}

/* y of rows [first, first + n), without gaps. */
static tensor run(arena *a, const product *p, dev *d, int64_t first, int64_t n) {
    op_attr attr = {.linear = {.by_row = true, .rounds = true, .exact = p->y_dt != p->x.dt}};
    op_infer io = {.kind = OP_LINEAR, .attr = &attr, .dev = d};
    io.in[0] = p->x, io.in[1] = p->w, io.in[2] = p->bias, io.in[3] = p->res;
    for (int i = 0; i < 4; i += 3) {
        if (!io.in[i].data) continue;
        io.in[i].data = row_at(&io.in[i], first);
        io.in[i].rows = n;
    }
    err e = {0};
    if (op_infer_call(&io, &e) != ST_OK) fail_msg("%s", e.message);
    op_run run = {.dev = d};
    op_call c = {.kind = OP_LINEAR, .attr = &attr, .run = &run, .ws_bytes = io.fwd.ws_bytes};
    memcpy(c.in, io.in, sizeof(c.in));
    c.out[0] = make_rows(a, p->y_dt, n, p->w.rows, 0, 5);
    size_t room = ((size_t)io.fwd.ws_bytes + 127) / 64 * 64;
    c.ws = aligned_alloc(64, room);
    memset(c.ws, 0xff, room);
    op_launch(d, op_find(d, OP_LINEAR, p->x.dt)->fwd, &c);
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    for (size_t i = (size_t)io.fwd.ws_bytes; i < room; i++)
        assert_int_equal(((uint8_t *)c.ws)[i], 0xff);
    free(c.ws);
    return c.out[0];
}

static void check(arena *a, const product *p, dev *d, dev *other, int64_t rows, const char *who) {
    static const int64_t COUNTS[] = {1, 2, 3, 4, 5, 6, 7, 9, 16, 31, 127, 128, 149};
    tensor all = run(a, p, d, 0, rows);
    uint32_t seed = 7;
    for (int i = 0; i < ARRAY_LEN(COUNTS) && COUNTS[i] <= rows; i++) {
        int64_t first = next_random(&seed) % (rows - COUNTS[i] + 1);
        tensor some = run(a, p, i % 2 ? other : d, first, COUNTS[i]);
        for (int64_t r = 0; r < COUNTS[i]; r++)
            if (memcmp(row_at(&some, r), row_at(&all, first + r),
                       (size_t)all.cols * dtype_bytes(all.dt)) != 0)
                fail_msg("%s, x %s, w %s [%ld,%ld], y %s: row %ld has other bits among %ld rows",
                         who, dtype_name(p->x.dt), dtype_name(p->w.dt), (long)p->w.rows,
                         (long)p->w.cols, dtype_name(p->y_dt), (long)(first + r), (long)COUNTS[i]);
    }
    arena_reset(a);
}

/* Weights of a format: columns that are no multiple of anything, and several blocks; k is shortest for the first. */
static void check_format(arena *a, dev *d, dev *other, dtype x, dtype w, int64_t rows,
                         const char *who) {
    static const int64_t plain[] = {5, 100, 1100}, OUT[] = {1, 203, 67};
    for (int s = 0; s < 3; s++) {
        int64_t block = x == w ? 1 : block_of(w);
        int64_t k = block == 1 ? plain[s] : (plain[s] + block - 1) / block * block;
        product p = make_product(a, x, w, OUT[s], k, s % 2);
        check(a, &p, d, other, rows, who);
        if (x == DT_F32 || s % 2) continue;
        p = make_product(a, x, w, OUT[s], k, false);
        p.y_dt = DT_F32;
        check(a, &p, d, other, rows, who);
    }
}

static void test_cpu(void **state) {
    static const dtype DTYPES[] = {DT_F32, DT_BF16, DT_F16};
    for (int i = 0; i < ARRAY_LEN(ISAS); i++) {
        if (!has_isa(i)) continue;
        dev *d = open_dev(ISAS[i], 1), *other = open_dev(ISAS[i], 3);
        for (int t = 0; t < ARRAY_LEN(DTYPES); t++)
            check_format(*state, d, other, DTYPES[t], DTYPES[t], ROWS, ISAS[i]);
        for (int f = 0; f < ARRAY_LEN(FORMATS); f++)
            check_format(*state, d, other, DT_F32, FORMATS[f], i ? ROWS : 9, ISAS[i]);
        dev_close(d);
        dev_close(other);
    }
}

static void test_gpu(void **state) {
    dev *d = open_gpu();
    check_format(*state, d, d, DT_F32, DT_F32, 9, "emulated GPU");
    check_format(*state, d, d, DT_BF16, DT_BF16, 9, "emulated GPU");
    for (int f = 0; f < GPU_FORMATS; f++)
        check_format(*state, d, d, DT_F32, FORMATS[f], 9, "emulated GPU");
    dev_close(d);
}

static int make_arena(void **state) {
    *state = arena_new("by row");
    return 0;
}
static int free_arena(void **state) {
    arena_free(*state);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_gpu)};
    return cmocka_run_group_tests(tests, make_arena, free_arena);
}
