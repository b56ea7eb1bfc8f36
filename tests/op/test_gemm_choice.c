/* Remembered implementations of matrix products: written, read back, ignored elsewhere, refused
 * when damaged, obeyed by gemm_run. */
#include "test.h"

#include "base/file.h"
#include "op/gemm_choice.h"

static const char PATH[] = "gemm_choice_test/cache/gemm.json";

static dev *open_dev(int threads) {
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, threads, NULL), ST_OK);
    return d;
}

static gemm_choice choice(int64_t m, gemm_impl impl) {
    gemm_choice c = {.m = m, .n = 40, .k = 50, .b_trans = true, .ab_dt = DT_BF16, .c_dt = DT_F32};
    c.impl = impl;
    c.gflops[GEMM_OWN] = 10, c.gflops[GEMM_ONEDNN] = impl == GEMM_ONEDNN ? 20 : 0;
    return c;
}

static gemm_args args_of(const gemm_choice *c) {
    return (gemm_args){.m = c->m, .n = c->n, .k = c->k, .b_trans = c->b_trans, .ab_dt = c->ab_dt};
}

static void write_two(const dev *d) {
    gemm_choices c = {0};
    gemm_choice a = choice(7, GEMM_OWN), b = choice(8, GEMM_OWN), again = choice(8, GEMM_ONEDNN);
    gemm_choices_put(&c, &a);
    gemm_choices_put(&c, &b);
    gemm_choices_put(&c, &again); /* replaces b */
    assert_int_equal(c.n, 2);
    assert_int_equal(gemm_choices_write(&c, d, PATH, NULL), ST_OK);
    gemm_choices_free(&c);
}

static void test_round_trip(void **state) {
    (void)state;
    dev *d = open_dev(2), *other = open_dev(3);
    write_two(d);
    gemm_choices c;
    assert_int_equal(gemm_choices_read(&c, d, PATH, NULL), ST_OK);
    assert_int_equal(c.n, 2);
    gemm_choice wanted = choice(8, GEMM_ONEDNN);
    gemm_args g = args_of(&wanted);
    assert_int_equal(gemm_choices_find(&c, &g)->impl, GEMM_ONEDNN);
    g.m = 7;
    assert_int_equal(gemm_choices_find(&c, &g)->impl, GEMM_OWN);
    g.m = 8, g.a_trans = true;
    assert_null(gemm_choices_find(&c, &g));
    assert_true(c.item[1].gflops[GEMM_ONEDNN] == 20.0);
    gemm_choices_free(&c);
    assert_int_equal(gemm_choices_read(&c, other, PATH, NULL), ST_OK);
    assert_int_equal(c.n, 0); /* measured with another number of threads */
    assert_int_equal(gemm_choices_read(&c, d, "gemm_choice_test/none.json", NULL), ST_OK);
    assert_int_equal(c.n, 0);
    dev_close(d);
    dev_close(other);
}

/* The valid file with `from` replaced. */
static void damage(const dev *d, const char *from, const char *to, err *e) {
    char *text;
    size_t len;
    write_two(d);
    assert_int_equal(file_read_all(PATH, &text, &len, NULL), ST_OK);
    char *at = strstr(text, from), *changed = malloc(len + strlen(to) + 1);
    assert_non_null(at);
    size_t head = (size_t)(at - text), n = strlen(from);
    memcpy(changed, text, head);
    memcpy(changed + head, to, strlen(to));
    memcpy(changed + head + strlen(to), at + n, len - head - n);
    assert_int_equal(file_write_atomic(PATH, changed, len - n + strlen(to), NULL), ST_OK);
    gemm_choices c;
    assert_int_equal(gemm_choices_read(&c, d, PATH, e), ST_FORMAT);
    assert_int_equal(c.n, 0);
    free(changed);
    free(text);
}

static void test_damaged_files(void **state) {
    (void)state;
    dev *d = open_dev(2);
    static const char *const damages[][2] = {{"{", "["},
                                             {"\"own\"", "\"theirs\""},
                                             {"\"bf16\"", "\"f8\""},
                                             {"\"m\": 7", "\"m\": true"},
                                             {"\"products\"", "\"product\""},
                                             {"\"n\": 40,", ""}};
    for (int i = 0; i < ARRAY_LEN(damages); i++) {
        err e = {0};
        damage(d, damages[i][0], damages[i][1], &e);
        assert_non_null(strstr(e.message, PATH));
        assert_non_null(strstr(e.hint, "--remember"));
    }
    dev_close(d);
}

static void test_threshold(void **state) {
    (void)state;
    assert_int_equal(gemm_choice_faster((double[]){100, 102}), GEMM_OWN);
    assert_int_equal(gemm_choice_faster((double[]){100, 104}), GEMM_ONEDNN);
    assert_int_equal(gemm_choice_faster((double[]){100, 0}), GEMM_OWN);
}

static void test_device_obeys(void **state) {
    (void)state;
    int by_onednn;
    dev *d = open_dev(2);
    write_two(d);
    assert_int_equal(setenv("ATHANOR_GEMM_FILE", PATH, 1), 0);
    assert_int_equal(gemm_get_policy(d, &by_onednn), GEMM_REMEMBERED);
    assert_int_equal(by_onednn, 1);
    dev_close(d);
    d = open_dev(2);
    assert_int_equal(setenv("ATHANOR_GEMM", "own", 1), 0);
    assert_int_equal(gemm_get_policy(d, &by_onednn), GEMM_ALL_OWN);
    assert_int_equal(by_onednn, 0);
    dev_close(d);
}

int main(void) {
    unsetenv("ATHANOR_GEMM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_threshold), cmocka_unit_test(test_device_obeys)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    err e = {0};
    return file_remove_tree("gemm_choice_test", &e) == ST_OK ? failed : 1;
}
