/* The loss scale: as PyTorch's GradScaler, step by step (tests/oracle/loss_scale.py); where it ends;
 * its state through JSON; other precisions. */
#include "test.h"

#include "train/guard/loss_scale.h"

static config fp16(double init, double growth, double backoff, int64_t interval) {
    config c = {.train.precision.compute = CONFIG_PRECISION_FP16};
    c.train.loss_scale.init_scale = init;
    c.train.loss_scale.growth_factor = growth;
    c.train.loss_scale.backoff_factor = backoff;
    c.train.loss_scale.growth_interval = interval;
    c.train.loss_scale.min_scale = 1e-30;
    return c;
}

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

/* Each step also goes through JSON, as if the run were interrupted after it. */
static void check_case(const json_t *o) {
    config c = fp16(number(o, "init_scale"), number(o, "growth_factor"),
                    number(o, "backoff_factor"), (int64_t)number(o, "growth_interval"));
    const char *overflows = json_string_value(json_object_get(o, "overflows"));
    loss_scale l, stored;
    loss_scale_init(&l, &c);
    for (size_t i = 0; overflows[i]; i++) {
        bool overflow = overflows[i] == 'x';
        assert_true(loss_scale_may_shrink(&l, &c));
        loss_scale_step(&l, &c, overflow);
        double want = json_number_value(json_array_get(json_object_get(o, "scale"), i));
        assert_true(fabs(l.scale / want - 1) < 1e-6); /* GradScaler keeps it in fp32 */
        assert_int_equal(l.since,
                         json_integer_value(json_array_get(json_object_get(o, "since"), i)));
        json_t *state = loss_scale_to_json(&l);
        assert_true(loss_scale_from_json(&stored, state));
        json_decref(state);
        loss_scale_resume(&l, &c, &stored);
    }
}

static void test_as_grad_scaler(void **state) {
    (void)state;
    json_t *golden = json_load_file(TEST_DIR "/golden/loss_scale.json", 0, NULL), *item;
    json_t *cases = json_object_get(golden, "cases");
    size_t i;
    assert_int_equal(json_array_size(cases), 4);
    json_array_foreach(cases, i, item) check_case(item);
    json_decref(golden);
}

static void test_ends_at_the_least(void **state) {
    (void)state;
    config c = fp16(12, 2, 0.5, 2000);
    c.train.loss_scale.min_scale = 4;
    loss_scale l;
    loss_scale_init(&l, &c);
    loss_scale_step(&l, &c, true);
    assert_true(l.scale == 6 && loss_scale_may_shrink(&l, &c));
    loss_scale_step(&l, &c, true);
    assert_true(l.scale == 4 && !loss_scale_may_shrink(&l, &c));
}

static void test_other_precisions(void **state) {
    (void)state;
    config c = fp16(65536, 2, 0.5, 1), bf16 = c;
    bf16.train.precision.compute = CONFIG_PRECISION_BF16;
    loss_scale l, of_fp16 = {.scale = 8, .since = 3}, none;
    loss_scale_resume(&l, &bf16, &of_fp16);
    loss_scale_step(&l, &bf16, false);
    assert_true(l.scale == 1 && !loss_scale_may_shrink(&l, &bf16));
    assert_true(loss_scale_from_json(&none, NULL));
    loss_scale_resume(&l, &c, &none);
    assert_true(l.scale == 65536 && l.since == 0);
}

static void test_damaged_state(void **state) {
    (void)state;
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "3",
                                      "{\"scale\": 2}",
                                      "{\"scale\": 0, \"since\": 1}",
                                      "{\"scale\": -1, \"since\": 1}",
                                      "{\"scale\": 1e300, \"since\": 1}",
                                      "{\"scale\": 2, \"since\": -1}",
                                      "{\"scale\": \"2\", \"since\": 1}"};
    for (int i = 0; i < ARRAY_LEN(bad); i++) {
        loss_scale l;
        json_t *o = json_loads(bad[i], JSON_DECODE_ANY, NULL);
        assert_non_null(o);
        assert_false(loss_scale_from_json(&l, o));
        json_decref(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_grad_scaler), cmocka_unit_test(test_ends_at_the_least),
        cmocka_unit_test(test_other_precisions), cmocka_unit_test(test_damaged_state)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
