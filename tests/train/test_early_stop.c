/* Early stop: what counts as better, when it is due, and its state through JSON. */
#include "test.h"

#include "base/json.h"
#include "train/guard/watch.h"

static void test_counts_validations_without_improvement(void **state) {
    (void)state;
    early_stop s;
    early_stop_init(&s);
    assert_false(early_stop_is_due(&s, 1));
    assert_true(early_stop_take(&s, 10, 3.0));
    assert_false(early_stop_take(&s, 20, 3.0));
    assert_true(early_stop_is_due(&s, 1));
    assert_false(early_stop_is_due(&s, 2));
    assert_true(early_stop_take(&s, 30, nextafter(3.0, 0)));
    assert_int_equal(s.best_step, 30);
    assert_false(early_stop_is_due(&s, 1));
    assert_false(early_stop_take(&s, 40, 3.5));
    assert_false(early_stop_take(&s, 50, NAN));
    assert_true(early_stop_is_due(&s, 2));
    assert_false(early_stop_is_due(&s, 3));
    assert_false(early_stop_is_due(&s, 0));
    assert_int_equal(s.best_step, 30);
}

/* The first losses may not be finite: there is no best one then. */
static void test_nothing_finite_yet(void **state) {
    (void)state;
    early_stop s;
    early_stop_init(&s);
    assert_false(early_stop_take(&s, 10, INFINITY));
    assert_false(early_stop_take(&s, 20, NAN));
    assert_int_equal(s.best_step, -1);
    assert_true(early_stop_is_due(&s, 2));
    assert_true(early_stop_take(&s, 30, 1e30));
}

static void through_json(const early_stop *s, early_stop *back) {
    strbuf text = {0};
    json_t *o = early_stop_to_json(s);
    json_format(&text, o, 0);
    json_decref(o);
    o = json_loads(text.data, 0, NULL);
    assert_int_equal(early_stop_from_json(back, o, NULL), ST_OK);
    json_decref(o);
    strbuf_free(&text);
}

static void test_json_round_trip(void **state) {
    (void)state;
    early_stop s, back;
    early_stop_init(&s);
    through_json(&s, &back);
    assert_true(isinf(back.best_loss) && back.best_step == -1 && back.without == 0);
    early_stop_take(&s, 10, 1.0 / 3);
    early_stop_take(&s, 20, 1);
    through_json(&s, &back);
    assert_true(back.best_loss == 1.0 / 3 && back.best_step == 10 && back.without == 1);
    assert_false(early_stop_take(&back, 30, 1.0 / 3));
}

static void test_damaged_json(void **state) {
    (void)state;
    static const char *const BAD[] = {
        "null",
        "{}",
        "{\"best_loss\": 1.5, \"best_step\": 3}",
        "{\"best_loss\": 1.5, \"best_step\": -1, \"without\": 0}",
        "{\"best_loss\": null, \"best_step\": 3, \"without\": 0}",
        "{\"best_loss\": \"1\", \"best_step\": 3, \"without\": 0}",
        "{\"best_loss\": 1.5, \"best_step\": 3, \"without\": -1}",
        "{\"best_loss\": 1.5, \"best_step\": 3.5, \"without\": 1}",
    };
    for (int i = 0; i < ARRAY_LEN(BAD); i++) {
        early_stop s;
        err e = {0};
        json_t *o = json_loads(BAD[i], JSON_DECODE_ANY, NULL);
        if (early_stop_from_json(&s, o, &e) != ST_FORMAT) fail_msg("%s is accepted", BAD[i]);
        assert_true(e.message[0]);
        json_decref(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_validations_without_improvement),
        cmocka_unit_test(test_nothing_finite_yet),
        cmocka_unit_test(test_json_round_trip),
        cmocka_unit_test(test_damaged_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
