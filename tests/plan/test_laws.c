/* Published laws: at the points that their papers and others give. */
#include "plan/published/laws.h"

#include <math.h>
#include <string.h>

#include "test.h"

static void assert_about(double is, double want, double share) {
    if (fabs(is / want - 1) > share) fail_msg("%g is not %g", is, want);
}

static double of_law(const laws_run *r, int number, const char *member) {
    json_t *o = laws_json(r);
    double x = json_number_value(json_object_get(
        json_array_get(json_object_get(o, "batch_and_rate"), (size_t)number), member));
    json_decref(o);
    return x;
}

static bool is_within(const laws_run *r, int number) {
    json_t *o = laws_json(r);
    bool within = json_is_true(json_object_get(
        json_array_get(json_object_get(o, "batch_and_rate"), (size_t)number), "within"));
    json_decref(o);
    return within;
}

/* The points of the table; between them it rises; a compute has the model that spends it. */
static void test_optimal(void **state) {
    (void)state;
    assert_about(laws_optimal_tokens(1e9), 20.2e9, 1e-9);
    assert_about(laws_optimal_tokens(67e9), 1.5e12, 1e-9);
    assert_about(laws_optimal_tokens(175e9), 3.7e12, 1e-9);
    assert_about(laws_optimal_tokens(10e12), 216.2e12, 1e-9);
    for (double n = 1e7; n < 1e14; n *= 1.3)
        assert_true(laws_optimal_tokens(1.3 * n) > laws_optimal_tokens(n));
    double n = laws_optimal_params(6 * 10e9 * 205.1e9);
    assert_about(n, 10e9, 1e-6);
}

/* Figures of DeepSeek LLM: 7B and 67B on 2T. SmolLM3 is beyond what it was fitted on. */
static void test_batch_and_rate(void **state) {
    (void)state;
    laws_run r = {.params = 7e9, .tokens = 2e12};
    assert_about(of_law(&r, 0, "lr"), 4.2e-4, 0.02);
    assert_about(of_law(&r, 0, "batch_tokens"), 9.2e6, 0.1);
    r.params = 67e9;
    assert_about(of_law(&r, 0, "lr"), 3.2e-4, 0.02);
    assert_about(of_law(&r, 0, "batch_tokens"), 19.7e6, 0.1);
    r = (laws_run){.params = 3.0751e9, .tokens = 11.1e12};
    assert_about(of_law(&r, 0, "lr"), 3.8e-4, 0.01);
    assert_about(of_law(&r, 0, "batch_tokens"), 12.3e6, 0.01);
    assert_false(is_within(&r, 0));
    assert_false(is_within(&r, 1));
    r = (laws_run){.params = 1e8, .body = 8e7, .tokens = 3e9};
    for (int i = 0; i < 3; i++) assert_true(is_within(&r, i));
    r.tokens = 1e9; /* too few for the second only */
    assert_true(is_within(&r, 0));
    assert_false(is_within(&r, 1));
    assert_about(of_law(&r, 2, "lr"), 0.003239 - 0.0001395 * log(8e7), 1e-9);
    assert_about(of_law(&r, 1, "lr"), 1.79 * pow(8e7, -0.713) * pow(1e9, 0.307), 1e-9);
}

/* Beyond a fit what a published run used is told, of any run; within all of them it is not. */
static void test_practice(void **state) {
    (void)state;
    laws_run r = {.params = 70e9, .tokens = 15e12};
    json_t *o = laws_json(&r), *told = json_object_get(o, "practice");
    assert_about(json_number_value(json_object_get(told, "lr")), 2e-4, 1e-12);
    assert_about(json_number_value(json_object_get(told, "batch_tokens")), 2.36e6, 0.01);
    json_decref(o);
    strbuf text = {0};
    laws_describe(&r, &text);
    assert_non_null(strstr(strbuf_cstr(&text), "SmolLM3"));
    strbuf_free(&text);
    r = (laws_run){.params = 1e8, .body = 8e7, .tokens = 3e9};
    o = laws_json(&r);
    assert_null(json_object_get(o, "practice"));
    json_decref(o);
}

/* One epoch is new; four are worth nearly four; endlessly many are worth 1 + R. */
static void test_epochs(void **state) {
    (void)state;
    assert_about(laws_worth_of_epochs(0.3), 0.3, 1e-12);
    assert_about(laws_worth_of_epochs(1), 1, 1e-12);
    assert_true(laws_worth_of_epochs(4) > 0.9 * 4 && laws_worth_of_epochs(4) < 4);
    assert_about(laws_worth_of_epochs(1e6), 16.39, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimal), cmocka_unit_test(test_batch_and_rate),
        cmocka_unit_test(test_practice), cmocka_unit_test(test_epochs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
