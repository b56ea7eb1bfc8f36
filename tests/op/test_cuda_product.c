/* Algorithms of cuBLASLt's products: measured, remembered, obeyed, ignored on another GPU, refused
 * when damaged. On the emulated device, whose algorithms are all as fast: of the two that it names, the
 * first overwrites its workspace, and the second needs none. */
#include "test.h"

#include "base/file.h"
#include "op/cuda/product.h"
#include "op/cuda/product_choice.h"
#include "op/gemm.h"

static const char PATH[] = "cuda_product_test/cublaslt.json";
static const char GPU[] = "emulated GPU";
enum { VERSION = 130002 };
enum { M = 4, N = 6, K = 5, NUMBERS = 64 };

/* A device with the matrices of a product, and its workspace, all of zeros. */
typedef struct bench {
    dev *d;
    float *memory;
    size_t bytes;
    cuda_product x;
    uint8_t *ws;
} bench;

static void bench_open(bench *b) {
    err e = {0};
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_MACHINE_FILE", "cuda_product_test/machine.json", 1);
    assert_int_equal(dev_open(&b->d, DEV_CUDA, 1, &e), ST_OK);
    unsetenv("ATHANOR_CUDA");
    b->bytes = 3 * NUMBERS * sizeof(float) + (size_t)cuda_product_ws_bytes(M, N);
    assert_int_equal(dev_reserve(b->d, (void **)&b->memory, b->bytes, "matrices", &e), ST_OK);
    b->x = (cuda_product){.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N};
    b->x.a = b->memory, b->x.b = b->memory + NUMBERS, b->x.c = b->memory + (size_t)2 * NUMBERS;
    b->ws = (uint8_t *)(b->memory + (size_t)3 * NUMBERS);
}

static void bench_close(bench *b) {
    err e = {0};
    dev_sync(b->d);
    if (dev_check(b->d, &e) != ST_OK) fail_msg("%s", e.message);
    dev_release(b->d, b->memory, b->bytes);
    dev_close(b->d);
}

/* Runs the product; returns which algorithm it was. */
static int algorithm_of(const bench *b) {
    uint8_t ws[4096];
    size_t bytes = (size_t)cuda_product_ws_bytes(M, N);
    assert_true(bytes <= sizeof ws);
    dev_fill(b->d, b->ws, 0, bytes);
    cuda_product_run(&(op_run){.dev = b->d}, &b->x, b->ws);
    dev_read(b->d, ws, b->ws, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (ws[i] != 0) return 0;
    return 1;
}

static void remember(int algorithm, const char *gpu, size_t version) {
    product_choices c;
    assert_int_equal(product_choices_read(&c, GPU, VERSION, PATH, NULL), ST_OK);
    assert_int_equal(c.n, 1);
    c.item[0].algorithm = algorithm;
    assert_int_equal(product_choices_write(&c, gpu, version, PATH, NULL), ST_OK);
    product_choices_free(&c);
}

static void test_fastest(void **state) {
    (void)state;
    assert_int_equal(product_choice_fastest((double[]){1}, 1), 0);
    assert_int_equal(product_choice_fastest((double[]){0, 0, 0}, 3), 0);
    assert_int_equal(product_choice_fastest((double[]){1, 0.99, 1.5}, 3), 0);
    assert_int_equal(product_choice_fastest((double[]){1, 0.9, 0.8, 0.85}, 4), 2);
}

static void test_measured(void **state) {
    (void)state;
    bench b;
    product_choices c;
    (void)unlink(PATH);
    bench_open(&b);
    assert_int_equal(cuda_product_measure(b.d, &b.x, b.ws), 0);
    assert_int_equal(algorithm_of(&b), 0);
    bench_close(&b);
    assert_int_equal(product_choices_read(&c, GPU, VERSION, PATH, NULL), ST_OK);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.item[0].candidates, 2);
    assert_int_equal(c.item[0].key.m, M);
    assert_int_equal(c.item[0].key.alignment[0], 8); /* rows of 6 floats */
    product_choices_free(&c);
}

static void test_obeyed(void **state) {
    test_measured(state);
    bench b;
    remember(1, GPU, VERSION);
    bench_open(&b);
    assert_int_equal(algorithm_of(&b), 1);
    b.x.lda++; /* another product */
    assert_int_equal(algorithm_of(&b), 0);
    b.x.lda--;
    gemm_use_own(b.d); /* the deterministic mode */
    assert_int_equal(algorithm_of(&b), 0);
    bench_close(&b);
}

static void test_ignored_elsewhere(void **state) {
    static const struct {
        const char *gpu;
        size_t version;
    } others[] = {{"another GPU", VERSION}, {GPU, VERSION + 1}};
    for (int i = 0; i < 2; i++) {
        test_measured(state);
        bench b;
        remember(1, others[i].gpu, others[i].version);
        bench_open(&b);
        assert_int_equal(algorithm_of(&b), 0);
        bench_close(&b);
    }
}

static void test_damaged(void **state) {
    (void)state;
#define HEAD "{\"gpu\": \"emulated GPU\", \"cublaslt\": 130002, \"products\": "
    static const char *const texts[] = {"",        "[]",        "{",
                                        HEAD "3}", HEAD "[3]}", HEAD "[{\"m\": 4}]}"};
    product_choices c;
    err e = {0};
    for (int i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(file_write_atomic(PATH, texts[i], strlen(texts[i]), &e), ST_OK);
        assert_int_equal(product_choices_read(&c, GPU, VERSION, PATH, &e), ST_FORMAT);
        assert_non_null(strstr(e.hint, "delete it"));
        assert_int_equal(c.n, 0);
    }
    bench b;
    bench_open(&b); /* says so, and goes on */
    assert_int_equal(algorithm_of(&b), 0);
    bench_close(&b);
}

/* An algorithm that the library does not name is no choice. */
static void test_beyond_the_list(void **state) {
    test_measured(state);
    remember(2, GPU, VERSION);
    product_choices c;
    err e = {0};
    assert_int_equal(product_choices_read(&c, GPU, VERSION, PATH, &e), ST_FORMAT);
    assert_non_null(strstr(e.message, "product 1 is not one"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest), cmocka_unit_test(test_measured),
        cmocka_unit_test(test_obeyed),  cmocka_unit_test(test_ignored_elsewhere),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_beyond_the_list),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    err e = {0};
    return file_remove_tree("cuda_product_test", &e) == ST_OK ? failed : 1;
}
