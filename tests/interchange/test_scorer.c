/* The scorer: its scores are those of the logits of each request by itself, and do not depend on
 * what else is scored, in which order, or how much memory the cache has; in 16 bits they are near
 * those. All families of golden models. */
#include "test.h"

#include "base/file.h"
#include "base/rng.h"
#include "interchange/open_model.h"

enum { REQUESTS = 60, LONGEST = 150, VOCAB_MOST = 200 };

typedef struct asked {
    float nll[REQUESTS][LONGEST];
    int32_t ids[REQUESTS][LONGEST + 1];
    score_request r[REQUESTS];
} asked;

static uint64_t draws;
static int64_t draw(int64_t below) {
    return (int64_t)(mix64(draws++) % (uint64_t)below);
}

/* Groups of choices with the same context, half of them after the same examples; some continuations
 * are one token, one is longer than any pass of few lanes. */
static void ask(asked *a, int vocab, int longest) {
    draws = 7;
    for (int i = 0; i < REQUESTS; i++) {
        score_request *r = &a->r[i];
        int32_t *ids = a->ids[i];
        bool follows = i % 4 != 0;
        const score_request *first = &a->r[i - i % 4];
        int n_context = follows ? first->n - first->n_scored : 1 + (int)draw(longest / 2);
        int n = i % 8 < 4 ? 1 : 1 + (int)draw(longest / 2);
        if (i == 5) n = longest + 1 - n_context;
        for (int k = 0; k < n_context + n; k++) ids[k] = (int32_t)draw(vocab);
        if (follows) memcpy(ids, first->ids, sizeof *ids * (size_t)n_context);
        if (!follows && i % 8 == 4 && n_context > 40) memcpy(ids, a->ids[0], 30 * sizeof *ids);
        *r = (score_request){
            .ids = ids, .n = n_context + n, .n_scored = n, .nll = i % 3 ? a->nll[i] : NULL};
    }
}

static double by_logits(open_model *m, const score_request *r) {
    int64_t V = m->config.vocab_size;
    const float *logits = open_model_logits(m, r->ids, r->n - 1);
    double sum = 0;
    for (int t = r->n - 1 - r->n_scored; t < r->n - 1; t++) {
        const float *x = logits + t * V;
        double max = -INFINITY, all = 0;
        for (int64_t v = 0; v < V; v++) max = fmax(max, (double)x[v]);
        for (int64_t v = 0; v < V; v++) all += exp((double)x[v] - max);
        sum += (double)x[r->ids[t + 1]] - max - log(all);
    }
    return sum;
}

static void score_as(const char *path, const char *precision, int longest, int64_t cache_bytes,
                     score_request *r, int n) {
    err e = {0};
    open_model m;
    score_options none = {0};
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    assert_int_equal(open_model_set_precision(&m, precision, &e), ST_OK);
    open_model_set_scorer(&m, longest, cache_bytes);
    assert_int_equal(open_model_load(&m, 0, 0, &e), ST_OK);
    scorer *s = open_model_scorer(&m);
    assert_int_equal(scorer_run(s, r, n, &none, NULL, &e), ST_OK);
    scorer_free(s);
    open_model_close(&m);
}

/* Half of them, backwards, in a cache of few slots: the same bits. */
static void check_other_order(const char *path, const char *precision, int longest,
                              const asked *a) {
    score_request some[REQUESTS / 2];
    for (int i = 0; i < REQUESTS / 2; i++) some[i] = a->r[REQUESTS - 1 - 2 * i];
    score_as(path, precision, longest, 1, some, REQUESTS / 2);
    for (int i = 0; i < REQUESTS / 2; i++)
        if (some[i].loglik != a->r[REQUESTS - 1 - 2 * i].loglik)
            fail_msg("%s, %s: %.17g, and in another batch %.17g", path, precision,
                     a->r[REQUESTS - 1 - 2 * i].loglik, some[i].loglik);
}

/* A token's score is off by the rounding of activations: 8 bits of mantissa in bf16. What is rounded
 * can pick another expert, so a few of the requests may be off by more then. */
static void check_precision(const char *path, const char *precision, double most, int may_exceed,
                            int longest, const asked *exact) {
    int exceed = 0;
    asked *a = malloc(sizeof *a);
    *a = *exact;
    score_as(path, precision, longest, 64 << 20, a->r, REQUESTS);
    for (int i = 0; i < REQUESTS; i++) {
        double off = fabs(a->r[i].loglik - exact->r[i].loglik) / a->r[i].n_scored;
        exceed += !(off <= most);
        if (exceed > may_exceed) fail_msg("%s, %s, request %d: off by %g", path, precision, i, off);
    }
    check_other_order(path, precision, longest, a);
    free(a);
}

static void check_model(const char *path) {
    err e = {0};
    open_model m;
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    int may_exceed = m.config.num_experts > 0 ? REQUESTS / 8 : 0;
    int vocab = (int)m.config.vocab_size, longest = (int)m.config.max_position_embeddings;
    if (longest > LONGEST) longest = LONGEST;
    open_model_close(&m);
    asked *a = calloc(1, sizeof *a);
    ask(a, vocab, longest);
    score_as(path, "fp32", longest, 64 << 20, a->r, REQUESTS);
    for (int i = 0; i < REQUESTS; i += 5) {
        assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
        assert_int_equal(open_model_load(&m, 0, a->r[i].n - 1, &e), ST_OK);
        double want = by_logits(&m, &a->r[i]);
        if (fabs(want - a->r[i].loglik) > 2e-5 * (1 + fabs(want)))
            fail_msg("%s, request %d: %.9g instead of %.9g", path, i, a->r[i].loglik, want);
        open_model_close(&m);
    }
    for (int i = 0; i < REQUESTS; i++) {
        double sum = 0;
        for (int k = 0; a->r[i].nll && k < a->r[i].n_scored; k++) sum -= (double)a->nll[i][k];
        if (a->r[i].nll && sum != a->r[i].loglik) fail_msg("%s, request %d: terms", path, i);
    }
    check_other_order(path, "fp32", longest, a);
    check_precision(path, "bf16", 0.15, may_exceed, longest, a);
    check_precision(path, "fp16", 0.015, may_exceed, longest, a);
    free(a);
}

static void test_families(void **state) {
    (void)state;
    err e = {0};
    char **names;
    int n, checked = 0;
    arena *a = arena_new("golden models");
    assert_int_equal(file_list_dir(a, TEST_DIR "/golden/models", &names, &n, &e), ST_OK);
    for (int i = 0; i < n; i++) {
        const char *dir = path_join(a, TEST_DIR "/golden/models", names[i]);
        /* Rotary positions that depend on the length of the longest sequence. */
        if (!file_is_dir(dir) || strstr(names[i], "longrope") || strstr(names[i], "beyond"))
            continue;
        check_model(dir);
        checked++;
    }
    assert_true(checked > 20);
    arena_free(a);
}

static void test_not_finite(void **state) {
    (void)state;
    err e = {0};
    open_model m;
    int32_t ids[] = {1, 2, 3};
    score_request r = {.ids = ids, .n = 3, .n_scored = 1};
    volatile sig_atomic_t stop = 1;
    score_options opt = {.interrupt = &stop};
    assert_int_equal(open_model_read(&m, TEST_DIR "/golden/models/llama-gqa-tied", 2, &e), ST_OK);
    open_model_set_scorer(&m, 2, 1 << 20);
    assert_int_equal(open_model_load(&m, 0, 0, &e), ST_OK);
    scorer *s = open_model_scorer(&m);
    assert_int_equal(scorer_run(s, &r, 1, &opt, NULL, &e), ST_STOPPED);
    opt.interrupt = NULL;
    assert_int_equal(scorer_run(s, &r, 1, &opt, NULL, &e), ST_OK);
    assert_true(r.loglik < 0);
    scorer_free(s);
    open_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
