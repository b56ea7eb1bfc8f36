/* IFEval: verdicts on made-up answers against those of lm-evaluation-harness
 * (tests/oracle/make_ifeval_golden.py), the loose variants, what is refused, and the scores. */
#include "test.h"

#include "base/json.h"
#include "eval/answer.h"
#include "eval/ifeval.h"
#include "eval/language.h"
#include "eval/metric.h"
#include "eval/text_units.h"

static json_t *row_of(const json_t *id, const json_t *kwargs) {
    return json_pack("{s:[O],s:[O]}", "instruction_id_list", id, "kwargs", kwargs);
}

static int check_case(const json_t *answers, const json_t *k) {
    err e = {0};
    eval_task t = {.a = arena_new("task")};
    eval_doc d = {0};
    const json_t *id = json_object_get(k, "id"), *kwargs = json_object_get(k, "kwargs");
    const char *want = json_string_value(json_object_get(k, "verdicts"));
    json_t *row = row_of(id, kwargs);
    int n = (int)json_array_size(answers), wrong = 0;
    assert_int_equal(strlen(want), n);
    if (eval_ifeval_read(&t, &d, row, &e) != ST_OK) fail_msg("%s", e.message);
    for (int i = 0; i < n; i++) {
        const json_t *s = json_array_get(answers, (size_t)i);
        uint32_t strict, loose;
        eval_text answer = {json_string_value(s), json_string_length(s)};
        assert_int_equal(eval_ifeval_judge(d.ifeval, answer, &strict, &loose, &e), ST_OK);
        char is = strict ? 'S' : loose ? 'L' : '0';
        if (is == want[i]) continue;
        char *arguments = json_dumps(kwargs, 0);
        print_error("%s %s: %c instead of %c for \"%s\"\n", json_string_value(id), arguments, is,
                    want[i], answer.s);
        free(arguments);
        wrong++;
    }
    json_decref(row);
    arena_free(t.a);
    return wrong;
}

static void test_verdicts(void **state) {
    (void)state;
    err e = {0};
    json_t *all, *group, *k;
    size_t i, j;
    int wrong = 0;
    assert_int_equal(json_read_file(&all, TEST_DIR "/golden/ifeval.json", 1 << 24, &e), ST_OK);
    json_array_foreach(json_object_get(all, "groups"), i, group) {
        json_array_foreach(json_object_get(group, "cases"), j, k) {
            wrong += check_case(json_object_get(group, "answers"), k);
        }
    }
    json_decref(all);
    if (wrong) fail_msg("%d verdicts differ", wrong);
}

static status read_one(const char *id, const char *kwargs, eval_doc *d, eval_task *t, err *e) {
    *t = (eval_task){.a = arena_new("task")};
    *d = (eval_doc){0};
    json_t *name = json_string(id), *arguments = json_loads(kwargs, 0, NULL);
    json_t *row = row_of(name, arguments);
    status st = eval_ifeval_read(t, d, row, e);
    json_decref(row);
    json_decref(name);
    json_decref(arguments);
    return st;
}

static void refused(const char *id, const char *kwargs, const char *message) {
    err e = {0};
    eval_task t;
    eval_doc d;
    assert_int_equal(read_one(id, kwargs, &d, &t, &e), ST_FORMAT);
    if (!strstr(e.message, message)) fail_msg("%s", e.message);
    arena_free(t.a);
}

static void test_refusals(void **state) {
    (void)state;
    refused("keywords:nothing", "{}", "there is no instruction keywords:nothing");
    refused("keywords:existence", "{}", "lacks its argument keywords");
    refused("keywords:existence", "{\"keywords\": [\"(\"]}", "pattern");
    refused("length_constraints:number_words", "{\"num_words\": null}",
            "lacks its argument num_words");
    refused("length_constraints:number_words", "{\"num_words\": 5, \"relation\": \"exactly\"}",
            "neither \"less than\" nor \"at least\"");
}

static eval_text text(const char *s) {
    return (eval_text){s, strlen(s)};
}

/* What the harness's program, without Punkt's parameters, or with another way to tell languages,
 * would say otherwise. */
static void test_units(void **state) {
    (void)state;
    assert_int_equal(eval_count_sentences(text("Dr. Who met Mr. X in the U.S. in May. They left.")),
                     2);
    assert_int_equal(eval_count_sentences(text("Use nuts, e.g. hazelnuts. Or none, i.e. nothing.")),
                     2);
    assert_int_equal(eval_count_sentences(text("")), 0);
    assert_string_equal(eval_language_of(text("THE END OF THIS IS NOT WHAT WE SAID.")), "en");
    assert_string_equal(eval_language_of(text("qwrt zxcv")), "");
    assert_string_equal(eval_language_of(text("\u4eca\u5929\u5929\u6c14\u5f88\u597d")), "zh");
    assert_null(eval_language_of(text("12 + 3!")));
    assert_true(eval_is_upper(text("\u00c9T\u00c9 1")) && !eval_is_upper(text("\u00c9t")));
    assert_true(eval_is_lower(text("\u00e9t\u00e9 1")) && !eval_is_lower(text("12")));
}

/* The answer in which a thought came first: it counts only after the thought is taken away. Of two
 * instructions one is followed by the second attempt alone. */
static void test_scores(void **state) {
    (void)state;
    err e = {0};
    eval_task t;
    eval_doc d;
    char thought[1000] = "<think>";
    for (int i = 0; i < 60; i++) strcat(thought, "hm and then ");
    strcat(thought, "</think>It is short.");
    assert_int_equal(read_one("length_constraints:number_words",
                              "{\"num_words\": 50, \"relation\": \"less than\"}", &d, &t, &e),
                     ST_OK);
    eval_filter none = {.name = "none"};
    eval_attempt a[2] = {{.written = text(thought)}, {.written = text(thought)}};
    t.filter = &none, t.n_filters = 1, t.doc = &d, t.n = 1, t.kind = EVAL_ANSWER;
    for (int i = 0; i < 2; i++) {
        t.keep_reasoning = i == 0;
        assert_int_equal(eval_find_answers(&t, &d, &a[i], &e), ST_OK);
        assert_int_equal(eval_ifeval_judge(d.ifeval, *a[i].answer, &a[i].strict, &a[i].loose, &e),
                         ST_OK);
        assert_int_equal(a[i].strict, i);
    }
    d.attempt = a;
    t.repeats = 2;
    assert_true(eval_measure(&t, METRIC_PROMPT_STRICT, 0).value == 0.5);
    eval_ifeval two = {.item = {d.ifeval->item[0], d.ifeval->item[0]}, .n = 2};
    d.ifeval = &two;
    a[1].strict = 3;
    assert_true(eval_measure(&t, METRIC_PROMPT_STRICT, 0).value == 0.5);
    assert_true(eval_measure(&t, METRIC_INST_STRICT, 0).value == 0.5);
    a[0].loose = 1, a[1].loose = 3;
    assert_true(eval_measure(&t, METRIC_INST_LOOSE, 0).value == 0.75);
    arena_free(t.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verdicts),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_units), cmocka_unit_test(test_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
