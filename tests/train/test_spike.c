/* The spike guard: scores against known values, the window's ring, cut and JSON, and the recorded
 * curves of two real runs. */
#include "test.h"

#include "base/arena.h"
#include "base/json.h"
#include "train/guard/spike.h"

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9)) fail_msg("%.17g instead of %.17g", got, want);
}

static const double LOSSES[] = {3.1, 3.0, 2.9, 3.2, 2.8, 3.05, 2.95, 3.0};

static double loss_at(int i) {
    return LOSSES[i % ARRAY_LEN(LOSSES)] + 1e-3 * (i % 7);
}
static double norm_at(int i) {
    return 1 + 0.1 * ((i * 5) % 11) / 11.0;
}

static void fill(spike_window *w, int from, int to) {
    for (int i = from; i < to; i++) spike_enter(w, loss_at(i), norm_at(i));
}

static void test_silent_until_enough_is_known(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 128);
    fill(&w, 0, SPIKE_MIN_STEPS - 1);
    spike_score s = spike_measure(&w, 100, 100);
    assert_true(s.loss_z == 0 && s.norm_z == 0);
    fill(&w, SPIKE_MIN_STEPS - 1, SPIKE_MIN_STEPS);
    s = spike_measure(&w, 100, 100);
    assert_true(s.loss_z > 100 && s.norm_z > 10);
}

/* Mean and spread of the sample, by hand. */
static void test_known_values(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 16);
    for (int i = 0; i < 40; i++) spike_enter(&w, i % 2 ? 4 : 2, i % 2 ? exp(0.2) : 1);
    double sd = sqrt(16.0 / 15.0);
    spike_score s = spike_measure(&w, 6, exp(0.6));
    near(s.loss_mean, 3);
    near(s.loss_sd, sd);
    near(s.loss_z, 3 / sd);
    near(s.norm_mean, exp(0.1));
    near(s.norm_z, 5 / sd);
    assert_true(spike_measure(&w, 1, 0.5).loss_z < 0);
    assert_true(spike_measure(&w, 1, 0.5).norm_z < 0);
}

static void test_values_without_spread(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 32);
    for (int i = 0; i < 32; i++) spike_enter(&w, 2, 1);
    near(spike_measure(&w, 2, 1).loss_z, 0);
    near(spike_measure(&w, 2.01, 1).loss_z, 5);
    near(spike_measure(&w, 2, exp(0.005)).norm_z, 5);
    spike_init(&w, 32);
    for (int i = 0; i < 32; i++) spike_enter(&w, 0, 1);
    assert_true(spike_measure(&w, 0, 1).loss_z == 0);
    assert_true(isinf(spike_measure(&w, 1e-9, 1).loss_z));
}

static void test_not_finite(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 16);
    assert_true(isinf(spike_measure(&w, NAN, 1).loss_z));
    assert_true(spike_measure(&w, NAN, 1).norm_z == 0);
    fill(&w, 0, 16);
    assert_true(spike_measure(&w, 3, INFINITY).norm_z > 1e300);
    assert_true(spike_measure(&w, -INFINITY, 1).loss_z > 1e300);
    spike_window before = w;
    spike_enter(&w, NAN, 1);
    spike_enter(&w, 3, INFINITY);
    spike_enter(&w, 3, 0);
    assert_memory_equal(&w, &before, sizeof w);
    assert_true(spike_measure(&w, 3, 0).norm_z == 0);
}

/* One spike of a thousand sigma leaves the bound where it was, nearly. */
static void test_spike_hardly_widens(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 128);
    fill(&w, 0, 128);
    double before = spike_measure(&w, 10, 5).loss_sd;
    spike_enter(&w, 1000, 1000);
    spike_score s = spike_measure(&w, 10, 5);
    assert_true(s.loss_sd < 1.05 * before);
    assert_true(s.loss_z > 20);
}

/* A loss that stays higher is the usual one after a while. */
static void test_lasting_shift_is_learned(void **state) {
    (void)state;
    spike_window w;
    int alarms = 0;
    spike_init(&w, 128);
    fill(&w, 0, 128);
    for (int i = 0; i < 128; i++) {
        alarms += spike_measure(&w, loss_at(i) + 1, norm_at(i)).loss_z > 6;
        spike_enter(&w, loss_at(i) + 1, norm_at(i));
    }
    assert_in_range(alarms, 5, 30);
}

/* ---- JSON ---- */

static spike_window through_json(const spike_window *w) {
    spike_window back;
    strbuf text = {0};
    json_t *o = spike_to_json(w);
    json_format(&text, o, 2);
    json_decref(o);
    o = json_loads(text.data, 0, NULL);
    assert_int_equal(spike_from_json(&back, o, NULL), ST_OK);
    json_decref(o);
    strbuf_free(&text);
    return back;
}

/* At every moment of the ring, what comes back decides with the same bits from then on. */
static void test_json_round_trip(void **state) {
    (void)state;
    spike_window w;
    spike_init(&w, 20);
    for (int i = 0; i < 50; i++) {
        spike_window back = through_json(&w);
        assert_true(back.n == w.n && back.cap == w.cap);
        for (int k = i; k < i + 25; k++) {
            double loss = loss_at(k) / 3, norm = norm_at(k) / 7;
            spike_window copy = w;
            spike_score a = spike_measure(&copy, loss, norm), b = spike_measure(&back, loss, norm);
            assert_memory_equal(&a, &b, sizeof a);
            spike_enter(&back, loss, norm);
            spike_enter(&w, loss, norm);
        }
    }
}

static void test_resize(void **state) {
    (void)state;
    spike_window w, want;
    spike_init(&w, 100);
    fill(&w, 0, 130);
    spike_resize(&w, 40);
    spike_init(&want, 40);
    for (int i = 90; i < 130; i++) spike_enter(&want, loss_at(i), norm_at(i));
    spike_score a = spike_measure(&w, 4, 2), b = spike_measure(&want, 4, 2);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(w.n, 40);
    spike_resize(&w, SPIKE_MAX_WINDOW);
    assert_int_equal(w.n, 40);
    a = spike_measure(&w, 4, 2);
    assert_memory_equal(&a, &b, sizeof a);
}

static void test_damaged_json(void **state) {
    (void)state;
    static const char *const BAD[] = {
        "null",
        "[]",
        "{}",
        "{\"cap\": 128, \"loss\": [1]}",
        "{\"cap\": 15, \"loss\": [], \"log_norm\": []}",
        "{\"cap\": 1025, \"loss\": [], \"log_norm\": []}",
        "{\"cap\": 20.0, \"loss\": [], \"log_norm\": []}",
        "{\"cap\": 20, \"loss\": [1], \"log_norm\": []}",
        "{\"cap\": 20, \"loss\": [null], \"log_norm\": [1]}",
        "{\"cap\": 16, \"loss\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1], \"log_norm\": [0]}",
    };
    spike_window w, before;
    spike_init(&w, 16);
    fill(&w, 0, 16);
    before = w;
    for (int i = 0; i < ARRAY_LEN(BAD); i++) {
        json_t *o = json_loads(BAD[i], JSON_DECODE_ANY, NULL);
        err e = {0};
        if (spike_from_json(&w, o, &e) != ST_FORMAT) fail_msg("%s is accepted", BAD[i]);
        assert_true(e.message[0] && e.where[0]);
        json_decref(o);
    }
    assert_memory_equal(&w, &before, sizeof w);
}

/* ---- recorded runs ---- */

typedef struct recorded {
    double loss[1000], norm[1000];
    int n;
} recorded;

static recorded *read_run(const char *name) {
    char path[512], line[256];
    recorded *r = xcalloc(1, sizeof *r);
    snprintf(path, sizeof path, "%s/golden/train/%s", TEST_DIR, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (r->n < ARRAY_LEN(r->loss) && fgets(line, sizeof line, f))
        r->n += sscanf(line, "%lf %lf", &r->loss[r->n], &r->norm[r->n]) == 2;
    fclose(f);
    return r;
}

/* Steps with a z above 6, as the training loop finds them. */
static int find_spikes(const recorded *r, int window, bool scaled, int *steps, int most) {
    spike_window w;
    int n = 0;
    spike_init(&w, window);
    for (int i = 0; i < r->n; i++) {
        double loss = r->loss[i], norm = r->norm[i] * (scaled ? 1e-3 : 1);
        spike_score s = spike_measure(&w, loss, norm);
        if ((s.loss_z > 6 || s.norm_z > 6) && n < most) steps[n++] = i + 1;
        spike_enter(&w, loss, norm);
    }
    return n;
}

static void test_calm_run_has_no_alarm(void **state) {
    (void)state;
    int steps[8];
    recorded *r = read_run("calm.txt");
    assert_int_equal(r->n, 800);
    for (int window = 128; window <= 512; window *= 2)
        if (find_spikes(r, window, false, steps, 8) > 0)
            fail_msg("window %d: alarm at step %d", window, steps[0]);
    free(r);
}

/* The document is in these steps. Its loss is lower than usual each time; the norm betrays it. */
static void test_planted_document_is_found(void **state) {
    (void)state;
    static const int PLANTED[] = {176, 250, 271, 314, 462, 547, 574};
    int steps[64], again[64];
    recorded *r = read_run("planted.txt");
    int n = find_spikes(r, 128, false, steps, 64);
    for (int i = 0; i < ARRAY_LEN(PLANTED); i++) {
        bool found = false;
        for (int k = 0; k < n; k++) found |= steps[k] == PLANTED[i];
        if (!found) fail_msg("no alarm at step %d", PLANTED[i]);
    }
    assert_in_range(n, ARRAY_LEN(PLANTED), ARRAY_LEN(PLANTED) + 6);
    assert_int_equal(find_spikes(r, 128, true, again, 64), n); /* whatever the unit of the norm */
    assert_memory_equal(steps, again, sizeof *steps * (size_t)n);
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_until_enough_is_known),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_values_without_spread),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_spike_hardly_widens),
        cmocka_unit_test(test_lasting_shift_is_learned),
        cmocka_unit_test(test_json_round_trip),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_damaged_json),
        cmocka_unit_test(test_calm_run_has_no_alarm),
        cmocka_unit_test(test_planted_document_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
