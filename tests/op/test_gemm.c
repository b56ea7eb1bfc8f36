/* Matrix products of every instruction set that this machine has: layouts, odd sizes, accumulation,
 * bias, leading strides, bf16, f16; and the same bits with any number of threads. */
#include "test.h"

#include "base/arena.h"
#include "dev/dev_int.h"
#include "op/gemm.h"
#include "op/gemm_choice.h"
#include "op/amx_emulator.h"
#include "sanitizer.h"

enum { GUARD = 0x7b };

typedef struct matrix {
    void *data;
    int64_t rows, cols, ld;
    dtype dt;
} matrix;

static float get(const matrix *m, int64_t i, int64_t j) {
    int64_t at = i * m->ld + j;
    if (m->dt == DT_F16) return f16_to_f32(((uint16_t *)m->data)[at]);
    return m->dt == DT_BF16 ? bf16_to_f32(((uint16_t *)m->data)[at]) : ((float *)m->data)[at];
}

static int
    pad; /* between rows: even, so that rows of 16-bit numbers can be read by words, or odd */

/* Values with few bits: sums are not exact, but 16 bits hold the operands. */
static matrix make(arena *a, int64_t rows, int64_t cols, dtype dt, uint32_t seed) {
    matrix m = {.rows = rows, .cols = cols, .ld = cols + pad, .dt = dt};
    size_t bytes = dtype_bytes(dt), n = (size_t)(rows * m.ld);
    m.data = arena_alloc(a, n * bytes + 64);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float v = bf16_to_f32(f32_to_bf16((float)(int32_t)seed * 0x1p-31f));
        if (dt == DT_BF16)
            ((uint16_t *)m.data)[i] = f32_to_bf16(v);
        else if (dt == DT_F16)
            ((uint16_t *)m.data)[i] = f32_to_f16(v);
        else
            ((float *)m.data)[i] = v;
    }
    memset((char *)m.data + n * bytes, GUARD, 64);
    return m;
}

static matrix make_operand(arena *a, int64_t rows, int64_t cols, dtype dt, uint32_t seed) {
    matrix m = make(a, rows, cols, dt, seed);
    for (int64_t i = 0; i < rows; i++) /* NaN: what is between rows must not be read */
        memset((char *)m.data + (size_t)(i * m.ld + cols) * dtype_bytes(dt), 0xff,
               (size_t)pad * dtype_bytes(dt));
    return m;
}

typedef struct shape {
    int64_t m, n, k;
} shape;

static void fill_args(gemm_args *g, const matrix *a, const matrix *b, const matrix *c, shape s) {
    g->m = s.m, g->n = s.n, g->k = s.k;
    g->a = a->data, g->lda = a->ld, g->b = b->data, g->ldb = b->ld, g->c = c->data, g->ldc = c->ld;
    g->ab_dt = a->dt, g->c_dt = c->dt;
}

/* Devices believe that the machine has AMX, whose instructions are emulated. */
static bool emulating;

static void run_threads(const gemm_args *g, int threads, arena *a) {
    dev *d;
    err e = {0};
    assert_int_equal(dev_open(&d, DEV_CPU, threads, &e), ST_OK);
    if (emulating) d->isa = ISA_AMX;
    int64_t ws = gemm_ws_bytes(d, g);
    char *p = arena_alloc(a, (size_t)ws + 4096);
    memset(p, 0xff, (size_t)ws + 4096); /* NaN: what is not written must not be read */
    gemm_run(d, g, p);
    for (int i = 0; i < 64; i++) assert_int_equal((unsigned char)p[ws + i], 0xff);
    dev_close(d);
}

/* old: what is added, C before or the residual. */
static void check_element(const gemm_args *g, const matrix *a, const matrix *b, const matrix *old,
                          const matrix *c, int64_t i, int64_t j) {
    double sum = 0.0, size = 0.0;
    for (int64_t k = 0; k < g->k; k++) {
        double x = (double)(g->a_trans ? get(a, k, i) : get(a, i, k));
        double y = (double)(g->b_trans ? get(b, j, k) : get(b, k, j));
        sum += x * y, size += fabs(x * y);
    }
    if (g->bias) sum += (double)g->bias[j];
    if (g->accumulate || g->res) sum += (double)get(old, i, j);
    double ulp = g->c_dt == DT_BF16 ? 0x1p-8 : g->c_dt == DT_F16 ? 0x1p-11 : 1e-6;
    double slack = size * 1e-6 + fabs(sum) * ulp + 1e-6;
    double got = (double)get(c, i, j);
    if (!(fabs(got - sum) <= slack))
        fail_msg("[%lld,%lld] of %lldx%lldx%lld: %g, not %g", (long long)i, (long long)j,
                 (long long)g->m, (long long)g->n, (long long)g->k, got, sum);
}

/* One shape in one combination of layouts and options (bits of `mode`). */
static void check_mode(arena *mem, shape s, int mode, dtype ab_dt, dtype c_dt, bool same_bits) {
    bool ta = mode & 1, tb = mode & 2, with_bias = mode & 4, add = mode & 8, with_res = mode & 16;
    pad = with_bias ? 6 : 5;
    matrix a = ta ? make_operand(mem, s.k, s.m, ab_dt, 1) : make_operand(mem, s.m, s.k, ab_dt, 1);
    matrix b = tb ? make_operand(mem, s.n, s.k, ab_dt, 2) : make_operand(mem, s.k, s.n, ab_dt, 2);
    matrix bias = make(mem, 1, s.n, DT_F32, 3), c[2];
    matrix old = make(mem, s.m, s.n, c_dt, 4), res = make(mem, s.m, s.n, c_dt, 5);
    gemm_args g = {.a_trans = ta, .b_trans = tb, .accumulate = add};
    if (with_bias) g.bias = bias.data;
    if (with_res) g.res = res.data, g.ldr = res.ld;
    size_t bytes = (size_t)(s.m * old.ld) * (int64_t)dtype_bytes(c_dt) + 64;
    for (int t = 0; t < 2; t++) {
        c[t] = make(mem, s.m, s.n, c_dt, 4);
        fill_args(&g, &a, &b, &c[t], s);
        run_threads(&g, t ? 3 : 1, mem);
    }
    if (same_bits) assert_memory_equal(c[0].data, c[1].data, bytes);
    for (int64_t i = 0; i<s.m; i += s.m> 40 ? 13 : 1)
        for (int64_t j = 0; j<s.n; j += s.n> 40 ? 7 : 1)
            check_element(&g, &a, &b, with_res ? &res : &old, &c[0], i, j);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = s.n; j < old.ld; j++) /* the gap between rows is untouched */
            assert_true(get(&c[0], i, j) == get(&old, i, j));
    arena_reset(mem);
}

static void check_shapes(bool same_bits) {
    static const shape shapes[] = {{1, 1, 1},      {3, 2, 5},      {12, 32, 16},   {13, 33, 17},
                                   {97, 65, 31},   {5, 100, 200},  {130, 40, 300}, {20, 30, 2500},
                                   {131, 91, 300}, {40, 70, 2500}, {1, 530, 501},  {2, 1030, 257},
                                   {300, 100, 64}, {200, 16, 300}, {130, 9, 42},   {94, 64, 40}};
    arena *mem = arena_new("test");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int mode = 0; mode < 32; mode++) {
            if ((mode & 24) == 24) continue; /* accumulates, so there is no residual */
            if ((UNDER_ASAN || emulating) && (mode + (int)i) % 4) continue;
            check_mode(mem, shapes[i], mode, DT_F32, DT_F32, same_bits);
            check_mode(mem, shapes[i], mode, DT_BF16, DT_F32, same_bits);
            check_mode(mem, shapes[i], mode, DT_BF16, DT_BF16, same_bits);
            check_mode(mem, shapes[i], mode, DT_F16, DT_F32, same_bits);
            check_mode(mem, shapes[i], mode, DT_F16, DT_F16, same_bits);
        }
    }
    arena_free(mem);
}

static void check_isa(const char *isa) {
    setenv("ATHANOR_ISA", isa, 1);
    check_shapes(true);
    unsetenv("ATHANOR_ISA");
}

/* The second implementation gives the same products, but not always the same bits. */
static void test_onednn(void **state) {
    (void)state;
    setenv("ATHANOR_GEMM", "onednn", 1);
    check_shapes(false);
    unsetenv("ATHANOR_GEMM");
}

static void test_base(void **state) {
    (void)state, check_isa("base");
}
static void test_avx2(void **state) {
    (void)state, check_isa("avx2");
}
static void test_avx512(void **state) {
    (void)state, check_isa("avx512");
}
static void test_avx512_bf16(void **state) {
    (void)state, check_isa("avx512_bf16");
}

/* Tiles of bf16; where there are none, their instructions are emulated, for fewer modes. */
static void test_amx(void **state) {
    (void)state;
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, 1, NULL), ST_OK);
    cpu_isa isa = dev_isa(d);
    dev_close(d);
    if (isa < ISA_AVX512_BF16) skip();
#if defined(__x86_64__)
    emulating = isa == ISA_AVX512_BF16;
    if (emulating) amx_emulator_start();
    check_shapes(true);
    arena *mem = arena_new("test");
    shape long_k = {33, 290, 20000}; /* B is packed in two blocks of columns */
    for (int mode = 0; mode < 4 && !emulating; mode++)
        check_mode(mem, long_k, mode, DT_BF16, mode & 1 ? DT_F32 : DT_BF16, true);
    arena_free(mem);
    assert_true(!emulating || amx_products > 0);
    emulating = false;
#endif
}

/* What is held for our own kernels is theirs to the bit, and afterwards the rule's again. */
static void test_hold_own(void **state) {
    (void)state;
    enum { M = 128, N = 256, K = 2000 };
    arena *mem = arena_new("test");
    dev *d;
    unsetenv("ATHANOR_GEMM");
    assert_int_equal(dev_open(&d, DEV_CPU, 2, NULL), ST_OK);
    gemm_args g = {.m = M, .n = N, .k = K, .lda = K, .ldb = K, .ldc = N, .b_trans = true};
    g.ab_dt = g.c_dt = DT_F32;
    float *a = arena_alloc(mem, sizeof *a * M * K), *b = arena_alloc(mem, sizeof *b * N * K);
    size_t bytes = sizeof(float) * M * N;
    float *own = arena_alloc(mem, bytes), *ruled = arena_alloc(mem, bytes);
    float *c = arena_alloc(mem, bytes);
    void *ws = arena_alloc(mem, (size_t)gemm_ws_bytes(d, &g));
    for (int i = 0; i < M * K; i++) a[i] = (float)sin(i);
    for (int i = 0; i < N * K; i++) b[i] = (float)cos(3 * i);
    g.a = a, g.b = b;
    gemm_rule onednn = {{{GEMM_ONEDNN, GEMM_ONEDNN, GEMM_ONEDNN}}};
    gemm_use(d, GEMM_REMEMBERED, &onednn, &(gemm_choices){0});
    g.c = own, gemm_run_with(d, GEMM_OWN, &g, ws);
    g.c = ruled, gemm_run(d, &g, ws);
    g.c = c, gemm_hold_own(d, true), gemm_run(d, &g, ws);
    assert_memory_equal(c, own, bytes);
    gemm_hold_own(d, false), gemm_run(d, &g, ws);
    assert_memory_equal(c, ruled, bytes);
    bool differ = memcmp(own, ruled, bytes) != 0;
    dev_close(d);
    arena_free(mem);
    if (!differ) skip(); /* on this machine both add in the same order */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),        cmocka_unit_test(test_amx),
        cmocka_unit_test(test_avx2),        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_avx512_bf16), cmocka_unit_test(test_onednn),
        cmocka_unit_test(test_hold_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
