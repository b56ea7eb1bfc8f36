/* Python's random samples and literals: what CPython 3.11 gives. */
#include "test.h"

#include "eval/python.h"

static void check_sample(py_random *r, int64_t n, int64_t k, const int64_t *want) {
    int64_t got[16];
    py_random_sample(r, n, k, got);
    assert_memory_equal(got, want, sizeof *got * (size_t)k);
}

/* random.Random(1234), random.Random(2**40 + 5) */
static void test_samples(void **state) {
    (void)state;
    py_random r;
    py_random_init(&r, 1234);
    check_sample(&r, 7, 3, (int64_t[]){6, 3, 0});
    check_sample(&r, 7, 3, (int64_t[]){0, 6, 4});
    check_sample(&r, 7, 3, (int64_t[]){0, 5, 6});
    check_sample(&r, 1000, 5, (int64_t[]){100, 784, 363, 242, 17});
    check_sample(&r, 100, 8, (int64_t[]){3, 2, 44, 82, 79, 61, 78, 59});
    check_sample(&r, 85, 6, (int64_t[]){19, 11, 23, 14, 1, 64}); /* out of a pool, up to here */
    check_sample(&r, 86, 6, (int64_t[]){62, 31, 8, 85, 69, 59});
    py_random_init(&r, ((uint64_t)1 << 40) + 5);
    check_sample(&r, 2000000, 3, (int64_t[]){1057762, 1084062, 563304});
    check_sample(&r, 5, 0, NULL);
}

static void check_literal(const char *text, const char *want) {
    err e = {0};
    json_t *got, *expected = want ? json_loads(want, JSON_DECODE_ANY, NULL) : NULL;
    status st = py_literal(text, strlen(text), &got, &e);
    if (!want) {
        assert_int_equal(st, ST_FORMAT);
        assert_null(got);
        return;
    }
    if (st != ST_OK || !json_equal(got, expected)) fail_msg("%s is not %s", text, want);
    json_decref(got);
    json_decref(expected);
}

static void test_literals(void **state) {
    (void)state;
    check_literal("['a', \"b's\"]", "[\"a\", \"b's\"]");
    check_literal(" [ ] ", "[]");
    check_literal("('x', ['y', 2, -1.5],)", "[\"x\", [\"y\", 2, -1.5]]");
    check_literal("'\\n\\t\\'\\x41\\u4f60\\U0001F600'", "\"\\n\\t'A\\u4f60\\ud83d\\ude00\"");
    check_literal("12", "12");
    check_literal("['a'", NULL);
    check_literal("['a' 'b']", NULL);
    check_literal("['a'] x", NULL);
    check_literal("'a", NULL);
    check_literal("'\\x4'", NULL);
    check_literal("'\\ud800'", NULL);
    check_literal("name", NULL);
    check_literal("", NULL);
    check_literal("[[[[[[[[[[[[[[[[[[[[[[", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_literals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
