/* A text of which the test makes the logits: what a request may ask of each pick. */
#include "test.h"

#include "infer/generate.h"

enum { V = 8, NEW = 12, END = 5 };

/* By what a model would say after each of the tokens: the same falling order every time. */
static const float LOGITS[V] = {0.5f, 1.0f, 3.0f, 2.5f, 2.0f, 2.75f, -1.0f, 9.0f};
static const int32_t PROMPT_IDS[] = {1, 2, 3};
static const int32_t ENDS[] = {END};

typedef struct told {
    int32_t id[NEW], top[NEW][3];
    double logprob[NEW], first[NEW];
    int n, n_top;
    bool ends; /* the last one told */
} told;

static void note(void *ctx, const token_report *t) {
    told *k = ctx;
    assert_true(k->n < NEW);
    k->id[k->n] = t->id;
    k->logprob[k->n] = t->logprob;
    k->n_top = t->n_top;
    k->ends = t->ends;
    for (int i = 0; i < t->n_top; i++) k->top[k->n][i] = t->top_ids[i];
    if (t->n_top) k->first[k->n] = t->top_logprobs[0];
    k->n++;
}

static generate_request asks(void) {
    return (generate_request){.prompt = PROMPT_IDS,
                              .n_prompt = 3,
                              .max_new = NEW,
                              .sample = {.top_p = 1, .repetition_penalty = 1},
                              .end = ENDS,
                              .n_end = 1};
}

/* The whole text; id V - 1 only pads the vocabulary. */
static generate_finish write_text(const generate_request *rq, tok_ids *out) {
    generation *w;
    generate_result result;
    strbuf text = {0};
    err e = {0};
    generate_limits limits = {.Tmax = 3 + NEW, .vocab = V, .n_ids = V - 1};
    assert_int_equal(generation_begin(&w, rq, &limits, out, &text, &result, &e), ST_OK);
    for (bool ended = false; !ended;) {
        float logits[V];
        memcpy(logits, LOGITS, sizeof logits);
        assert_int_equal(generation_take(w, logits, &ended, &e), ST_OK);
    }
    assert_int_equal(generation_end(w, &e), ST_OK);
    assert_int_equal(result.n_new, out->n);
    generation_free(w);
    strbuf_free(&text);
    return result.finish;
}

static void expect_ids(generate_request rq, generate_finish finish, int n, const int32_t *ids) {
    tok_ids out = {0};
    assert_int_equal(write_text(&rq, &out), finish);
    assert_int_equal(out.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(out.id[i], ids[i]);
    tok_ids_free(&out);
}

static void test_bias(void **state) {
    (void)state;
    generate_request rq = asks();
    rq.max_new = 3;
    expect_ids(rq, FINISH_LENGTH, 3, (int32_t[]){2, 2, 2});
    rq.n_bias = 2;
    rq.bias_ids = (int32_t[]){2, 0};
    rq.bias = (double[]){-100, 2.75};
    expect_ids(rq, FINISH_LENGTH, 3, (int32_t[]){0, 0, 0});
    /* the penalties come after it: 0 has 3.25, then 2.25, then 1.25 */
    rq.sample.frequency_penalty = 1;
    rq.ignore_end = true;
    expect_ids(rq, FINISH_LENGTH, 3, (int32_t[]){0, END, 3});
    err e = {0};
    generation *w;
    generate_result result;
    rq.bias_ids = (int32_t[]){2, V - 1};
    generate_limits limits = {.Tmax = 9, .vocab = V, .n_ids = V - 1};
    assert_int_equal(generation_begin(&w, &rq, &limits, &(tok_ids){0}, &(strbuf){0}, &result, &e),
                     ST_USAGE);
}

static void test_ends(void **state) {
    (void)state;
    generate_request rq = asks();
    rq.n_bias = 1;
    rq.bias_ids = (int32_t[]){END};
    rq.bias = (double[]){1};
    expect_ids(rq, FINISH_END, 0, NULL);
    rq.min_new = 2;
    expect_ids(rq, FINISH_END, 2, (int32_t[]){2, 2});
    rq.min_new = 0;
    rq.ignore_end = true;
    rq.max_new = 2;
    expect_ids(rq, FINISH_LENGTH, 2, (int32_t[]){END, END});
}

static void test_report(void **state) {
    (void)state;
    told k = {0};
    double sum = 0, logprobs[NEW];
    generate_request rq = asks();
    rq.max_new = 2;
    rq.on_token = note;
    rq.ctx = &k;
    rq.n_top = 3;
    rq.logprobs = logprobs;
    rq.sample.presence_penalty = 2;
    rq.ignore_end = true;
    expect_ids(rq, FINISH_LENGTH, 2, (int32_t[]){2, END});
    for (int i = 0; i < V; i++) sum += exp((double)LOGITS[i]);
    assert_int_equal(k.n, 2);
    assert_int_equal(k.n_top, 3);
    for (int i = 0; i < 2; i++) { /* the model's own, without the penalty and the padding */
        assert_int_equal(k.id[i], i == 0 ? 2 : END);
        assert_true(fabs(k.logprob[i] - ((double)LOGITS[k.id[i]] - log(sum))) < 1e-6);
        assert_true(k.logprob[i] == logprobs[i]);
        assert_true(k.top[i][0] == 2 && k.top[i][1] == END && k.top[i][2] == 3);
        assert_true(fabs(k.first[i] - (3 - log(sum))) < 1e-6);
    }
    assert_false(k.ends);
    /* the id that ends the text is told, and is none of it */
    k = (told){0};
    rq.ignore_end = false;
    expect_ids(rq, FINISH_END, 1, (int32_t[]){2});
    assert_true(k.n == 2 && k.id[1] == END && k.ends);
    assert_true(fabs(k.logprob[1] - ((double)LOGITS[END] - log(sum))) < 1e-6);
}

/* Of equal logits the smaller id; more asked for than there are; not a number is none. */
static void test_most_likely(void **state) {
    (void)state;
    const float x[] = {1, 4, NAN, 4, 0, -INFINITY, 2};
    int32_t ids[9];
    double logprobs[9];
    assert_int_equal(most_likely(x, 7, 1, 3, ids, logprobs), 3);
    assert_true(ids[0] == 1 && ids[1] == 3 && ids[2] == 6);
    assert_true(logprobs[2] == 1);
    assert_int_equal(most_likely(x, 7, 0, 9, ids, logprobs), 6);
    assert_true(ids[3] == 0 && ids[4] == 4 && ids[5] == 5);
}

/* ---- a constraint: 0, then 4 one to three times ---- */

typedef struct counted {
    constraint base;
    int n, asked;
    int64_t left;
} counted;

static bool counted_allow(constraint *c, int64_t left, uint64_t *mask) {
    counted *k = (counted *)c;
    k->asked++;
    k->left = left;
    mask[0] = k->n == 0 ? 1 : 1 << 4;
    return true;
}

static void counted_take(constraint *c, int32_t id) {
    counted *k = (counted *)c;
    assert_int_equal(id, k->n == 0 ? 0 : 4);
    k->n++;
}

static bool counted_may_end(const constraint *c) {
    return ((const counted *)c)->n >= 2;
}

static bool counted_must_end(const constraint *c) {
    return ((const counted *)c)->n == 4;
}

static const constraint_class counted_class = {.allow = counted_allow,
                                               .take = counted_take,
                                               .may_end = counted_may_end,
                                               .must_end = counted_must_end};

static void test_constraint(void **state) {
    (void)state;
    counted k = {.base.class = &counted_class};
    generate_request rq = asks();
    rq.limit = &k.base;
    expect_ids(rq, FINISH_END, 2, (int32_t[]){0, 4}); /* the end is likelier than 4 */
    assert_int_equal(k.asked, 3);
    assert_int_equal(k.left, NEW - 2);
    k = (counted){.base.class = &counted_class};
    rq.n_end = 0;
    expect_ids(rq, FINISH_END, 4, (int32_t[]){0, 4, 4, 4});
    assert_int_equal(k.asked, 4);
    k = (counted){.base.class = &counted_class};
    rq.max_new = 3;
    expect_ids(rq, FINISH_LENGTH, 3, (int32_t[]){0, 4, 4});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias), cmocka_unit_test(test_ends), cmocka_unit_test(test_report),
        cmocka_unit_test(test_most_likely), cmocka_unit_test(test_constraint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
