/* The course: parts, borders, samples, tokens, rates, against a plain walk from step to step. */
#include "test.h"

#include "base/yaml.h"
#include "train/course/course.h"

static config *load(const char *yaml) {
    json_t *root, *origins;
    err e = {0};
    if (yaml_parse(&root, &origins, "test.yaml", yaml, strlen(yaml), &e) != ST_OK)
        fail_msg("%s", e.message);
    config *c;
    if (config_from_json(&c, root, origins, "test.yaml", NULL, 0, &e) != ST_OK)
        fail_msg("%s", e.message);
    json_decref(root);
    json_decref(origins);
    return c;
}

static course *make(const config *c, uint64_t epoch, const course_origin *o) {
    course *k;
    err e = {0};
    if (course_new(&k, c, epoch, o, &e) != ST_OK) fail_msg("%s", e.message);
    return k;
}

static void test_one_stage(void **state) {
    (void)state;
    config *c = load("train: {steps: 100, seq_len: 16, global_batch_size: 4}");
    course *k = make(c, 0, NULL);
    assert_int_equal(k->total_steps, 100);
    assert_int_equal(k->n_stages, 1);
    assert_string_equal(k->stage[0].name, "");
    for (int64_t step = 1; step <= 100; step++) {
        assert_int_equal(course_first_sample(k, step), (step - 1) * 4);
        assert_int_equal(course_tokens_after(k, step), step * 64);
    }
    assert_int_equal(course_stage_samples(k, 0), 400);
    course_free(k);
    config_free(c);
}

static bool knows_length(const char *yaml, uint64_t epoch) {
    config *c = load(yaml);
    course *k = make(c, epoch, NULL);
    bool knows = k->knows_length;
    course_free(k);
    config_free(c);
    return knows;
}

/* By the run's own length, by epochs of data that are there, or by the end of the last stage. */
static void test_known_length(void **state) {
    (void)state;
    assert_true(knows_length("train: {steps: 1}", 0));
    assert_true(knows_length("train: {tokens: 1M}", 0));
    assert_true(knows_length("train: {epochs: 3}", 10));
    assert_false(knows_length("train: {epochs: 3}", 0));
    assert_false(knows_length("train: {seq_len: 16}", 0));
    assert_true(knows_length("stages: [{name: a, until: {steps: 5}}]", 0));
}

/* Lengths by tokens and epochs round up to whole steps. */
static void test_lengths(void **state) {
    (void)state;
    config *c = load("train: {tokens: 641, seq_len: 16, global_batch_size: 4}");
    course *k = make(c, 0, NULL);
    assert_int_equal(k->total_steps, 11);
    course_free(k);
    config_free(c);
    c = load("train: {epochs: 1.5, seq_len: 16, global_batch_size: 4}");
    k = make(c, 10, NULL);
    assert_int_equal(k->total_steps, 4);
    course_free(k);
    config_free(c);
}

/* Start-up does not depend on the planned steps: the course of 10^15 steps has as many parts. */
static void test_size_is_constant(void **state) {
    (void)state;
    config *c = load("train: {steps: 1000000000000000, batch_ramp: {start: 4, every: 10}, "
                     "global_batch_size: 16}");
    course *k = make(c, 0, NULL);
    assert_int_equal(k->n_parts, 4);
    assert_int_equal(k->total_steps, 1000000000000000);
    course_free(k);
    config_free(c);
}

static const char STAGES[] =
    "train: {seq_len: 32, global_batch_size: 8, micro_batch_size: 2, "
    "        batch_ramp: {start: 2, increment: 4, every: 3}}\n"
    "optim: {lr: 1.0e-2, schedule: {kind: linear, warmup_steps: 2}}\n"
    "stages:\n"
    "- {name: one, until: {steps: 12}}\n"
    "- {name: two, until: {tokens: 5000}, train: {seq_len: 64}, optim: {weight_decay: 0.2}}\n"
    "- {name: three, until: {steps: 40}, train: {global_batch_size: 4}, model: {rope_theta: "
    "5.0e4},\n"
    "   optim: {lr: 1.0e-3, restart: true}}\n";

/* Everything again, one step after the other. */
static void test_against_a_walk(void **state) {
    (void)state;
    config *c = load(STAGES);
    course *k = make(c, 0, NULL);
    uint64_t tokens = 0, samples = 0;
    int stage = 0;
    int64_t border[3] = {0};
    for (int64_t step = 1; step <= 40; step++) {
        bool ends = (stage == 0 && step > 12) || (stage == 1 && tokens >= 5000);
        if (ends) {
            border[stage] = step - 1;
            stage++;
            samples = 0;
        }
        int64_t full = stage == 2 ? 4 : 8, batch = 2 + (step - 1) / 3 * 4;
        if (batch > full) batch = full;
        int T = stage == 0 ? 32 : 64;
        const course_part *p = course_part_of(k, step);
        assert_int_equal(p->stage, stage);
        assert_int_equal(p->batch, batch);
        assert_int_equal(k->stage[stage].T, T);
        assert_int_equal(course_first_sample(k, step), samples);
        samples += (uint64_t)batch;
        tokens += (uint64_t)(batch * T);
        assert_int_equal(course_tokens_after(k, step), tokens);
    }
    assert_int_equal(k->total_steps, 40);
    assert_int_equal(k->stage[1].last_step, border[1]);
    assert_int_equal(k->stage[2].first_step, border[1] + 1);
    /* Changes stay in force; a restart does not. */
    assert_true(k->stage[2].c->optim.weight_decay == 0.2);
    assert_int_equal(k->stage[2].c->train.seq_len, 64);
    assert_int_equal(k->stage[1].optim_base, 0);
    assert_int_equal(k->stage[2].optim_base, border[1]);
    /* The first schedule spans two stages, the third stage has its own. */
    assert_int_equal(k->stage[0].schedule.total_steps, border[1]);
    assert_int_equal(k->stage[1].schedule.total_steps, border[1]);
    assert_int_equal(k->stage[2].schedule_base, border[1]);
    assert_int_equal(k->stage[2].schedule.total_steps, 40 - border[1]);
    assert_true(course_lr(k, 1) == 0.5e-2);
    assert_true(course_lr(k, border[1] + 1) == 0.5e-3); /* its own warm-up */
    course_free(k);
    config_free(c);
}

/* A shorter run leaves out what comes after its end. */
static void test_cut(void **state) {
    (void)state;
    char yaml[1024];
    snprintf(yaml, sizeof yaml, "%s", STAGES);
    config *c = load(yaml);
    c->train.steps = 10;
    course *k = make(c, 0, NULL);
    assert_int_equal(k->n_stages, 1);
    assert_int_equal(k->total_steps, 10);
    course_free(k);
    c->train.steps = 50;
    err e = {0};
    assert_int_equal(course_new(&k, c, 0, NULL, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "three"));
    config_free(c);
}

/* A fork with another batch goes on with the next sample, not with one that its own past would have
 * come to. */
static void test_origin(void **state) {
    (void)state;
    config *c = load("train: {steps: 100, seq_len: 16, global_batch_size: 2, micro_batch_size: 2}");
    course_origin o = {.step = 50, .stage = 0, .samples = 400, .tokens = 6400};
    course *k = make(c, 0, &o);
    assert_int_equal(course_first_sample(k, 51), 400);
    assert_int_equal(course_first_sample(k, 52), 402);
    assert_int_equal(course_tokens_after(k, 51), 6432);
    course_free(k);
    config_free(c);
}

static void check_end(const char *yaml, uint64_t epoch, const course_origin *o, int64_t steps) {
    config *c = load(yaml);
    course *k = make(c, epoch, o);
    assert_int_equal(k->total_steps, steps);
    assert_int_equal(k->stage[k->n_stages - 1].last_step, steps);
    if (steps > o->step) assert_int_equal(course_first_sample(k, o->step + 1), o->samples);
    course_free(k);
    config_free(c);
}

/* A length in tokens or epochs counts what was used before the fork, not what its config would have used:
 * 50 steps of 8 sequences of 16 tokens. */
static void test_length_behind_origin(void **state) {
    (void)state;
    const course_origin o = {.step = 50, .stage = 0, .samples = 400, .tokens = 6400};
    const char tokens[] =
        "train: {tokens: 12800, seq_len: 16, global_batch_size: %d, micro_batch_size: 1}";
    const char epochs[] =
        "train: {epochs: 2, seq_len: 16, global_batch_size: %d, micro_batch_size: 1}";
    static const int batches[] = {2, 8, 16, 100};
    for (int i = 0; i < ARRAY_LEN(batches); i++) {
        char yaml[256];
        snprintf(yaml, sizeof yaml, tokens, batches[i]);
        check_end(yaml, 0, &o, 50 + 400 / batches[i]);
        snprintf(yaml, sizeof yaml, epochs, batches[i]);
        check_end(yaml, 400, &o, 50 + 400 / batches[i]);
    }
    check_end("train: {tokens: 6400, seq_len: 16, global_batch_size: 2}", 0, &o, 50);
}

/* The stage in which it forks goes on, and ends by its tokens; so do those behind it. */
static void test_stages_behind_origin(void **state) {
    (void)state;
    const course_origin o = {.step = 50, .stage = 1, .samples = 80, .tokens = 6400};
    config *c = load("train: {seq_len: 16, global_batch_size: 32, micro_batch_size: 1}\n"
                     "stages:\n"
                     "- {name: one, until: {tokens: 5120}}\n"
                     "- {name: two, until: {tokens: 10240}}\n"
                     "- {name: three, until: {tokens: 12800}}\n");
    course *k = make(c, 0, &o);
    assert_int_equal(course_part_of(k, 50)->stage, 1);
    assert_int_equal(course_part_of(k, 51)->stage, 1);
    assert_int_equal(course_first_sample(k, 51), 80);
    assert_int_equal(course_tokens_after(k, 50), 6400);
    assert_int_equal(k->stage[1].last_step, 58); /* 10496 tokens */
    assert_int_equal(course_first_sample(k, 59), 0);
    assert_int_equal(k->total_steps, 63);
    course_free(k);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_known_length),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_size_is_constant),
        cmocka_unit_test(test_against_a_walk),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_length_behind_origin),
        cmocka_unit_test(test_stages_behind_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
