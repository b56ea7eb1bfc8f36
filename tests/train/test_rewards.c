/* The guard of rewards: what it tells, once, after how many steps; its state goes through JSON. */
#include "test.h"

#include "train/guard/rewards.h"

/* The step at which the alarm comes; 0: it does not within 100. */
static int told_at(rewards_guard *g, double chosen, double margin, rewards_alarm kind) {
    for (int step = 1; step <= 100; step++) {
        rewards_alarm told = rewards_take(g, chosen, margin);
        if (told == kind) return step;
        assert_int_equal(told, REWARDS_FINE);
    }
    return 0;
}

static void test_tells(void **state) {
    (void)state;
    rewards_guard g = {0};
    assert_int_equal(told_at(&g, -0.99, 9.9, REWARDS_FALL), 0);
    int steps = told_at(&g, -1.5, 9, REWARDS_FALL);
    assert_true(steps > 0 && steps < 10);
    assert_int_equal(told_at(&g, -5, 9, REWARDS_FALL), 0); /* once */
    steps = told_at(&g, -5, 100, REWARDS_MARGIN);
    assert_true(steps > 0 && steps < 10);
    assert_int_equal(told_at(&g, -5, 100, REWARDS_MARGIN), 0);
    g = (rewards_guard){0};
    assert_int_equal(told_at(&g, -3, 1, REWARDS_FALL), 10); /* a few steps say nothing yet */
}

static void test_steps_without_rewards(void **state) {
    (void)state;
    rewards_guard g = {0}, before;
    told_at(&g, 0.5, 1, REWARDS_FALL);
    before = g;
    assert_int_equal(rewards_take(&g, NAN, 1), REWARDS_FINE);
    assert_int_equal(rewards_take(&g, -1e9, NAN), REWARDS_FINE);
    assert_true(g.chosen == before.chosen && g.weight == before.weight);
}

static void test_state(void **state) {
    (void)state;
    rewards_guard g = {0}, back, fresh;
    err e = {0};
    told_at(&g, -3.25, 2, REWARDS_FALL);
    json_t *o = rewards_to_json(&g);
    assert_int_equal(rewards_from_json(&back, o, &e), ST_OK);
    assert_true(back.chosen == g.chosen && back.margin == g.margin && back.weight == g.weight);
    assert_true(back.told_fall && !back.told_margin);
    assert_int_equal(rewards_from_json(&fresh, NULL, &e), ST_OK);
    assert_true(fresh.weight == 0);
    json_object_del(o, "weight");
    assert_int_equal(rewards_from_json(&back, o, &e), ST_FORMAT);
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tells),
                                       cmocka_unit_test(test_steps_without_rewards),
                                       cmocka_unit_test(test_state)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
