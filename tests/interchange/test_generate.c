/* Prefill and decode through the cache against one full forward, for every golden model, at every
 * length, with prompts longer than a prefill piece, padded pieces and a full cache. */
#include "plan/golden.h"

#include "base/rng.h"
#include "interchange/open_model.h"

enum { LONGEST = 24, PREFILL_T = 5, SEED_OF_IDS = 7 };
static const double F32_LIMIT = 1e-5, BF16_LIMIT = 6e-2, F16_CACHE_LIMIT = 6e-2 / 8;

typedef struct lab {
    golden g;
    int32_t ids[LONGEST];
    float *full; /* [LONGEST,V] */
    int64_t V;
    double seen[LONGEST * 8]; /* distances */
    int n_seen;
} lab;

static void lab_build(lab *l, plan_spec spec) {
    spec.logits_T = LONGEST;
    golden_build(&l->g, spec);
    param_refresh_work(l->g.p->store);
    l->V = l->g.mc.vocab_size;
    l->n_seen = 0;
    const prog *p = plan_prog(l->g.p, USE_LOGITS, 0);
    for (int i = 0; i < LONGEST; i++) {
        l->ids[i] = (int32_t)((i * 31 + SEED_OF_IDS) % l->V);
        golden_ints(p, "ids")[i] = l->ids[i];
        golden_ints(p, "pos")[i] = golden_ints(p, "rows")[i] = i;
    }
    prog_replay(p, PROG_F, &(op_run){.dev = l->g.dev});
    int64_t n = LONGEST * l->V;
    tensor t = prog_named(p, "logits");
    l->full = malloc(sizeof(float) * (size_t)n);
    dtype_convert(l->full, DT_F32, t.data, t.dt, n);
}

static void lab_open_with(lab *l, const char *name, dtype compute, int cache_tok, int prefill_T,
                          bool f16) {
    golden_read(&l->g, name);
    lab_build(l, (plan_spec){.compute = compute,
                             .cache_tok = cache_tok,
                             .cache_f16 = f16,
                             .prefill_T = prefill_T});
}

static void lab_open(lab *l, const char *name, dtype compute, int cache_tok, int prefill_T) {
    lab_open_with(l, name, compute, cache_tok, prefill_T, false);
}

static void lab_close(lab *l) {
    free(l->full);
    golden_close(&l->g);
}

static double distance_at(const lab *l, const float *logits, int n) {
    return golden_distance(logits, l->full + (n - 1) * l->V, l->V);
}

/* Goes on by the given pieces and compares after each. */
static double feed_in_pieces(lab *l, const int *piece, int n_pieces) {
    generator g = plan_generator(l->g.p, NULL);
    double worst = 0;
    int n = 0;
    for (int i = 0; i < n_pieces && n < LONGEST; i++) {
        int64_t reused;
        int before = n;
        n += piece[i] < LONGEST - n ? piece[i] : LONGEST - n;
        const float *logits = generator_continue(&g, l->ids, n, NULL, &reused);
        assert_int_equal(reused, before);
        assert_int_equal(g.cached.n, n);
        assert_true(distance_at(l, logits, n > 1 ? n - 1 : n + 1) > 1e-3); /* rows do differ */
        double d = distance_at(l, logits, n);
        if (!(d <= worst)) worst = d;
        assert_true(l->n_seen < ARRAY_LEN(l->seen));
        l->seen[l->n_seen++] = d;
    }
    generator_free(&g);
    return worst;
}

/* Rows that pad a piece have zeros where linear attention norms its heads: they may not become NaN. */
static void test_norm_without_eps(void **state) {
    (void)state;
    lab l;
    golden_read(&l.g, "qwen3-next");
    l.g.mc.norm_eps = 0;
    lab_build(&l, (plan_spec){.compute = DT_F32, .cache_tok = LONGEST, .prefill_T = PREFILL_T});
    const int pieces[] = {3, 7, 1, 6};
    assert_true(feed_in_pieces(&l, pieces, ARRAY_LEN(pieces)) < F32_LIMIT);
    lab_close(&l);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all that were compared. A token's rounded activations can pick other experts, but not most do. */
static double most_often(lab *l) {
    qsort(l->seen, (size_t)l->n_seen, sizeof *l->seen, by_size);
    return l->seen[l->n_seen / 2];
}

static double worst_over_lengths(const char *name, dtype compute, int cache_tok, int prefill_T) {
    lab l;
    lab_open(&l, name, compute, cache_tok, prefill_T);
    double worst = 0;
    int ones[LONGEST];
    for (int i = 0; i < LONGEST; i++) ones[i] = 1;
    for (int prompt = 1; prompt <= LONGEST; prompt++) { /* the prompt at once, then one by one */
        ones[0] = prompt;
        double d = feed_in_pieces(&l, ones, prompt == 1 ? LONGEST : 4);
        if (!(d <= worst)) worst = d;
    }
    const int mixed[] = {2, 7, 1, 6, 3, 5};
    double d = feed_in_pieces(&l, mixed, ARRAY_LEN(mixed));
    if (!(d <= worst)) worst = d;
    if (compute != DT_F32 && l.g.mc.num_experts) worst = most_often(&l);
    lab_close(&l);
    return worst;
}

static void test_equals_one_forward(void **state) {
    (void)state;
    static const struct {
        int cache_tok, prefill_T;
    } shapes[] = {{LONGEST, PREFILL_T}, /* no room for the padding of the last piece */
                  {LONGEST, LONGEST},   /* one padded piece */
                  {LONGEST, 1},
                  {LONGEST, 8}};
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        double worst = 0;
        for (int i = 0; i < ARRAY_LEN(shapes); i++) {
            double d = worst_over_lengths(golden_names[m], DT_F32, shapes[i].cache_tok,
                                          shapes[i].prefill_T);
            if (!(d <= worst)) worst = d;
        }
        double bf16 = worst_over_lengths(golden_names[m], DT_BF16, LONGEST, PREFILL_T);
        print_message("%s: prefill and decode fp32 %.1e, bf16 %.1e\n", golden_names[m], worst,
                      bf16);
        assert_true(worst < F32_LIMIT);
        assert_true(bf16 < BF16_LIMIT);
    }
}

/* Keys and values as f16: half the memory (states stay as they are), and what their rounding makes of the logits. */
static void test_cache_of_f16(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        lab l;
        const int pieces[] = {7, 1, 1, 6, 1, 5, 1, 1, 1};
        lab_open(&l, golden_names[m], DT_F32, LONGEST, PREFILL_T);
        int64_t wide = l.g.p->region[REGION_CACHE].bytes;
        assert_int_equal(wide, model_cache_bytes(&l.g.mc, 1, 1, LONGEST, DT_F32, DT_F32));
        lab_close(&l);
        lab_open_with(&l, golden_names[m], DT_F32, LONGEST, PREFILL_T, true);
        int64_t states = model_cache_bytes(&l.g.p->spec.model, 1, 1, 0, DT_F32, DT_F32);
        int64_t narrow = l.g.p->region[REGION_CACHE].bytes;
        assert_int_equal(2 * (narrow - states), wide - states);
        double d = feed_in_pieces(&l, pieces, ARRAY_LEN(pieces));
        print_message("%s: with a cache of f16 %.1e\n", golden_names[m], d);
        assert_true(d > 1e-6 && d < F16_CACHE_LIMIT);
        lab_close(&l);
    }
}

/* Sequences one after the other, each beginning as the one before up to some place: what the cache
 * holds is used, what else an earlier sequence left there is not seen. */
static void test_common_prefix(void **state) {
    (void)state;
    lab l;
    lab_open(&l, "llama-gqa-tied", DT_F32, LONGEST, LONGEST);
    generator g = plan_generator(l.g.p, NULL), fresh = plan_generator(l.g.p, NULL);
    float *reused_logits = malloc(sizeof(float) * (size_t)l.V);
    int32_t ids[LONGEST] = {0}, old[LONGEST];
    int old_n = 0;
    double worst = 0;
    for (uint64_t trial = 0; trial < 60; trial++) {
        rng_key key = rng_key_numbered(3, trial);
        int n = 1 + (int)(rng_u32(key, 0) % LONGEST), keep = (int)(rng_u32(key, 1) % LONGEST);
        memcpy(old, ids, sizeof old);
        for (int i = keep; i < LONGEST; i++)
            ids[i] = (int32_t)(rng_u32(key, 2 + (uint64_t)i) % (uint64_t)l.V);
        int same = 0;
        while (same < n - 1 && same < old_n && ids[same] == old[same]) same++;
        int64_t reused;
        float *logits = generator_continue(&g, ids, n, NULL, &reused);
        assert_int_equal(reused, same);
        memcpy(reused_logits, logits, sizeof(float) * (size_t)l.V);
        old_n = (int)g.cached.n;
        /* the same cache memory, all of it computed again */
        generator_reset(&fresh);
        double d =
            golden_distance(reused_logits, generator_continue(&fresh, ids, n, NULL, &reused), l.V);
        assert_int_equal(reused, 0);
        if (!(d <= worst)) worst = d;
    }
    print_message("with a common prefix %.1e\n", worst);
    assert_true(worst < F32_LIMIT);
    free(reused_logits);
    generator_free(&g);
    generator_free(&fresh);
    lab_close(&l);
}

/* The lengths of the prefill programs, and how often each runs: short pieces are not padded to long
 * ones. */
static void test_passes(void **state) {
    (void)state;
    int T[GENERATOR_PREFILLS];
    generator_prefill_lengths(256, T);
    assert_true(T[0] == 256 && T[1] == 64 && T[2] == 16);
    generator_prefill_lengths(40, T);
    assert_true(T[0] == 40 && T[1] == 10 && T[2] == 0);
    generator_prefill_lengths(1, T);
    assert_true(T[0] == 0 && T[1] == 0);
    static const struct {
        int64_t n, room, rows; /* computed for n tokens, padding included */
    } cases[] = {{256, 1000, 256}, {512, 1000, 512}, {250, 1000, 256}, {3, 1000, 3},
                 {5, 1000, 16},    {16, 1000, 16},   {20, 1000, 32},   {17, 1000, 17},
                 {63, 1000, 64},   {300, 1000, 304}, {60, 62, 60},     {5, 5, 5}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        generator_prefill_lengths(256, T);
        int64_t rows = 0, left = cases[i].n, room = cases[i].room;
        while (left > 0) {
            int64_t pass = generator_next_rows(T, left, room);
            assert_true(pass >= 1 && pass <= room);
            rows += pass;
            room -= pass < left ? pass : left;
            left -= pass < left ? pass : left;
        }
        if (rows != cases[i].rows)
            fail_msg("%ld rows for %ld tokens, not %ld", (long)rows, (long)cases[i].n,
                     (long)cases[i].rows);
    }
}

/* What `generate --logits` writes: the folder opened for inference, one forward pass. */
static void test_logits_of_a_folder(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        golden g;
        open_model o;
        golden_open(&g, golden_names[m], (plan_spec){.compute = DT_F32});
        MUST(open_model_read(&o, g.dir, 0, E));
        MUST(open_model_load(&o, 0, g.T, E));
        const int32_t *ids = (const int32_t *)(const void *)g.ids->data;
        const float *want = (const float *)(const void *)g.logits->data;
        double d = golden_distance(open_model_logits(&o, ids, g.T), want,
                                   (int64_t)g.T * o.config.vocab_size);
        print_message("%s: logits %.1e\n", golden_names[m], d);
        assert_true(d < F32_LIMIT);
        open_model_close(&o);
        golden_close(&g);
    }
}

static status run(const lab *l, const generate_request *rq, tok_ids *out, generate_finish *f,
                  err *e) {
    generator g = plan_generator(l->g.p, NULL);
    strbuf text = {0};
    generate_result result;
    out->n = 0;
    status st = generate_run(&g, rq, out, &text, &result, e);
    *f = result.finish;
    if (st == ST_OK) assert_int_equal(result.n_new, out->n);
    strbuf_free(&text);
    generator_free(&g);
    return st;
}

static void test_requests(void **state) {
    (void)state;
    lab l;
    lab_open(&l, "llama-gqa-tied", DT_F32, 16, PREFILL_T);
    tok_ids out = {0};
    generate_finish f;
    err e = {0};
    generate_request rq = {.prompt = l.ids,
                           .n_prompt = 6,
                           .max_new = 4,
                           .sample = {.top_p = 1, .repetition_penalty = 1}};
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(out.n == 4 && f == FINISH_LENGTH);
    int32_t second = out.id[1], ends[] = {(int32_t)l.V - 1, second, 3};
    bool first_too = out.id[0] == second;
    rq.end = ends;
    rq.n_end = 3;
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(f == FINISH_END && out.n == (first_too ? 0 : 1));
    rq.n_end = 0;
    rq.max_new = 1000; /* the context of 16 ends it */
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(f == FINISH_CONTEXT && out.n == 16 - 6 + 1);
    volatile sig_atomic_t now = 1;
    rq.interrupt = &now; /* before the first pass */
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(f == FINISH_INTERRUPT && out.n == 0);
    rq.n_prompt = 0;
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_USAGE);
    rq.n_prompt = 16;
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "16"));
    tok_ids_free(&out);
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_one_forward), cmocka_unit_test(test_cache_of_f16),
        cmocka_unit_test(test_common_prefix),      cmocka_unit_test(test_passes),
        cmocka_unit_test(test_logits_of_a_folder), cmocka_unit_test(test_requests),
        cmocka_unit_test(test_norm_without_eps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
