/* Texts to requests, by the rules of lm-evaluation-harness, with a tokenizer of characters; and a
 * run of tasks on a golden model, whose scores are those of its logits. */
#include "test.h"

#include "eval/encode.h"
#include "eval/run.h"

static tok *characters(void) {
    err e = {0};
    tok *t = NULL;
    tok_trainer *tr = NULL;
    static const char *const special[] = {"<|endoftext|>"};
    tok_train_options opt = {.kind = TOK_CHAR, .special = special, .n_special = 1};
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
    assert_int_equal(tok_trainer_add(tr, "abcdefgh \n", 10, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_OK);
    tok_trainer_free(tr);
    return t;
}

static eval_text text(const char *s) {
    return (eval_text){s, strlen(s)};
}

/* A request as text, "|" before what is scored, "^" for the token before a text without a
 * context. */
static const char *shown(const tok *t, const score_request *r) {
    static char out[256];
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        size_t len;
        const char *s = tok_bytes(t, r->ids[i], &len);
        if (i == r->n - r->n_scored) out[n++] = '|';
        out[n++] = r->ids[i] == tok_eos(t) ? '^' : s[0];
    }
    out[n] = 0;
    return out;
}

static status encode_pair(open_model *m, const char *context, const char *continuation,
                          int64_t most, eval_requests *r, err *e) {
    eval_choice c = {.pair = {.context = text(context), .continuation = text(continuation)}};
    eval_doc d = {.choice = &c, .n_choices = 1, .file = "task", .line = 3};
    eval_task t = {.kind = EVAL_CHOICES, .doc = &d, .n = 1};
    return eval_encode(&t, m, most, r, e);
}

static void check_pair(open_model *m, const char *context, const char *continuation, int64_t most,
                       const char *want) {
    err e = {0};
    eval_requests r = {0};
    assert_int_equal(encode_pair(m, context, continuation, most, &r, &e), ST_OK);
    assert_int_equal(r.n, 1);
    assert_string_equal(shown(m->tok, &r.item[0]), want);
    eval_requests_free(&r);
}

static void test_pairs(void **state) {
    (void)state;
    err e = {0};
    open_model m = {.tok = characters()};
    check_pair(&m, "ab", " cd", 100, "ab| cd");
    check_pair(&m, "ab \n", "cd", 100, "ab| \ncd"); /* space goes to the continuation */
    check_pair(&m, "", "cd", 100, "^|cd");
    check_pair(&m, "", "<|endoftext|>cd", 100, "^|cd"); /* not twice */
    check_pair(&m, "abcdef", "gh", 5, "cdef|gh");       /* five inputs, and a target */
    eval_requests r = {0};
    assert_int_equal(encode_pair(&m, "ab", "cdefgh", 5, &r, &e), ST_USAGE);
    assert_string_equal(e.where, "task:3");
    eval_requests_free(&r);
    assert_int_equal(encode_pair(&m, "ab", "", 5, &r, &e), ST_USAGE);
    eval_requests_free(&r);
    tok_free(m.tok);
}

/* Windows of four targets: the first after the token of the beginning, the next after one token of
 * the text. */
static void test_windows(void **state) {
    (void)state;
    err e = {0};
    open_model m = {.tok = characters()};
    eval_doc d = {.text = text("abcdefgha b"), .file = "task"};
    eval_task t = {.a = arena_new("task"), .kind = EVAL_TEXT, .doc = &d, .n = 1};
    eval_requests r = {0};
    assert_int_equal(eval_encode(&t, &m, 4, &r, &e), ST_OK);
    assert_int_equal(r.n, 3);
    assert_string_equal(shown(m.tok, &r.item[0]), "^|abcd");
    assert_string_equal(shown(m.tok, &r.item[1]), "d|efgh");
    assert_string_equal(shown(m.tok, &r.item[2]), "gh|a b");
    assert_int_equal(d.n_tokens, 11);
    assert_memory_equal(d.token + 8, r.item[2].ids + 2, 3 * sizeof(int32_t));
    assert_true(r.item[2].nll == d.token_nll + 8);
    eval_requests_free(&r);
    arena_free(t.a);
    tok_free(m.tok);
}

static double score_alone(const char *path, tok *t, const char *s) {
    err e = {0};
    open_model m;
    tok_ids ids = {0};
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    tok_ids_push(&ids, tok_eos(t));
    assert_int_equal(tok_encode(t, s, strlen(s), 0, &ids, &e), ST_OK);
    assert_int_equal(open_model_load(&m, 0, (int)ids.n - 1, &e), ST_OK);
    const float *logits = open_model_logits(&m, ids.id, (int)ids.n - 1);
    double sum = 0;
    for (int64_t i = 0; i + 1 < ids.n; i++) {
        double all = 0;
        const float *x = logits + i * m.config.vocab_size;
        for (int64_t v = 0; v < m.config.vocab_size; v++) all += exp((double)x[v]);
        sum += (double)x[ids.id[i + 1]] - log(all);
    }
    tok_ids_free(&ids);
    open_model_close(&m);
    return sum;
}

static void test_run(void **state) {
    (void)state;
    static const char path[] = TEST_DIR "/golden/models/llama-gqa-tied";
    err e = {0};
    open_model m;
    score_stats stats;
    static char *until[] = {"zz"};
    eval_filter none = {.name = "none"};
    eval_doc texts[2] = {{.text = text("abba cab"), .file = "a"},
                         {.text = text("dead"), .file = "a"}};
    eval_doc asks[1] = {{.prompt = text("abc"), .file = "b"}};
    eval_task t[2] = {{.a = arena_new("a"), .kind = EVAL_TEXT, .doc = texts, .n = 2},
                      {.a = arena_new("b"),
                       .kind = EVAL_ANSWER,
                       .doc = asks,
                       .n = 1,
                       .max_new = 5,
                       .repeats = 1,
                       .until = until,
                       .n_until = 1,
                       .filter = &none,
                       .n_filters = 1}};
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    m.tok = characters();
    double want = score_alone(path, m.tok, "abba cab");
    assert_int_equal(eval_run(&m, t, 2, &(eval_options){0}, &stats, &e), ST_OK);
    if (fabs(texts[0].loglik - want) > 1e-4)
        fail_msg("%.9g instead of %.9g", texts[0].loglik, want);
    assert_true(asks[0].attempt->written.len == 5 && asks[0].attempt->answer[0].s);
    assert_true(stats.passes > 0 && stats.rows_alone == 8 + 4);
    open_model_close(&m);
    arena_free(t[0].a);
    arena_free(t[1].a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
