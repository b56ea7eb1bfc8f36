/* The writer: its texts are those of a generator, and do not depend on what else is written, in
 * which order or how many at a time. Golden models of several families. */
#include "test.h"

#include "base/rng.h"
#include "infer/writer.h"
#include "interchange/open_model.h"

enum { ITEMS = 45, PROMPT_MOST = 42, NEW_MOST = 20, LONGEST = 64 };

typedef struct asked {
    int32_t prompt[ITEMS][PROMPT_MOST];
    int64_t n[ITEMS];
    int vocab, longest;
} asked;

/* Half of the prompts begin alike. */
static void ask(asked *a, const model_config *mc) {
    uint64_t draws = 3;
    int vocab = (int)mc->vocab_size, most = (int)mc->max_position_embeddings;
    a->vocab = vocab;
    a->longest = most < LONGEST ? most : LONGEST;
    for (int i = 0; i < ITEMS; i++) {
        a->n[i] = 1 + (int64_t)(mix64(draws++) % (uint64_t)(a->longest * 2 / 3));
        for (int k = 0; k < PROMPT_MOST; k++)
            a->prompt[i][k] = (int32_t)(mix64(draws++) % (uint64_t)vocab);
        if (i % 2) memcpy(a->prompt[i], a->prompt[0], 12 * sizeof(int32_t));
    }
}

static generate_request request(const asked *a, int i) {
    static const int32_t end[] = {7};
    return (generate_request){.prompt = a->prompt[i],
                              .n_prompt = a->n[i],
                              .max_new = 1 + i % NEW_MOST,
                              .sample = {.temperature = i % 3 ? 0 : 1,
                                         .top_p = 1,
                                         .repetition_penalty = 1,
                                         .seed = (uint64_t)i},
                              .end = end,
                              .n_end = 1};
}

static generate_limits limits_of(const asked *a) {
    return (generate_limits){.Tmax = a->longest, .vocab = a->vocab, .n_ids = a->vocab};
}

/* The items that a step of `by` from `first` on meets, with a cache of some size. */
static write_item *write_some(const char *path, const asked *a, int first, int by, int n,
                              int64_t cache_bytes) {
    err e = {0};
    open_model m;
    write_item *items = calloc((size_t)n, sizeof *items);
    for (int i = 0; i < n; i++) items[i].rq = request(a, first + i * by);
    generate_limits limits = limits_of(a);
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    open_model_set_scorer(&m, a->longest, cache_bytes);
    open_model_set_writer(&m, n);
    assert_int_equal(open_model_load(&m, 0, 0, &e), ST_OK);
    scorer *s = open_model_scorer(&m);
    if (writer_run(s, &limits, items, n, NULL, NULL, &e) != ST_OK)
        fail_msg("%s: %s", path, e.message);
    scorer_free(s);
    open_model_close(&m);
    return items;
}

static void same_text(const char *path, int i, const write_item *x, const tok_ids *want,
                      generate_finish finish) {
    bool same =
        x->ids.n == want->n && x->result.finish == finish &&
        (want->n == 0 || memcmp(x->ids.id, want->id, (size_t)want->n * sizeof(int32_t)) == 0);
    if (!same) fail_msg("%s: text %d has other tokens", path, i);
}

static void check_by_generator(const char *path, const asked *a, const write_item *items) {
    err e = {0};
    open_model m;
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    assert_int_equal(open_model_load(&m, a->longest, 0, &e), ST_OK);
    generator g = open_model_generator(&m);
    for (int i = 0; i < ITEMS; i += 4) {
        tok_ids ids = {0};
        strbuf text = {0};
        generate_result result;
        generate_request rq = request(a, i);
        assert_int_equal(generate_run(&g, &rq, &ids, &text, &result, &e), ST_OK);
        same_text(path, i, &items[i], &ids, result.finish);
        tok_ids_free(&ids);
        strbuf_free(&text);
    }
    generator_free(&g);
    open_model_close(&m);
}

static void check_model(const char *name) {
    char path[256];
    err e = {0};
    open_model m;
    asked a;
    snprintf(path, sizeof path, TEST_DIR "/golden/models/%s", name);
    assert_int_equal(open_model_read(&m, path, 2, &e), ST_OK);
    ask(&a, &m.config);
    open_model_close(&m);
    write_item *all = write_some(path, &a, 0, 1, ITEMS, 64 << 20);
    check_by_generator(path, &a, all);
    write_item *few = write_some(path, &a, ITEMS - 1, -2, ITEMS / 2, 1);
    for (int i = 0; i < ITEMS / 2; i++) {
        const write_item *x = &all[ITEMS - 1 - 2 * i];
        same_text(path, i, &few[i], &x->ids, x->result.finish);
    }
    write_item *one = write_some(path, &a, 9, 1, 1, 1);
    same_text(path, 9, one, &all[9].ids, all[9].result.finish);
    int ended = 0;
    for (int i = 0; i < ITEMS; i++) ended += all[i].result.finish == FINISH_END;
    assert_true(ended < ITEMS);
    write_items_free(all, ITEMS);
    write_items_free(few, ITEMS / 2);
    write_items_free(one, 1);
}

static void test_families(void **state) {
    (void)state;
    static const char *const names[] = {"llama-gqa-tied", "gpt2-tanh-tied", "gemma2", "smollm3",
                                        "neox-parallel"};
    for (int i = 0; i < ARRAY_LEN(names); i++) check_model(names[i]);
}

typedef struct stop_after {
    volatile sig_atomic_t flag;
    int done;
} stop_after;

static status count(void *ctx, int64_t item, err *e) {
    stop_after *s = ctx;
    (void)item, (void)e;
    s->flag = ++s->done >= 3;
    return ST_OK;
}

/* A signal, a prompt that does not fit: what was done is told before. */
static void test_ends(void **state) {
    (void)state;
    err e = {0};
    open_model m;
    asked a;
    stop_after s = {0};
    assert_int_equal(open_model_read(&m, TEST_DIR "/golden/models/llama-gqa-tied", 2, &e), ST_OK);
    ask(&a, &m.config);
    generate_limits limits = limits_of(&a);
    open_model_set_scorer(&m, LONGEST, 1);
    open_model_set_writer(&m, ITEMS);
    assert_int_equal(open_model_load(&m, 0, 0, &e), ST_OK);
    scorer *sc = open_model_scorer(&m);
    write_item *items = calloc(ITEMS, sizeof *items);
    for (int i = 0; i < ITEMS; i++) {
        items[i].rq = request(&a, i);
        items[i].rq.interrupt = &s.flag;
    }
    assert_int_equal(writer_run(sc, &limits, items, ITEMS, count, &s, &e), ST_STOPPED);
    assert_true(s.done >= 3 && s.done < ITEMS);
    write_items_free(items, ITEMS);
    items = calloc(1, sizeof *items);
    items->rq = request(&a, 0);
    items->rq.n_prompt = LONGEST;
    assert_int_equal(writer_run(sc, &limits, items, 1, NULL, NULL, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "the context holds 64"));
    write_items_free(items, 1);
    scorer_free(sc);
    open_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
