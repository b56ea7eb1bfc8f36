/* Beam search, and n-grams that do not repeat, against transformers' generate: every beam of every case token by
 * token, with its score. Golden models of several families. */
#include "test.h"

#include <jansson.h>

#include "infer/beam.h"
#include "interchange/open_model.h"

enum { MOST = 64, NEW = 14 };

typedef struct list {
    int32_t id[MOST];
    int64_t n;
} list;

static list ids_of(const json_t *o) {
    list l = {.n = (int64_t)json_array_size(o)};
    assert_true(l.n <= MOST);
    for (int64_t i = 0; i < l.n; i++)
        l.id[i] = (int32_t)json_integer_value(json_array_get(o, (size_t)i));
    return l;
}

static double option(const json_t *o, const char *key, double usual) {
    const json_t *v = json_object_get(json_object_get(o, "options"), key);
    return json_is_number(v) ? json_number_value(v) : usual;
}

static beam_request request_of(const json_t *o, const list *prompt, const list *end) {
    const json_t *stop = json_object_get(json_object_get(o, "options"), "early_stopping");
    return (beam_request){
        .rq = {.prompt = prompt->id,
               .n_prompt = prompt->n,
               .max_new = NEW,
               .min_new = (int64_t)option(o, "min_new_tokens", 0),
               .end = end->id,
               .n_end = end->n,
               .sample = {.top_p = 1,
                          .repetition_penalty = option(o, "repetition_penalty", 1),
                          .no_repeat_ngram = (int)option(o, "no_repeat_ngram_size", 0)}},
        .beams = (int)option(o, "num_beams", 1),
        .length_penalty = option(o, "length_penalty", 1),
        .stop = json_is_true(stop)     ? BEAM_STOP_FIRST
                : json_is_string(stop) ? BEAM_STOP_NEVER
                                       : BEAM_STOP_UNLIKELY};
}

static void same_ids(const json_t *o, int beam, const tok_ids *got) {
    list want = ids_of(json_array_get(json_object_get(o, "texts"), (size_t)beam));
    bool same = got->n == want.n &&
                (got->n == 0 || memcmp(got->id, want.id, sizeof *got->id * (size_t)got->n) == 0);
    if (same) return;
    char *text = json_dumps(o, 0);
    print_message("beam %d of %s:", beam, text);
    for (int64_t i = 0; i < got->n; i++) print_message(" %d", got->id[i]);
    fail_msg("%s", "other tokens");
}

static void same_beams(const json_t *o, const beam_request *rq, beam_text *texts, int n) {
    assert_int_equal(n, rq->beams);
    for (int i = 0; i < n; i++) {
        double want = json_number_value(json_array_get(json_object_get(o, "scores"), (size_t)i));
        same_ids(o, i, &texts[i].ids);
        if (fabs(texts[i].score - want) > 1e-5 * fmax(1, fabs(want))) {
            char *text = json_dumps(o, 0);
            fail_msg("beam %d has the score %.7g, not %.7g: %s", i, texts[i].score, want, text);
        }
        assert_true(texts[i].finish == (texts[i].ids.n < NEW ? FINISH_END : FINISH_LENGTH));
        tok_ids_free(&texts[i].ids);
    }
}

static void check_in_turn(open_model *m, const json_t *o, const beam_request *rq) {
    err e = {0};
    beam_text texts[BEAMS_MOST];
    int n;
    generator g = open_model_generator(m);
    assert_int_equal(beam_run_in_turn(&g, rq, texts, &n, &e), ST_OK);
    same_beams(o, rq, texts, n);
    generator_free(&g);
}

static void check_beams(open_model *m, const json_t *o, const beam_request *rq) {
    err e = {0};
    beam_text texts[BEAMS_MOST];
    int n;
    scorer *s = open_model_scorer(m);
    generate_limits limits = plan_limits(m->plan, m->tok, m->score.longest);
    for (int i = 0; i < 2; i++) { /* with what the search before has left in the slots, too */
        assert_int_equal(beam_run(s, &limits, rq, texts, &n, &e), ST_OK);
        same_beams(o, rq, texts, n);
    }
    scorer_free(s);
}

/* The picks of a sampler at temperature 0; and a search with one beam finds the same. */
static void check_greedy(open_model *m, const json_t *o, const beam_request *rq) {
    err e = {0};
    tok_ids out = {0};
    strbuf text = {0};
    generate_result result;
    beam_text best;
    int n;
    generator g = open_model_generator(m);
    assert_int_equal(generate_run(&g, &rq->rq, &out, &text, &result, &e), ST_OK);
    same_ids(o, 0, &out);
    generator_free(&g);
    scorer *s = open_model_scorer(m);
    generate_limits limits = plan_limits(m->plan, m->tok, m->score.longest);
    if (rq->rq.sample.repetition_penalty == 1) { /* which differs on log-probabilities */
        assert_int_equal(beam_run(s, &limits, rq, &best, &n, &e), ST_OK);
        same_ids(o, 0, &best.ids);
        tok_ids_free(&best.ids);
    }
    scorer_free(s);
    tok_ids_free(&out);
    strbuf_free(&text);
}

static void check_case(const json_t *o) {
    err e = {0};
    open_model m;
    char path[256];
    snprintf(path, sizeof path, TEST_DIR "/golden/models/%s",
             json_string_value(json_object_get(o, "model")));
    list prompt = ids_of(json_object_get(o, "prompt")), end = ids_of(json_object_get(o, "end"));
    beam_request rq = request_of(o, &prompt, &end);
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    open_model_set_beams(&m, prompt.n + NEW, rq.beams);
    assert_int_equal(open_model_load(&m, (int)prompt.n + NEW, 0, &e), ST_OK);
    if (rq.beams > 1) {
        check_beams(&m, o, &rq);
        check_in_turn(&m, o, &rq);
    } else
        check_greedy(&m, o, &rq);
    open_model_close(&m);
}

static void test_golden(void **state) {
    (void)state;
    json_t *cases = json_load_file(TEST_DIR "/golden/beams.json", 0, NULL);
    assert_int_equal(json_array_size(cases), 40);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    json_decref(cases);
}

/* The encoder reads the prompt; beams take turns. */
static void check_encoder(const json_t *o) {
    err e = {0};
    open_model m;
    char path[256];
    snprintf(path, sizeof path, TEST_DIR "/golden/encoder/%s",
             json_string_value(json_object_get(o, "model")));
    list prompt = ids_of(json_object_get(o, "prompt")), end = ids_of(json_object_get(o, "end"));
    beam_request rq = request_of(o, &prompt, &end);
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    open_model_set_source(&m, (int)prompt.n);
    assert_int_equal(open_model_load(&m, 1 + NEW, 0, &e), ST_OK);
    if (rq.beams > 1) check_in_turn(&m, o, &rq);
    open_model_close(&m);
}

static void test_encoders(void **state) {
    (void)state;
    json_t *cases = json_load_file(TEST_DIR "/golden/beams_encoder.json", 0, NULL);
    assert_int_equal(json_array_size(cases), 16);
    for (size_t i = 0; i < json_array_size(cases); i++) check_encoder(json_array_get(cases, i));
    json_decref(cases);
}

/* An interrupt gives what is there; a prompt that fills the context is refused. */
static void test_edges(void **state) {
    (void)state;
    err e = {0};
    open_model m;
    volatile sig_atomic_t stop = 1;
    list prompt = {.id = {1, 2, 3}, .n = 3};
    beam_text texts[3];
    int n;
    assert_int_equal(open_model_read(&m, TEST_DIR "/golden/models/llama-gqa-tied", 1, &e), ST_OK);
    open_model_set_beams(&m, 8, 3);
    assert_int_equal(open_model_load(&m, 0, 0, &e), ST_OK);
    scorer *s = open_model_scorer(&m);
    generate_limits limits = plan_limits(m.plan, m.tok, 8);
    beam_request rq = {
        .rq = {.prompt = prompt.id, .n_prompt = 3, .max_new = 99, .interrupt = &stop}, .beams = 3};
    assert_int_equal(beam_run(s, &limits, &rq, texts, &n, &e), ST_OK);
    assert_true(n == 1 && texts[0].ids.n == 0 && texts[0].finish == FINISH_INTERRUPT);
    stop = 0;
    assert_int_equal(beam_run(s, &limits, &rq, texts, &n, &e), ST_OK);
    assert_true(n == 3 && texts[0].ids.n == 5 && texts[0].finish == FINISH_LENGTH);
    for (int i = 0; i < n; i++) tok_ids_free(&texts[i].ids);
    rq.rq.n_prompt = 0;
    assert_int_equal(beam_run(s, &limits, &rq, texts, &n, &e), ST_USAGE);
    scorer_free(s);
    open_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_encoders),
                                       cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
