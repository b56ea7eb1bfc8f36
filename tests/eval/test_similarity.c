/* BLEU and ROUGE against sacrebleu and rouge_score, to 1e-9: texts with several references, with and without matches,
 * and with characters at which words are hard to tell. */
#include "test.h"

#include <jansson.h>

#include "eval/metric.h"
#include "eval/similarity.h"

enum { MOST = 16 };

static eval_text text_of(const json_t *o) {
    return (eval_text){json_string_value(o), json_string_length(o)};
}

static void near(double got, double want, const char *what, int number) {
    if (!(fabs(got - want) <= 1e-9 * fmax(1, want)))
        fail_msg("%s of corpus %d: %.12g instead of %.12g", what, number, got, want);
}

static void check_corpus(const json_t *o, int number) {
    static const eval_metric rouge[] = {METRIC_ROUGE_1, METRIC_ROUGE_2, METRIC_ROUGE_L};
    const json_t *docs = json_object_get(o, "docs");
    eval_doc d[MOST];
    eval_attempt attempt[MOST];
    eval_text answer[MOST], target[MOST][MOST];
    int n = (int)json_array_size(docs);
    for (int i = 0; i < n; i++) {
        const json_t *doc = json_array_get(docs, (size_t)i),
                     *list = json_object_get(doc, "targets");
        answer[i] = text_of(json_object_get(doc, "answer"));
        attempt[i] = (eval_attempt){.answer = &answer[i]};
        d[i] = (eval_doc){
            .attempt = &attempt[i], .target = target[i], .n_targets = (int)json_array_size(list)};
        for (int k = 0; k < d[i].n_targets; k++)
            target[i][k] = text_of(json_array_get(list, (size_t)k));
    }
    eval_task t = {
        .kind = EVAL_ANSWER, .doc = d, .n = n, .repeats = 1, .metrics = 1u << METRIC_BLEU};
    near(eval_measure(&t, METRIC_BLEU, 0).value, json_number_value(json_object_get(o, "bleu")),
         "BLEU", number);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            const json_t *list = json_object_get(json_array_get(docs, (size_t)i), "rouge");
            near(eval_doc_score(&t, &d[i], rouge[k], 0),
                 json_number_value(json_array_get(list, (size_t)k)), eval_metric_names[rouge[k]],
                 number);
        }
}

static void test_golden(void **state) {
    (void)state;
    json_t *cases = json_load_file(TEST_DIR "/golden/eval/similarity.json", 0, NULL);
    assert_int_equal(json_array_size(cases), 10);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_corpus(json_array_get(cases, i), (int)i);
    json_decref(cases);
}

/* A corpus of equal documents has no deviation; others have one, the same each time. */
static void test_deviation(void **state) {
    (void)state;
    eval_text answer[3] = {{"a b c d e", 9}, {"a b c d e", 9}, {"a b x d e f", 11}},
              target = {"a b c d e", 9};
    eval_attempt attempt[3];
    eval_doc d[3];
    for (int i = 0; i < 3; i++) {
        attempt[i] = (eval_attempt){.answer = &answer[i]};
        d[i] = (eval_doc){.attempt = &attempt[i], .target = &target, .n_targets = 1};
    }
    eval_task t = {.kind = EVAL_ANSWER, .doc = d, .n = 2, .repeats = 1};
    eval_score equal = eval_measure(&t, METRIC_BLEU, 0);
    assert_true(fabs(equal.value - 100) < 1e-9 && equal.stderr_ < 1e-6);
    t.n = 3;
    eval_score s = eval_measure(&t, METRIC_BLEU, 0), again = eval_measure(&t, METRIC_BLEU, 0);
    assert_true(s.value < 90 && s.stderr_ > 5 && s.stderr_ < 40 && s.stderr_ == again.stderr_);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_deviation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
