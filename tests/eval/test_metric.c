/* Metrics against numbers worked out by hand or by lm-evaluation-harness 0.4.13, answers, and
 * comparisons. */
#include "test.h"

#include "eval/answer.h"
#include "eval/metric.h"
#include "eval/slices.h"

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%.12g instead of %.12g", got, want);
}

static eval_text text(const char *s) {
    return (eval_text){s, strlen(s)};
}

static eval_choice choice(const char *label, double loglik, int tokens, eval_pair *alone) {
    return (eval_choice){
        .pair = {.loglik = loglik, .n_tokens = tokens}, .alone = alone, .label = text(label)};
}

/* Each normalisation prefers another choice. */
static void test_choices(void **state) {
    (void)state;
    eval_pair alone[4] = {{.loglik = -1}, {.loglik = -12}, {.loglik = -10}, {.loglik = -18}};
    eval_choice c[4] = {choice("ab", -3, 1, &alone[0]), choice("abcdefgh", -8, 4, &alone[1]),
                        choice("\u00e9\u00e9\u00e9\u00e9", -6, 2, &alone[2]),
                        choice("abcdef", -9, 9, &alone[3])};
    eval_doc d = {.choice = c, .n_choices = 4};
    assert_int_equal(eval_best_choice(&d, METRIC_ACC), 0);
    assert_int_equal(eval_best_choice(&d, METRIC_ACC_NORM), 1);   /* -1 of -1.5, -1, -1.5, -1.5 */
    assert_int_equal(eval_best_choice(&d, METRIC_ACC_BYTES), 2);  /* -0.75 */
    assert_int_equal(eval_best_choice(&d, METRIC_ACC_TOKENS), 3); /* -1 */
    assert_int_equal(eval_best_choice(&d, METRIC_ACC_MUTUAL_INFO), 3); /* 9 */
    c[1].pair.loglik = c[0].pair.loglik;                               /* of equal ones the first */
    assert_int_equal(eval_best_choice(&d, METRIC_ACC), 0);
}

/* Three of four right: sqrt(0.75 * 0.25 * 4 / 3) / 2. */
static void test_mean(void **state) {
    (void)state;
    eval_choice c[2] = {choice("a", -1, 1, NULL), choice("b", -2, 1, NULL)};
    int32_t first = 0, second = 1;
    eval_doc d[4];
    for (int i = 0; i < 4; i++)
        d[i] = (eval_doc){.choice = c, .n_choices = 2, .gold = i ? &first : &second, .n_gold = 1};
    eval_task t = {.kind = EVAL_CHOICES, .doc = d, .n = 4};
    eval_score s = eval_measure(&t, METRIC_ACC, 0);
    near(s.value, 0.75, 0);
    near(s.stderr_, 0.25, 1e-15);
    assert_int_equal(s.n, 4);
}

/* word_perplexity counts len(re.split(r"\s+", text)): 3 + 2 words. */
static void test_perplexity(void **state) {
    (void)state;
    eval_doc d[2] = {{.text = text("one two\u2003 three"), .loglik = -10},
                     {.text = text("\n\u00e9"), .loglik = -2}};
    eval_task t = {.kind = EVAL_TEXT, .doc = d, .n = 2};
    size_t bytes = d[0].text.len + d[1].text.len;
    near(eval_measure(&t, METRIC_WORD_PERPLEXITY, 0).value, exp(12.0 / 5), 1e-12);
    near(eval_measure(&t, METRIC_BYTE_PERPLEXITY, 0).value, exp(12.0 / (double)bytes), 1e-12);
    eval_score bits = eval_measure(&t, METRIC_BITS_PER_BYTE, 0);
    near(bits.value, 12.0 / (double)bytes / log(2), 1e-12);
    double r = 12.0 / (double)bytes, a = 10 - r * (double)d[0].text.len;
    near(bits.stderr_, sqrt(2 * a * a * 2) / (double)bytes / log(2), 1e-9);
}

static double at(const json_t *o, const char *a, const char *b, const char *c) {
    const json_t *v = json_object_get(json_object_get(o, a), b);
    if (c) v = json_object_get(v, c);
    if (!json_is_number(v)) fail_msg("no %s of %s", b, a);
    return json_number_value(v);
}

/* Ids 5 and 6 are there once, 7 three times. */
static void test_slices(void **state) {
    (void)state;
    static const int32_t first[] = {5, 7, 7}, second[] = {7, 6};
    float a[] = {4, 1, 2}, b[] = {3, 8};
    eval_doc d[2] = {{.text = text("abcd"),
                      .loglik = -7,
                      .token = first,
                      .token_nll = a,
                      .n_tokens = 3,
                      .source = "web",
                      .language = "en"},
                     {.text = text("ef"),
                      .loglik = -11,
                      .token = second,
                      .token_nll = b,
                      .n_tokens = 2,
                      .language = "en"}};
    eval_task t = {.kind = EVAL_TEXT, .doc = d, .n = 2, .name = "t", .repeats = 1};
    json_t *o = eval_slices_json(&t);
    near(at(o, "token_loss", "mean", NULL), 18.0 / 5, 1e-12);
    near(at(o, "token_loss", "p50", NULL), 3, 1e-12);
    near(at(o, "token_loss", "p10", NULL), 1.4, 1e-6);
    near(at(o, "token_loss", "max", NULL), 8, 1e-12);
    near(at(o, "by_frequency", "1", "loss"), 6, 1e-12);
    near(at(o, "by_frequency", "1", "tokens"), 2, 0);
    near(at(o, "by_frequency", "2-9", "loss"), 2, 1e-12);
    near(at(o, "by_source", "web", "bits_per_byte"), 7 / log(2) / 4, 1e-12);
    near(at(o, "by_source", "unknown", "bits_per_byte"), 11 / log(2) / 2, 1e-12);
    near(at(o, "by_language", "en", "bits_per_byte"), 18 / log(2) / 6, 1e-12);
    near(at(o, "by_language", "en", "sample_len"), 2, 0);
    json_decref(o);
    d[0].language = d[1].language = NULL;
    o = eval_slices_json(&t);
    assert_null(json_object_get(o, "by_language"));
    json_decref(o);
}

/* Several answers of a document: its score is the mean of theirs. */
static void test_repeats(void **state) {
    (void)state;
    eval_text yes = text("yes"), no = text("no"), target = text("yes");
    eval_attempt a[2][3] = {{{.answer = &yes}, {.answer = &no}, {.answer = &yes}},
                            {{.answer = &no}, {.answer = &no}, {.answer = &no}}};
    eval_doc d[2];
    for (int i = 0; i < 2; i++)
        d[i] = (eval_doc){.attempt = a[i], .target = &target, .n_targets = 1};
    eval_task t = {.kind = EVAL_ANSWER, .doc = d, .n = 2, .repeats = 3};
    eval_score s = eval_measure(&t, METRIC_EXACT_MATCH, 0);
    near(s.value, 1.0 / 3, 1e-12);
    near(s.stderr_, 1.0 / 3, 1e-12); /* of 2/3 and 0 */
}

static void thought(const char *prompt, const char *written, const char *reasoning,
                    const char *answer) {
    eval_thought t = eval_split_thought(text(prompt), text(written));
    bool same = t.reasoning.len == strlen(reasoning) && t.answer.len == strlen(answer) &&
                memcmp(t.reasoning.s, reasoning, t.reasoning.len) == 0 &&
                memcmp(t.answer.s, answer, t.answer.len) == 0;
    if (!same) fail_msg("\"%s\" after \"%s\"", written, prompt);
}

static void test_reasoning(void **state) {
    (void)state;
    thought("", "plain", "", "plain");
    thought("", " <think>a</think>\n\n b", "a", "b");
    thought("", "a</think>b</think>c", "a</think>b", "c"); /* the last one counts */
    thought("x <think>\n", "a</think> b", "a", "b");
    thought("x <think>\n", "never ends", "never ends", "");
    thought("", "<reasoning>a", "a", "");
    thought("", "<thinking>a</thinking>b", "a", "b");
    thought("<think></think>", "b", "", "b");
    eval_filter f = {.name = "none"};
    eval_task t = {.a = arena_new("task"), .filter = &f, .n_filters = 1};
    eval_doc d = {0};
    eval_attempt a = {.written = text("<think>40 or 41</think>42")};
    assert_int_equal(eval_find_answers(&t, &d, &a, NULL), ST_OK);
    assert_string_equal(a.answer->s, "42");
    t.keep_reasoning = true;
    assert_int_equal(eval_find_answers(&t, &d, &a, NULL), ST_OK);
    assert_true(a.answer->len == a.written.len);
    arena_free(t.a);
}

/* exp of the mean over continuations, whose standard error is that of a mean. */
static void test_likelihood(void **state) {
    (void)state;
    eval_choice c[3] = {choice("a", -1, 1, NULL), choice("b", -2, 1, NULL),
                        choice("c", -6, 1, NULL)};
    eval_doc d[3];
    for (int i = 0; i < 3; i++)
        d[i] = (eval_doc){.choice = &c[i], .n_choices = 1, .greedy = i == 0};
    eval_task t = {.kind = EVAL_LIKELIHOOD, .doc = d, .n = 3};
    eval_score s = eval_measure(&t, METRIC_PERPLEXITY, 0);
    near(s.value, exp(3), 1e-12);
    near(s.stderr_, exp(3) * sqrt(7.0 / 3), 1e-12); /* 4 + 1 + 9 by 2, of 3 documents */
    near(eval_measure(&t, METRIC_ACC, 0).value, 1.0 / 3, 1e-15);
}

static void check_answer(const eval_step *steps, int n, const char *written, const char *want) {
    err e = {0};
    eval_filter f = {.name = "f", .step = (eval_step *)steps, .n_steps = n};
    eval_task t = {.a = arena_new("task"), .filter = &f, .n_filters = 1};
    eval_doc d = {0};
    eval_attempt a = {.written = text(written)};
    assert_int_equal(eval_find_answers(&t, &d, &a, &e), ST_OK);
    if (a.answer->len != strlen(want) || memcmp(a.answer->s, want, strlen(want)) != 0)
        fail_msg("\"%.*s\" instead of \"%s\"", (int)a.answer->len, a.answer->s, want);
    arena_free(t.a);
}

/* The filters of gsm8k, and what Python's re.findall gives for them. */
static void test_filters(void **state) {
    (void)state;
    eval_step strict = {
        .kind = STEP_REGEX, .pattern = "#### (\\-?[0-9\\.\\,]+)", .fallback = "[invalid]"};
    eval_step flexible = {.kind = STEP_REGEX,
                          .pattern = "(-?[$0-9.,]{2,})|(-?[0-9]+)",
                          .group = -1,
                          .fallback = "[invalid]"};
    eval_step second = {.kind = STEP_REGEX, .pattern = "(?P<x>a)?b", .group = 1, .fallback = "?"};
    eval_step both[] = {{.kind = STEP_STRIP}, {.kind = STEP_UPPERCASE}};
    check_answer(&strict, 1, "so 3.\n#### -1,200. and #### 7", "-1,200.");
    check_answer(&strict, 1, "so 3.", "[invalid]");
    check_answer(&flexible, 1, "4 eggs, $18.50 and 7", "7");
    check_answer(&flexible, 1, "7 for $18.50", "$18.50");
    check_answer(&flexible, 1, "none", "[invalid]");
    check_answer(&second, 1, "ab b ab", "");
    check_answer(&second, 1, "ab", "?");
    check_answer(both, 2, " \n yes ", "YES");
    eval_step begin = {.kind = STEP_REGEX, .pattern = "^(\\w+)$", .fallback = "?"};
    check_answer(&begin, 1, "one\ntwo", "?"); /* not of a line */
    begin.pattern = "(?m)^(\\w+)$";
    check_answer(&begin, 1, "one\ntwo", "one");
    begin.pattern = "(?s)a(.*)c";
    check_answer(&begin, 1, "a\nb\nc", "b");
}

static void test_exact_match(void **state) {
    (void)state;
    char *ignore[] = {",", "\\$", "(?s).*#### ", "\\.$"};
    eval_match plain = {0}, gsm = {.ignore_case = true, .ignore = ignore, .n_ignore = 4},
               loose = {.ignore_punctuation = true, .ignore_numbers = true};
    assert_true(eval_match_exactly(&plain, text("a"), text("a")));
    assert_false(eval_match_exactly(&plain, text("A"), text("a")));
    assert_true(eval_match_exactly(&gsm, text("$1,200."), text("so\nit is\n#### 1200")));
    assert_false(eval_match_exactly(&gsm, text("1201"), text("#### 1200")));
    assert_true(eval_match_exactly(&loose, text("a-b 12"), text("ab 3")));
}

static void test_compare(void **state) {
    (void)state;
    double a[400], b[400];
    for (int i = 0; i < 400; i++) a[i] = i % 2, b[i] = i % 2;
    eval_difference same = eval_compare(a, b, 400);
    near(same.value, 0, 0);
    near(same.p, 1, 1e-9);
    for (int i = 0; i < 40; i++) b[2 * i + 1] = 0; /* worse on 40 of 400 documents, never better */
    eval_difference d = eval_compare(a, b, 400);
    near(d.value, 0.1, 1e-12);
    near(d.stderr_, sqrt(0.1 * 0.9 / 399), 1e-12);
    assert_true(d.low > 0.06 && d.low < 0.08 && d.high > 0.12 && d.high < 0.14 && d.p < 0.001);
    for (int i = 0; i < 36; i++) b[2 * i] = 1; /* and better on 36 */
    assert_true(eval_compare(a, b, 400).p > 0.3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),    cmocka_unit_test(test_mean),
        cmocka_unit_test(test_perplexity), cmocka_unit_test(test_likelihood),
        cmocka_unit_test(test_filters),    cmocka_unit_test(test_exact_match),
        cmocka_unit_test(test_compare),    cmocka_unit_test(test_slices),
        cmocka_unit_test(test_repeats),    cmocka_unit_test(test_reasoning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
