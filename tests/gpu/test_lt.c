/* The emulated device's cuBLASLt: its products against sums in double, in the order of a stream, and
 * what it says of wrong calls. */
#include "test.h"

#include <stdalign.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "gpu/lt.h"

typedef struct gpu {
    cu_driver api;
    cu_context context;
    cu_stream stream;
    lt_library lt;
    lt_handle handle;
} gpu;

static void gpu_open(gpu *g) {
    err e = {0};
    setenv("ATHANOR_CUDA", "emulated", 1);
    assert_int_equal(cu_driver_open(&g->api, &e), ST_OK);
    unsetenv("ATHANOR_CUDA");
    assert_int_equal(lt_open(&g->lt, true, &e), ST_OK);
    assert_int_equal(g->api.context_retain(&g->context, 0), 0);
    g->api.context_set(g->context);
    assert_int_equal(g->api.stream_create(&g->stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(g->lt.create(&g->handle), 0);
}

static void gpu_close(gpu *g) {
    g->lt.destroy(g->handle);
    g->api.stream_destroy(g->stream);
    emu_context_free(g->context);
    lt_close(&g->lt);
    cu_driver_close(&g->api);
}

/* D [m,n] = op(A) op(B) + C + bias, or (op(A) op(B) + C) gelu'(bias as a matrix), column by column. */
enum { M = 5, N = 3, K = 7, LD = 9, AUX_LD = 8, ROOM = LD * LD };

typedef struct problem {
    int type, d_type;
    bool turn_a, turn_b, bias, slope, d_over_b, d_over_c; /* over c: in part */
    int64_t aux_ld;
    int64_t k_of_b;                          /* K, or wrong */
    uint32_t alignment, a_shift, bias_shift; /* bytes */
    uint64_t ws_bytes;                       /* that the caller gives */
    uint64_t ws_said;
} problem;

static const problem PLAIN = {.type = LT_R_32F,
                              .d_type = LT_R_32F,
                              .k_of_b = K,
                              .aux_ld = AUX_LD,
                              .alignment = 4,
                              .ws_said = 4096,
                              .ws_bytes = 4096};

typedef struct buffers {
    alignas(256) float a[ROOM], b[ROOM], c[ROOM], d[ROOM], bias[AUX_LD * N + 4], ws[1024];
} buffers;

static double number(const void *p, int type, int64_t i) {
    if (type == LT_R_32F) return (double)((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return (double)(type == LT_R_16F ? f16_to_f32(h) : bf16_to_f32(h));
}

static void fill(void *p, int type, int64_t n, int seed) {
    for (int64_t i = 0; i < n; i++) {
        float v = (float)((i * 7 + seed) % 11 - 5) / 4;
        if (type == LT_R_32F)
            ((float *)p)[i] = v;
        else
            ((uint16_t *)p)[i] = type == LT_R_16F ? f32_to_f16(v) : f32_to_bf16(v);
    }
}

typedef struct handles {
    lt_desc desc;
    lt_layout a, b, d;
    lt_choice choice;
} handles;

/* Returns what the heuristic says. */
static lt_result prepare(const gpu *g, const problem *p, handles *h) {
    const lt_library *lt = &g->lt;
    int32_t turn_a = p->turn_a, turn_b = p->turn_b;
    uint32_t epilogue = p->bias    ? LT_EPILOGUE_BIAS
                        : p->slope ? LT_EPILOGUE_DGELU
                                   : LT_EPILOGUE_NONE;
    const void *any = (const void *)(uintptr_t)16;
    lt->desc_create(&h->desc, LT_COMPUTE_32F, LT_R_32F);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_TRANSPOSE_A, &turn_a, sizeof turn_a), 0);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_TRANSPOSE_B, &turn_b, sizeof turn_b), 0);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue), 0);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_EPILOGUE, &epilogue, 8), LT_INVALID_VALUE);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_AUX, &any, sizeof any), 0);
    assert_int_equal(lt->desc_set(h->desc, LT_DESC_AUX_LD, &p->aux_ld, sizeof p->aux_ld), 0);
    lt->layout_create(&h->a, p->type, p->turn_a ? K : M, p->turn_a ? M : K, LD);
    lt->layout_create(&h->b, p->type, (uint64_t)(p->turn_b ? N : p->k_of_b),
                      (uint64_t)(p->turn_b ? p->k_of_b : N), LD);
    lt->layout_create(&h->d, p->d_type, M, N, LD);
    lt_preference prefer;
    lt->preference_create(&prefer);
    lt->preference_set(prefer, LT_PREFER_WORKSPACE_BYTES, &p->ws_said, sizeof p->ws_said);
    for (int i = 0; i < 4; i++)
        lt->preference_set(prefer, LT_PREFER_ALIGNMENT_A + i, &p->alignment, sizeof p->alignment);
    int n = 0;
    lt_result r = lt->choose(g->handle, h->desc, h->a, h->b, h->d, h->d, prefer, 1, &h->choice, &n);
    assert_int_equal(n, r == 0);
    lt->preference_destroy(prefer);
    return r;
}

static void drop(const gpu *g, handles *h) {
    g->lt.layout_destroy(h->a);
    g->lt.layout_destroy(h->b);
    g->lt.layout_destroy(h->d);
    g->lt.desc_destroy(h->desc);
}

/* The whole call; `ranges`: what it may touch, n 0: everything. */
static void multiply(gpu *g, const problem *p, buffers *x, const gpu_range *ranges, int n) {
    handles h;
    const float one = 1;
    const void *bias = (const char *)x->bias + p->bias_shift;
    float *d = p->d_over_b ? x->b : p->d_over_c ? x->c + LD : x->d;
    assert_int_equal(prepare(g, p, &h), 0);
    assert_int_equal(
        g->lt.desc_set(h.desc, p->slope ? LT_DESC_AUX : LT_DESC_BIAS, &bias, sizeof bias), 0);
    emu_stream_scope(g->stream, "test", ranges, n);
    assert_int_equal(g->lt.multiply(g->handle, h.desc, &one, (const char *)x->a + p->a_shift, h.a,
                                    x->b, h.b, &one, x->c, h.d, d, h.d, &h.choice.algorithm, x->ws,
                                    p->ws_bytes, g->stream),
                     0);
    emu_stream_scope_end(g->stream);
    g->api.stream_sync(g->stream);
    drop(g, &h);
}

static gpu_range all_of(const char *name, void *at, size_t bytes, gpu_access access) {
    return (gpu_range){name, at, 1, (int64_t)bytes, (int64_t)bytes, access, 2};
}

enum { RANGES = 6, RANGE_B = 1, RANGE_C = 2, RANGE_D = 3, RANGE_BIAS = 4 };
static void all_ranges(buffers *x, gpu_range r[RANGES]) {
    r[0] = all_of("a", x->a, sizeof x->a, GPU_READ);
    r[RANGE_B] = all_of("b", x->b, sizeof x->b, GPU_READ);
    r[RANGE_C] = all_of("c", x->c, sizeof x->c, GPU_READ);
    r[RANGE_D] = all_of("d", x->d, sizeof x->d, GPU_UPDATE);
    r[RANGE_BIAS] = all_of("bias", x->bias, sizeof x->bias, GPU_READ);
    r[5] = all_of("workspace", x->ws, sizeof x->ws, GPU_SCRATCH);
}

static buffers *new_buffers(const problem *p) {
    buffers *x = aligned_alloc(256, sizeof *x);
    assert_non_null(x);
    fill(x->a, p->type, ROOM, 1);
    fill(x->b, p->type, ROOM, 3);
    fill(x->c, p->d_type, ROOM, 4);
    fill(x->d, p->d_type, ROOM, 5);
    fill(x->bias, p->d_type, AUX_LD * N + 4, 6);
    return x;
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double truth(const problem *p, const buffers *x, int i, int j) {
    double sum = number(x->c, p->d_type, j * LD + i);
    if (p->bias) sum += number(x->bias, p->d_type, i);
    for (int k = 0; k < K; k++)
        sum += number(x->a, p->type, p->turn_a ? i * LD + k : k * LD + i) *
               number(x->b, p->type, p->turn_b ? k * LD + j : j * LD + k);
    if (!p->slope) return sum;
    double at = number(x->bias, p->d_type, j * AUX_LD + i), h = 1e-6;
    return sum * (gelu(at + h) - gelu(at - h)) / (2 * h);
}

static void test_products(void **state) {
    (void)state;
    static const int types[][2] = {
        {LT_R_32F, LT_R_32F}, {LT_R_16BF, LT_R_16BF}, {LT_R_16F, LT_R_16F}, {LT_R_16BF, LT_R_32F}};
    gpu g;
    gpu_open(&g);
    for (int i = 0; i < 16 * ARRAY_LEN(types); i++) {
        problem p = PLAIN;
        p.type = types[i / 16][0], p.d_type = types[i / 16][1];
        p.alignment = 2;
        p.turn_a = i & 1, p.turn_b = i & 2, p.bias = i & 4, p.slope = i & 8;
        if (p.slope && (p.bias || p.d_type == LT_R_32F)) continue;
        buffers *x = new_buffers(&p);
        gpu_range r[RANGES];
        all_ranges(x, r);
        multiply(&g, &p, x, r, RANGES);
        if (emu_context_fault(g.context)) fail_msg("%s", emu_context_fault(g.context));
        emu_context_open(g.context);
        for (int k = 0; k < M * N; k++) {
            double t = truth(&p, x, k % M, k / M), got = number(x->d, p.d_type, k / M * LD + k % M);
            if (fabs(got - t) > (p.d_type == LT_R_32F ? 1e-5 : 1.0 / 32))
                fail_msg("case %d: %g must be %g", i, got, t);
        }
        emu_context_close(g.context);
        free(x);
    }
    gpu_close(&g);
}

/* A call that is wrong in one way; the fault must say so. */
static void expect_fault(const problem *p, int range, int64_t bytes, gpu_access access,
                         const char *text) {
    gpu g;
    gpu_open(&g);
    buffers *x = new_buffers(p);
    gpu_range r[RANGES];
    all_ranges(x, r);
    if (range >= 0) r[range].row_bytes = r[range].stride = bytes, r[range].access = access;
    multiply(&g, p, x, r, RANGES);
    const char *fault = emu_context_fault(g.context);
    if (!fault || !strstr(fault, text) || !strstr(fault, "cublasLtMatmul, called by test"))
        fail_msg("\"%s\" was expected, not \"%s\"", text, fault ? fault : "no fault");
    free(x);
    gpu_close(&g);
}

static void test_faults(void **state) {
    (void)state;
    problem p = PLAIN;
    p.alignment = 16, p.a_shift = 8;
    expect_fault(&p, -1, 0, GPU_READ, "A is less aligned than was said");
    p = PLAIN, p.ws_bytes = 16;
    expect_fault(&p, -1, 0, GPU_READ, "the workspace is smaller than the algorithm needs");
    p = PLAIN, p.bias = true, p.bias_shift = 4;
    expect_fault(&p, -1, 0, GPU_READ, "the bias is absent, or not aligned to 16");
    p = PLAIN, p.d_over_b = true;
    expect_fault(&p, RANGE_B, ROOM * 4, GPU_UPDATE, "D lies over B");
    p = PLAIN, p.d_over_c = true;
    expect_fault(&p, RANGE_C, ROOM * 4, GPU_UPDATE, "D lies over C");
    p = PLAIN, p.type = p.d_type = LT_R_16BF, p.slope = true, p.bias_shift = 8;
    expect_fault(&p, -1, 0, GPU_READ, "aux is absent, or not aligned to 16");
    p.bias_shift = 0;
    expect_fault(&p, RANGE_BIAS, ((N - 1) * AUX_LD + M - 1) * 2, GPU_READ,
                 "row 2 of aux, 10 bytes, is not all in memory");
    expect_fault(&PLAIN, RANGE_D, ((N - 1) * LD + M - 1) * 4, GPU_UPDATE,
                 "row 2 of D, 20 bytes, is not all in memory that it may write");
    expect_fault(&PLAIN, RANGE_D, ROOM * 4, GPU_READ, "row 0 of D, 20 bytes, is not all in memory");
    expect_fault(&PLAIN, RANGE_C, ROOM * 4, GPU_SCRATCH, "byte 0 of c, which nobody has written");
}

/* What the library has no product for, the heuristic says. */
static void test_refused(void **state) {
    (void)state;
    gpu g;
    handles h;
    gpu_open(&g);
    problem p = PLAIN;
    p.k_of_b = K - 1;
    assert_int_equal(prepare(&g, &p, &h), LT_NOT_SUPPORTED);
    drop(&g, &h);
    p = PLAIN, p.d_type = LT_R_16BF;
    assert_int_equal(prepare(&g, &p, &h), LT_NOT_SUPPORTED);
    drop(&g, &h);
    p = PLAIN, p.slope = true; /* of floats */
    assert_int_equal(prepare(&g, &p, &h), LT_NOT_SUPPORTED);
    drop(&g, &h);
    static const int64_t wrong_ld[] = {LD, 0};
    for (int i = 0; i < ARRAY_LEN(wrong_ld); i++) {
        p = PLAIN, p.type = p.d_type = LT_R_16F, p.slope = true, p.aux_ld = wrong_ld[i];
        assert_int_equal(prepare(&g, &p, &h), LT_NOT_SUPPORTED);
        drop(&g, &h);
    }
    gpu_close(&g);
}

/* ---- opening ---- */

static status open_in(const char *folders, lt_library *lt, err *e) {
    setenv("ATHANOR_CUDA_LIBS", folders, 1);
    status st = lt_open(lt, false, e);
    unsetenv("ATHANOR_CUDA_LIBS");
    return st;
}

static void test_found(void **state) {
    (void)state;
    lt_library lt;
    err e = {0};
    if (open_in("/nonexistent::" FAKE_DIR "/130002", &lt, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(lt.version(), 130002);
    lt_handle h = NULL;
    assert_int_equal(lt.create(&h), 0);
    assert_string_equal(lt.status_text(1), "a failure");
    lt_close(&lt);
    assert_null(lt.library);
}

/* One sentence that says what is wrong, and how the right one is found. */
static void expect_refused(const char *folders, const char *sentence) {
    lt_library lt;
    err e = {0};
    assert_int_equal(open_in(folders, &lt, &e), ST_USAGE);
    assert_string_equal(e.message, sentence);
    assert_non_null(strstr(e.hint, "ATHANOR_CUDA_LIBS"));
    assert_null(lt.library);
}

static void test_refused_libraries(void **state) {
    (void)state;
    expect_refused(FAKE_DIR "/110000",
                   "the cuBLASLt found here is of version 110000, and 120000 is "
                   "the oldest that serves");
    expect_refused(FAKE_DIR "/0", "the cuBLASLt found here has no cublasLtCreate");
    lt_library lt;
    err e = {0};
    if (open_in("/nonexistent", &lt, &e) == ST_OK)
        lt_close(&lt); /* the loader knows one */
    else
        expect_refused("/nonexistent",
                       "the GPU needs NVIDIA's cuBLASLt, and libcublasLt.so.13 cannot "
                       "be opened");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),          cmocka_unit_test(test_faults),
        cmocka_unit_test(test_refused),           cmocka_unit_test(test_found),
        cmocka_unit_test(test_refused_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
