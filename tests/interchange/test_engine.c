/* The engine: each answer is, to the bit, what its request gets alone in a fresh engine, whoever
 * else is served, in which order and in whatever cache; and it is what a generator writes. */
#include "test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "infer/engine.h"
#include "interchange/open_model.h"
#include "model/layer.h"

enum { MODEL_NAME = 64, ITEMS = 40, LONGEST = 60, TOP = 3, CROWDS = 6 };

typedef struct answer {
    int32_t ids[LONGEST], top[LONGEST][TOP];
    double logprob[LONGEST], prompt_logprob[LONGEST];
    int n, n_prompt; /* told */
    bool ends;
    int64_t n_new, n_reused;
    generate_finish finish;
    status st;
    int ended; /* calls of on_end */
} answer;

/* A request, and what came of it. */
typedef struct item {
    int32_t prompt[LONGEST];
    engine_request rq;
    answer got;
    uint64_t id;
    struct lab *lab;
    int cancel_after; /* tokens, from within on_token; 0: never */
} item;

typedef struct lab {
    open_model m;
    engine *en;
    int longest;
    uint64_t draws;
    item item[ITEMS];
} lab;

static int draw(lab *l, int n) {
    return (int)(mix64(l->draws++) % (uint64_t)n);
}

/* ---- requests ---- */

static void on_token(void *ctx, const token_report *t) {
    item *it = ctx;
    answer *a = &it->got;
    assert_true(a->n < LONGEST && !a->ends && !a->ended);
    a->ids[a->n] = t->id;
    a->logprob[a->n] = t->logprob;
    for (int i = 0; i < t->n_top; i++) a->top[a->n][i] = t->top_ids[i];
    a->ends = t->ends;
    if (++a->n == it->cancel_after) {
        engine_cancel(it->lab->en, it->id);
        assert_int_equal(a->ended, 0);
    }
}

static void on_prompt(void *ctx, int64_t index, const engine_token *t) {
    item *it = ctx;
    assert_int_equal(index, ++it->got.n_prompt);
    assert_int_equal(t->id, it->prompt[index]);
    it->got.prompt_logprob[index] = t->logprob;
}

static void on_end(void *ctx, status st, const generate_result *result, const err *e) {
    item *it = ctx;
    assert_true(st == ST_OK || e->message[0]);
    it->got.st = st;
    it->got.ended++;
    it->got.n_new = result->n_new;
    it->got.n_reused = result->n_reused;
    it->got.finish = result->finish;
}

/* Half of the prompts begin as the first, as far as it goes. */
static void make_item(lab *l, item *it, int i) {
    static const int32_t end[] = {7, 11};
    int vocab = (int)l->m.config.vocab_size, n = 1 + draw(l, l->longest * 3 / 4);
    *it = (item){.lab = l};
    for (int k = 0; k < LONGEST; k++) it->prompt[k] = draw(l, vocab);
    if (i % 2) memcpy(it->prompt, l->item[0].prompt, sizeof(int32_t) * (size_t)draw(l, l->longest));
    if (i % 8 == 7) memcpy(it->prompt, l->item[i - 1].prompt, sizeof it->prompt);
    it->rq = (engine_request){.rq = {.prompt = it->prompt,
                                     .n_prompt = n,
                                     .max_new = i % 9 == 8 ? l->longest : 1 + draw(l, 20),
                                     .sample = {.temperature = i % 3 ? 0 : 1,
                                                .top_p = 1,
                                                .repetition_penalty = 1,
                                                .seed = (uint64_t)i},
                                     .end = end,
                                     .n_end = 2,
                                     .on_token = on_token,
                                     .n_top = i % 4 == 1 ? TOP : 0,
                                     .ctx = it},
                              .prompt_logprobs = i % 5 == 4,
                              .on_prompt = on_prompt,
                              .on_end = on_end};
}

static void submit(lab *l, item *it) {
    err e = {0};
    it->got = (answer){0};
    if (engine_submit(l->en, &it->rq, &it->id, &e) != ST_OK) fail_msg("%s", e.message);
    assert_true(it->id != 0);
}

static void run_out(lab *l) {
    while (engine_step(l->en)) {
    }
    engine_load load = engine_get_load(l->en);
    assert_true(load.running == 0 && load.waiting == 0);
    assert_true(load.pages_used == 0 && load.pages_promised == 0);
}

/* ---- the model ---- */

static void lab_open(lab *l, const char *path, int threads) {
    err e = {0};
    *l = (lab){.draws = 5};
    if (open_model_read(&l->m, path, threads, &e) != ST_OK) fail_msg("%s: %s", path, e.message);
    int most = (int)model_max_tokens(&l->m.config);
    l->longest = most < LONGEST ? most : LONGEST;
    for (int i = 0; i < ITEMS; i++) make_item(l, &l->item[i], i);
}

static void lab_plan(lab *l, engine_size size, int generator_tok) {
    err e = {0};
    l->m.serve = size;
    if (open_model_load(&l->m, generator_tok, 0, &e) != ST_OK) fail_msg("%s", e.message);
    l->en = open_model_engine(&l->m);
}

static void lab_close(lab *l) {
    engine_free(l->en);
    open_model_close(&l->m);
}

static engine_size roomy(const lab *l) {
    return (engine_size){.rows = 64,
                         .logits = 16,
                         .longest = l->longest,
                         .seqs = 1,
                         .page = 8,
                         .pages = 9,
                         .states = model_has_states(&l->m.config)};
}

/* ---- the same to the bit ---- */

static void expect_same(const char *path, int i, const answer *x, const answer *want) {
    bool same = x->n == want->n && x->st == want->st && x->finish == want->finish &&
                x->n_new == want->n_new && x->n_prompt == want->n_prompt && x->ended == 1;
    if (!same)
        fail_msg("%s: answer %d has %d tokens and ends by %s (%d), not %d by %s", path, i, x->n,
                 generate_finish_name(x->finish), x->st, want->n,
                 generate_finish_name(want->finish));
    if (memcmp(x->ids, want->ids, sizeof x->ids) || memcmp(x->top, want->top, sizeof x->top))
        fail_msg("%s: answer %d has other tokens", path, i);
    if (memcmp(x->logprob, want->logprob, sizeof x->logprob))
        fail_msg("%s: answer %d has other probabilities", path, i);
    if (memcmp(x->prompt_logprob, want->prompt_logprob, sizeof x->prompt_logprob))
        fail_msg("%s: prompt %d has other probabilities", path, i);
}

/* Each alone in an engine of its own. */
static void answer_alone(const char *path, lab *l, answer *alone) {
    lab_open(l, path, 1);
    lab_plan(l, roomy(l), 0);
    for (int i = 0; i < ITEMS; i++) {
        engine_free(l->en);
        l->en = open_model_engine(&l->m);
        submit(l, &l->item[i]);
        run_out(l);
        alone[i] = l->item[i].got;
        assert_int_equal(alone[i].n_reused, 0);
    }
    lab_close(l);
}

/* A random engine: pages from 1 to 16 tokens, a cache that has room for one text or for many. */
static engine_size random_size(lab *l) {
    engine_size s = {.rows = 4 + draw(l, 60), .longest = l->longest, .page = 1 + draw(l, 16)};
    int least = (l->longest + s.page - 1) / s.page;
    s.seqs = 1 + draw(l, s.rows < 12 ? s.rows : 12);
    s.logits = s.seqs + draw(l, 5);
    s.states = model_has_states(&l->m.config);
    s.draft = draw(l, 2) && !s.states ? s.logits : 0;
    s.ahead = l->m.config.num_nextn_predict_layers > 0;
    s.from_text = !s.ahead || draw(l, 2);
    s.timed = draw(l, 2);
    s.pages = 1 + least + draw(l, 3) * draw(l, 2 * least);
    return s;
}

/* Requests come at random while others are served; some are cancelled, by themselves or by others. */
static void serve_crowd(const char *path, int crowd, const answer *alone) {
    lab *l = calloc(1, sizeof *l);
    lab_open(l, path, crowd == 0 && strstr(path, "gqa") ? 2 : 1);
    l->draws = 1000 + (uint64_t)crowd;
    lab_plan(l, random_size(l), 0);
    int order[ITEMS], first = draw(l, ITEMS);
    for (int i = 0; i < ITEMS; i++) order[i] = (first + i * 7) % ITEMS;
    for (int i = 0; i < ITEMS;) {
        item *it = &l->item[order[i]];
        if (draw(l, 3)) {
            if (draw(l, 9) == 0) it->cancel_after = 1 + draw(l, 5);
            submit(l, it);
            i++;
        } else {
            engine_step(l->en);
        }
        if (i && draw(l, 12) == 0) {
            item *other = &l->item[order[draw(l, i)]];
            bool runs = !other->got.ended;
            if (runs) other->cancel_after = -1;
            engine_cancel(l->en, other->id);
            assert_int_equal(other->got.ended, 1);
            assert_true(!runs || other->got.st == ST_STOPPED);
        }
    }
    run_out(l);
    int cancelled = 0;
    for (int i = 0; i < ITEMS; i++) {
        const answer *x = &l->item[i].got;
        if (x->st != ST_STOPPED) {
            expect_same(path, i, x, &alone[i]);
            continue;
        }
        assert_true(l->item[i].cancel_after != 0 && x->ended == 1 && x->n <= alone[i].n);
        assert_memory_equal(x->ids, alone[i].ids, sizeof *x->ids * (size_t)x->n);
        cancelled++;
    }
    assert_in_range(cancelled, 1, ITEMS / 2);
    lab_close(l);
    free(l);
}

static void check_by_generator(lab *l, const answer *alone) {
    generator g = open_model_generator(&l->m);
    for (int i = 0; i < ITEMS; i += 3) {
        tok_ids ids = {0};
        strbuf text = {0};
        generate_result result;
        double logprobs[LONGEST];
        err e = {0};
        generate_request rq = l->item[i].rq.rq;
        rq.on_token = NULL;
        rq.logprobs = logprobs;
        assert_int_equal(generate_run(&g, &rq, &ids, &text, &result, &e), ST_OK);
        assert_int_equal(ids.n, alone[i].n_new);
        assert_int_equal(result.finish, alone[i].finish);
        for (int k = 0; k < ids.n; k++) {
            assert_int_equal(ids.id[k], alone[i].ids[k]);
            assert_true(fabs(logprobs[k] - alone[i].logprob[k]) < 1e-4);
        }
        tok_ids_free(&ids);
        strbuf_free(&text);
    }
    generator_free(&g);
}

static void check_model(const char *name) {
    char path[256];
    lab *l = calloc(1, sizeof *l);
    answer *alone = calloc(ITEMS, sizeof *alone);
    snprintf(path, sizeof path, TEST_DIR "/golden/models/%s", name);
    answer_alone(path, l, alone);
    int ended = 0, full = 0;
    for (int i = 0; i < ITEMS; i++) {
        ended += alone[i].ends;
        full += alone[i].finish == FINISH_CONTEXT;
        assert_int_equal(alone[i].n_prompt, i % 5 == 4 ? (int)l->item[i].rq.rq.n_prompt - 1 : 0);
    }
    assert_true(ended > 0 && full > 0);
    lab_open(l, path, 1);
    lab_plan(l, roomy(l), l->longest);
    check_by_generator(l, alone);
    lab_close(l);
    for (int c = 0; c < CROWDS; c++) serve_crowd(path, c, alone);
    free(alone);
    free(l);
}

static void test_crowds(void **state) {
    (void)state;
    static const char *const names[] = {"llama-gqa-tied",    "gpt2-tanh-tied", "gemma2",
                                        "smollm3",           "llama-ahead",    "qwen3-next",
                                        "llama-sinks-chunks"};
    for (int i = 0; i < ARRAY_LEN(names); i++) check_model(names[i]);
}

/* ---- who runs, and when ---- */

enum { PAGE = 4 };

static void lab_of_sharers(lab *l, int seqs, int pages) {
    lab_open(l, TEST_DIR "/golden/models/llama-gqa-tied", 1);
    for (int i = 1; i < ITEMS; i++) l->item[i].rq = l->item[0].rq;
    for (int i = 0; i < ITEMS; i++) {
        generate_request *rq = &l->item[i].rq.rq;
        l->item[i].rq.prompt_logprobs = false;
        memcpy(l->item[i].prompt, l->item[0].prompt, sizeof l->item[i].prompt);
        rq->prompt = l->item[i].prompt;
        rq->ctx = &l->item[i];
        rq->n_prompt = 41;
        rq->max_new = 3;
        rq->n_end = 0;
    }
    lab_plan(l,
             (engine_size){.rows = 16,
                           .logits = 8,
                           .longest = LONGEST,
                           .seqs = seqs,
                           .page = PAGE,
                           .pages = pages},
             0);
}

/* Prompts that come together and begin alike are read once; the next one goes on where one ends. */
static void test_sharing(void **state) {
    (void)state;
    lab *l = calloc(1, sizeof *l);
    lab_of_sharers(l, 4, 100);
    for (int k = 20; k < LONGEST; k++) l->item[2].prompt[k]++; /* another after 5 pages */
    for (int i = 0; i < 4; i++) submit(l, &l->item[i]);
    run_out(l);
    static const int reused[] = {0, 40, 20, 40};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(l->item[i].got.n_reused, reused[i]);
        assert_int_equal(l->item[i].got.n_new, 3);
    }
    assert_memory_equal(l->item[1].got.ids, l->item[0].got.ids, 3 * sizeof(int32_t));
    /* who waits for one that is cancelled reads on itself */
    for (int i = 0; i < 4; i++) l->item[4 + i].prompt[0]++;
    for (int i = 0; i < 4; i++) submit(l, &l->item[4 + i]);
    engine_step(l->en);
    engine_step(l->en);
    engine_cancel(l->en, l->item[4].id);
    run_out(l);
    assert_int_equal(l->item[4].got.st, ST_STOPPED);
    assert_in_range(l->item[5].got.n_reused, 8, 36);
    assert_int_equal(l->item[7].got.n_reused, 40);
    /* a conversation: what was written is not read again */
    int32_t *prompt = l->item[8].prompt;
    prompt[0]++;
    memcpy(prompt + 41, l->item[5].got.ids, 3 * sizeof *prompt);
    l->item[8].rq.rq.n_prompt = 48;
    submit(l, &l->item[8]);
    run_out(l);
    assert_int_equal(l->item[8].got.n_reused, 40); /* the third token was never computed */
    prompt[41 + 3]++;
    l->item[8].rq.rq.n_prompt = 50;
    submit(l, &l->item[8]);
    run_out(l);
    assert_int_equal(l->item[8].got.n_reused, 44);
    lab_close(l);
    free(l);
}

/* Pages for two of three texts: they come in their order, and a short prompt does not wait until a
 * long one is read. */
static void test_order(void **state) {
    (void)state;
    lab *l = calloc(1, sizeof *l);
    lab_of_sharers(l, 3, 1 + 15 + 4);
    item *it = l->item;
    for (int i = 0; i < 8; i++) it[i].prompt[0] = i;
    it[0].rq.rq.max_new = LONGEST;                   /* 15 pages */
    it[1].rq.rq.n_prompt = it[3].rq.rq.n_prompt = 6; /* 2 pages */
    for (int i = 0; i < 4; i++) submit(l, &it[i]);
    engine_step(l->en);
    engine_load load = engine_get_load(l->en);
    assert_true(load.running == 2 && load.waiting == 2); /* nobody overtakes item 2 */
    assert_int_equal(load.pages_used + load.pages_promised, 17);
    assert_true(it[0].got.n == 0 && it[1].got.n == 1);
    engine_step(l->en);
    assert_true(it[0].got.n == 0 && it[1].got.n == 2); /* while the long one is read */
    engine_step(l->en);
    assert_int_equal(it[1].got.ended, 1);
    engine_step(l->en);
    assert_true(it[0].got.n > 0 && it[2].got.n == 0);
    while (!it[2].got.ended) assert_true(engine_step(l->en));
    assert_true(it[0].got.ended && it[0].got.finish == FINISH_CONTEXT);
    run_out(l);
    for (int i = 0; i < 4; i++) assert_true(it[i].got.ended == 1 && it[i].got.st == ST_OK);
    /* the place of one that is cancelled is free at once, also in the queue */
    for (int i = 0; i < 8; i++) submit(l, &it[i]);
    engine_step(l->en);
    engine_cancel(l->en, it[0].id);
    engine_cancel(l->en, it[5].id);
    engine_cancel(l->en, it[7].id);
    load = engine_get_load(l->en);
    assert_true(load.running == 1 && load.waiting == 4);
    engine_step(l->en);
    assert_int_equal(engine_get_load(l->en).running, 3);
    run_out(l);
    for (int i = 0; i < 8; i++) assert_int_equal(it[i].got.ended, 1);
    lab_close(l);
    free(l);
}

static void expect_refused(lab *l, item *it, const char *why) {
    err e = {0};
    uint64_t id = 0;
    assert_int_equal(engine_submit(l->en, &it->rq, &id, &e), ST_USAGE);
    if (!strstr(e.message, why)) fail_msg("'%s', not '%s'", e.message, why);
    assert_int_equal(engine_get_load(l->en).waiting, 0);
}

/* What is refused; the longest text that there is; the prompt alone. */
static void test_limits(void **state) {
    (void)state;
    lab *l = calloc(1, sizeof *l);
    lab_of_sharers(l, 2, 1 + LONGEST / PAGE);
    item *it = l->item;
    it->rq.rq.n_prompt = 0;
    expect_refused(l, it, "empty");
    it->rq.rq.n_prompt = LONGEST;
    expect_refused(l, it, "the context holds 60");
    it->rq.rq.n_prompt = 4;
    it->prompt[3] = 97;
    expect_refused(l, it, "token id 97");
    it->prompt[3] = 1;
    it->rq.rq.n_prompt = LONGEST - 1;
    it->rq.rq.max_new = INT64_MAX;
    submit(l, it);
    run_out(l);
    assert_true(it->got.n_new == 2 && it->got.finish == FINISH_CONTEXT);
    it->rq.rq.max_new = 0;
    it->rq.prompt_logprobs = true;
    submit(l, it);
    run_out(l);
    assert_true(it->got.n == 0 && it->got.n_prompt == LONGEST - 2 && it->got.st == ST_OK);
    assert_int_equal(it->got.finish, FINISH_LENGTH);
    engine_cancel(l->en, it->id); /* has ended */
    engine_cancel(l->en, 0);
    assert_false(engine_step(l->en));
    submit(l, it); /* left running */
    submit(l, &l->item[1]);
    engine_step(l->en);
    lab_close(l);
    free(l);
}

/* A model that gives no probabilities: an error of the request, not of the engine. */
static void test_damaged(void **state) {
    (void)state;
    lab *l = calloc(1, sizeof *l);
    lab_of_sharers(l, 2, 100);
    float *masters = param_master(l->m.plan->store), whole, damage = NAN;
    l->item[1].rq.prompt_logprobs = true;
    l->item[2].prompt[0]++;
    dev_read(l->m.dev, &whole, masters, sizeof whole);
    dev_write(l->m.dev, masters, &damage, sizeof damage);
    submit(l, &l->item[0]);
    submit(l, &l->item[1]);
    run_out(l);
    for (int i = 0; i < 2; i++) assert_int_equal(l->item[i].got.st, ST_NONFINITE);
    assert_int_equal(l->item[1].got.n_prompt, 0);
    dev_write(l->m.dev, masters, &whole, sizeof whole);
    submit(l, &l->item[2]);
    run_out(l);
    assert_int_equal(l->item[2].got.st, ST_OK);
    lab_close(l);
    free(l);
}

/* ---- drafts ---- */

/* Long answers, one text at a time. */
static engine_load write_long(lab *l, const answer *alone) {
    for (int i = 0; i < ITEMS; i += 4) {
        submit(l, &l->item[i]);
        while (engine_step(l->en)) {
        }
        if (alone) expect_same("with drafts", i, &l->item[i].got, &alone[i]);
    }
    run_out(l);
    return engine_get_load(l->en);
}

static void lab_of_long(lab *l, const char *path) {
    lab_open(l, path, 1);
    for (int i = 0; i < ITEMS; i++) {
        generate_request *rq = &l->item[i].rq.rq;
        rq->n_prompt = 1 + i % 6;
        rq->max_new = l->longest;
        rq->n_end = 0;
    }
    engine_size size = roomy(l);
    size.draft = 8;
    lab_plan(l, size, l->longest);
}

/* The text is the same whoever drafts: the text itself, the model itself, a model that knows nothing of it. */
static void test_drafts(void **state) {
    (void)state;
    static const char path[] = TEST_DIR "/golden/models/llama-gqa-tied";
    lab *l = calloc(1, sizeof *l), *twin = calloc(1, sizeof *twin),
        *other = calloc(1, sizeof *other);
    answer *alone = calloc(ITEMS, sizeof *alone);
    lab_of_long(l, path);
    lab_of_long(twin, path); /* a generator and an engine of one model share its cache */
    lab_of_long(other, TEST_DIR "/golden/models/llama-bias-untied");
    generator same = open_model_generator(&twin->m), wrong = open_model_generator(&other->m);
    engine_size size = l->m.serve;
    generate_limits limits = {.Tmax = size.longest,
                              .vocab = (int32_t)l->m.config.vocab_size,
                              .n_ids = (int32_t)l->m.config.vocab_size};
    engine_load by[4];
    for (int k = 0; k < 4; k++) {
        size.draft = k ? 8 : 0;
        size.from_text = true;
        engine_free(l->en);
        l->en = engine_new(l->m.dev, &size, &limits);
        for (int body = 0; body < 2; body++)
            for (int i = 0; engine_rows_at(&size, i, body); i++)
                engine_set_program(l->en, i, body,
                                   plan_prog(l->m.plan, body ? USE_BODY : USE_HEAD, i));
        if (k == 2) engine_set_draft_model(l->en, &same);
        if (k == 3) engine_set_draft_model(l->en, &wrong);
        by[k] = write_long(l, k ? alone : NULL);
        for (int i = 0; i < ITEMS && k == 0; i++) alone[i] = l->item[i].got;
    }
    assert_true(by[0].drafted == 0 && by[0].passes == by[0].new_tokens);
    assert_true(by[1].accepted > 0 && by[1].accepted <= by[1].drafted);
    assert_int_equal(by[1].passes, by[1].new_tokens - by[1].accepted);
    assert_true(by[2].accepted > by[1].accepted);
    generator_free(&same);
    generator_free(&wrong);
    lab_close(l);
    lab_close(twin);
    lab_close(other);
    free(alone);
    free(twin);
    free(other);
    free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowds),  cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_order),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_drafts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
