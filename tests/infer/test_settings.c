/* generation_config.json and config.json: ends, advice about sampling, and what is refused. */
#include "test.h"

#include "infer/settings.h"

static void expect_ends(const char *generation_config, const char *config, int n, ...) {
    generation_settings s;
    err e = {0};
    va_list ap;
    if (generation_settings_parse(&s, generation_config, config, &e) != ST_OK)
        fail_msg("%s", e.message);
    assert_int_equal(s.end.n, n);
    va_start(ap, n);
    for (int i = 0; i < n; i++) assert_int_equal(s.end.id[i], va_arg(ap, int));
    va_end(ap);
    generation_settings_free(&s);
}

static void test_ends(void **state) {
    (void)state;
    expect_ends(NULL, NULL, 0);
    expect_ends("{}", NULL, 0);
    expect_ends("{\"eos_token_id\": 7}", NULL, 1, 7);
    expect_ends("{\"eos_token_id\": [7, 0, 7, 3]}", "{\"eos_token_id\": 9}", 3, 7, 0, 3);
    expect_ends("{\"eos_token_id\": null}", "{\"eos_token_id\": 9}", 1, 9);
    expect_ends("{\"eos_token_id\": []}", "{\"eos_token_id\": [8, 9]}", 2, 8, 9);
    expect_ends("{\"eos_token_id\": -1}", NULL, 0);
    expect_ends(NULL, "{\"eos_token_id\": 2, \"do_sample\": 5}", 1, 2);
}

static void test_sampling(void **state) {
    (void)state;
    generation_settings s;
    err e = {0};
    assert_int_equal(
        generation_settings_parse(&s, "{\"do_sample\": true, \"top_p\": 0.8}", NULL, &e), ST_OK);
    assert_true(s.samples && s.sample.temperature == 1 && s.sample.top_k == 50);
    assert_true(s.sample.top_p == 0.8 && s.sample.min_p == 0 && s.sample.repetition_penalty == 1);
    const char *all =
        "{\"do_sample\": false, \"temperature\": 0.25, \"top_k\": 20, \"min_p\": 0.1, "
        "\"repetition_penalty\": 1.05, \"top_p\": null}";
    assert_int_equal(generation_settings_parse(&s, all, NULL, &e), ST_OK);
    assert_true(!s.samples && s.sample.temperature == 0.25 && s.sample.top_k == 20);
    assert_true(s.sample.min_p == 0.1 && s.sample.repetition_penalty == 1.05 &&
                s.sample.top_p == 1);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"", "generation_config.json"},
        {"[1]", "not a JSON object"},
        {"{\"eos_token_id\": \"2\"}", "eos_token_id"},
        {"{\"eos_token_id\": 1e9}", "eos_token_id"},
        {"{\"eos_token_id\": -2}", "eos_token_id"},
        {"{\"eos_token_id\": 2147483648}", "eos_token_id"},
        {"{\"eos_token_id\": [1, [2]]}", "eos_token_id"},
        {"{\"temperature\": \"hot\"}", "temperature"},
        {"{\"temperature\": -1}", "temperature"},
        {"{\"top_p\": 1.5}", "top_p"},
        {"{\"top_k\": 3e9}", "top_k"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty"},
        {"{\"do_sample\": 1}", "do_sample"},
    };
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        generation_settings s;
        err e = {0};
        assert_int_equal(generation_settings_parse(&s, cases[i].text, NULL, &e), ST_FORMAT);
        if (!strstr(e.message, cases[i].named)) fail_msg("%s: %s", cases[i].text, e.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_sampling),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
