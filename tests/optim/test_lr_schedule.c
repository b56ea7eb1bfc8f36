/* Learning rates at known steps: the published SmolLM3 run, a 1B cosine, 1-sqrt, and the edges of
 * every shape. */
#include "test.h"

#include <jansson.h>

#include "base/status.h"
#include "optim/lr_schedule.h"

typedef struct point {
    int64_t step;
    double lr;
} point;

/* `digits`: relative accuracy of the published figures. */
static void check(const lr_schedule *s, const point *p, int n, double digits) {
    for (int i = 0; i < n; i++) {
        double got = lr_schedule_at(s, p[i].step);
        if (!(fabs(got - p[i].lr) <= digits * p[i].lr + 1e-18))
            fail_msg("step %ld: %.9g instead of %.9g", (long)p[i].step, got, p[i].lr);
    }
}
#define CHECK_POINTS(s, digits, ...)                                                               \
    do {                                                                                           \
        const point points[] = {__VA_ARGS__};                                                      \
        check(&(s), points, ARRAY_LEN(points), digits);                                            \
    } while (0)

static void test_smollm3(void **state) {
    (void)state;
    lr_schedule s = {.kind = SCHEDULE_WSD,
                     .decay = DECAY_LINEAR,
                     .lr = 2e-4,
                     .warmup_steps = 2000,
                     .decay_steps = 522000,
                     .total_steps = 4720000};
    CHECK_POINTS(s, 1e-3, {1, 1e-7}, {1000, 1e-4}, {2000, 2e-4}, {4198001, 2e-4}, {4459001, 1e-4},
                 {4720000, 3.83e-10}, {4720001, 0});
    assert_true(lr_schedule_at(&s, 4198002) < 2e-4);
}

static void test_cosine(void **state) {
    (void)state;
    lr_schedule s = {.kind = SCHEDULE_COSINE,
                     .lr = 5e-4,
                     .min_lr = 5e-5,
                     .warmup_steps = 2000,
                     .decay_steps = 18000,
                     .total_steps = 20000};
    CHECK_POINTS(s, 5e-4, {1, 2.5e-7}, {2000, 5e-4}, {6500, 4.341e-4}, {11000, 2.75e-4},
                 {15500, 1.159e-4}, {20000, 5e-5});
    lr_schedule automatic = s;
    automatic.decay_steps = -1;
    for (int64_t k = 1; k <= 20000; k += 7)
        assert_true(lr_schedule_at(&s, k) == lr_schedule_at(&automatic, k));
    s.total_steps = 30000; /* after an earlier end the rate stays */
    CHECK_POINTS(s, 1e-12, {20001, 5e-5}, {30000, 5e-5});
    automatic.total_steps = 2000; /* a warm-up to the end: its last step has the full rate */
    CHECK_POINTS(automatic, 1e-12, {1000, 2.5e-4}, {2000, 5e-4});
    s.decay_steps = 0;
    CHECK_POINTS(s, 1e-12, {2000, 5e-4}, {2001, 5e-5});
}

static void test_one_minus_sqrt(void **state) {
    (void)state;
    lr_schedule s = {.kind = SCHEDULE_WSD,
                     .decay = DECAY_1_SQRT,
                     .lr = 3e-3,
                     .decay_steps = 100000,
                     .total_steps = 599999};
    CHECK_POINTS(s, 2e-4, {1, 3e-3}, {500000, 3e-3}, {525000, 1.5e-3}, {550000, 8.787e-4},
                 {600000, 0});
}

static void test_wsd_curves(void **state) {
    (void)state;
    lr_schedule s = {.kind = SCHEDULE_WSD,
                     .decay = DECAY_EXPONENTIAL,
                     .lr = 1e-2,
                     .decay_steps = 100,
                     .total_steps = 1000};
    CHECK_POINTS(s, 1e-9, {901, 1e-2}, {951, 1e-3}, {1001, 1e-4}); /* to lr/100 */
    s.min_lr = 1e-6;
    CHECK_POINTS(s, 1e-9, {901, 1e-2}, {951, 1e-4}, {1001, 1e-6});
    s.decay = DECAY_COSINE;
    CHECK_POINTS(s, 1e-9, {901, 1e-2}, {951, 0.5 * (1e-2 + 1e-6)}, {1001, 1e-6});
    s.decay_steps = 0; /* never decays */
    CHECK_POINTS(s, 1e-12, {1000, 1e-2});
    s.decay = DECAY_LINEAR;
    s.decay_steps = -1; /* a fifth */
    CHECK_POINTS(s, 1e-12, {801, 1e-2}, {901, 0.5 * (1e-2 + 1e-6)});
    for (int64_t k = 802; k <= 1000; k++)
        assert_true(lr_schedule_at(&s, k) < lr_schedule_at(&s, k - 1));
}

static void test_linear_constant_multistep(void **state) {
    (void)state;
    lr_schedule s = {.kind = SCHEDULE_LINEAR,
                     .lr = 1.0,
                     .min_lr = 0.2,
                     .warmup_steps = 10,
                     .decay_steps = -1,
                     .total_steps = 110};
    CHECK_POINTS(s, 1e-12, {1, 0.1}, {5, 0.5}, {10, 1.0}, {60, 0.6}, {110, 0.2});
    s.kind = SCHEDULE_CONSTANT;
    CHECK_POINTS(s, 1e-12, {5, 0.5}, {10, 1.0}, {110, 1.0});
    const int64_t at[] = {80, 90}; /* DeepSeek: 80/10/10 */
    s = (lr_schedule){.kind = SCHEDULE_MULTISTEP,
                      .lr = 1.0,
                      .gamma = 0.316,
                      .warmup_steps = 10,
                      .total_steps = 100,
                      .milestones = at,
                      .n_milestones = 2};
    CHECK_POINTS(s, 1e-12, {5, 0.5}, {80, 1.0}, {81, 0.316}, {90, 0.316}, {91, 0.316 * 0.316});
}

static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number_of(const json_t *o, const char *key, double usual) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : usual;
}

/* The options of torch.optim.lr_scheduler.OneCycleLR, whose defaults are here. */
static lr_schedule one_cycle_of(const json_t *o) {
    return (lr_schedule){.kind = SCHEDULE_ONE_CYCLE,
                         .lr = number_of(o, "max_lr", 0),
                         .total_steps = (int64_t)number_of(o, "total_steps", 0),
                         .cycle = {.pct_start = number_of(o, "pct_start", 0.3),
                                   .div_factor = number_of(o, "div_factor", 25),
                                   .final_div_factor = number_of(o, "final_div_factor", 1e4),
                                   .anneal = strcmp(text_of(o, "anneal_strategy"), "linear") == 0
                                                 ? ANNEAL_LINEAR
                                                 : ANNEAL_COSINE,
                                   .three_phase = json_is_true(json_object_get(o, "three_phase")),
                                   .least_beta1 = number_of(o, "base_momentum", 0.85),
                                   .most_beta1 = number_of(o, "max_momentum", 0.95)}};
}

static void test_one_cycle(void **state) {
    (void)state;
    json_t *o = json_load_file(TEST_DIR "/golden/optim/optimizers.json", 0, NULL);
    const json_t *cases = json_object_get(o, "one_cycle");
    assert_int_equal(json_array_size(cases), 3);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        lr_schedule s = one_cycle_of(json_object_get(one, "options")), fixed = s;
        fixed.cycle.least_beta1 = fixed.cycle.most_beta1 = 0;
        for (int64_t k = 1; k <= s.total_steps; k++) {
            const json_t *lr = json_array_get(json_object_get(one, "lr"), (size_t)k - 1);
            const json_t *beta = json_array_get(json_object_get(one, "beta1"), (size_t)k - 1);
            CHECK_POINTS(s, 1e-9, {k, json_number_value(lr)});
            assert_true(fabs(lr_schedule_beta1(&s, k, 0.9) - json_number_value(beta)) < 1e-9);
            assert_true(lr_schedule_beta1(&fixed, k, 0.9) == 0.9);
        }
        assert_true(lr_schedule_at(&s, s.total_steps + 9) == lr_schedule_at(&s, s.total_steps));
    }
    lr_schedule tiny = {.kind = SCHEDULE_ONE_CYCLE,
                        .lr = 1,
                        .total_steps = 1,
                        .cycle = {.div_factor = 1, .final_div_factor = 1, .pct_start = 1}};
    assert_true(lr_schedule_at(&tiny, 1) == 1);
    json_decref(o);
}

static void test_inverse_sqrt(void **state) {
    (void)state;
    json_t *o = json_load_file(TEST_DIR "/golden/optim/optimizers.json", 0, NULL);
    const json_t *golden = json_object_get(o, "inverse_sqrt"), *lr = json_object_get(golden, "lr");
    lr_schedule s = {.kind = SCHEDULE_INVERSE_SQRT,
                     .lr = 0.5,
                     .warmup_steps = (int64_t)number_of(golden, "warmup", 0),
                     .timescale = -1};
    assert_int_equal(json_array_size(lr), 12);
    for (int64_t k = 1; k <= 12; k++)
        CHECK_POINTS(s, 1e-12, {k, json_number_value(json_array_get(lr, (size_t)k - 1))});
    s = (lr_schedule){.kind = SCHEDULE_INVERSE_SQRT, .lr = 0.01, .timescale = -1}; /* T5's */
    CHECK_POINTS(s, 1e-12, {1, 0.01}, {10000, 0.01}, {40000, 0.005}, {1000000, 0.001});
    s.timescale = 100, s.warmup_steps = 10;
    CHECK_POINTS(s, 1e-12, {5, 0.005}, {100, 0.01}, {400, 0.005});
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smollm3),
                                       cmocka_unit_test(test_cosine),
                                       cmocka_unit_test(test_one_minus_sqrt),
                                       cmocka_unit_test(test_wsd_curves),
                                       cmocka_unit_test(test_linear_constant_multistep),
                                       cmocka_unit_test(test_one_cycle),
                                       cmocka_unit_test(test_inverse_sqrt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
