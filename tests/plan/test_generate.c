/* Prefill and decode through the cache against one full forward, for every golden model, at every
 * length, with prompts longer than a prefill piece, padded pieces and a full cache. */
#include "golden.h"
#include "plan/open_model.h"

enum { LONGEST = 24, PREFILL_T = 5, SEED_OF_IDS = 7 };
static const double F32_LIMIT = 1e-5, BF16_LIMIT = 3e-2;

typedef struct lab {
    golden g;
    int32_t ids[LONGEST];
    float *full; /* [LONGEST,V] */
    int64_t V;
} lab;

static void lab_open(lab *l, const char *name, dtype compute, int cache_tok, int prefill_T) {
    golden_open(&l->g, name,
                (plan_spec){.compute = compute,
                            .cache_tok = cache_tok,
                            .prefill_T = prefill_T,
                            .logits_T = LONGEST});
    param_refresh_work(l->g.p->store);
    l->V = l->g.mc.vocab_size;
    const prog *p = l->g.p->prog[PLAN_LOGITS];
    for (int i = 0; i < LONGEST; i++) {
        l->ids[i] = (int32_t)((i * 31 + SEED_OF_IDS) % l->V);
        golden_ints(p, "ids")[i] = l->ids[i];
        golden_ints(p, "pos")[i] = golden_ints(p, "rows")[i] = i;
    }
    prog_replay(p, PROG_F, &(op_run){.dev = l->g.dev});
    int64_t n = LONGEST * l->V;
    const tensor *t = prog_tensor(p, "logits");
    l->full = malloc(sizeof(float) * (size_t)n);
    dtype_convert(l->full, DT_F32, t->data, t->dt, n);
}

static void lab_close(lab *l) {
    free(l->full);
    golden_close(&l->g);
}

static generator generator_of(const lab *l) {
    const plan *p = l->g.p;
    return (generator){.prefill = p->prog[PLAN_PREFILL],
                       .decode = p->prog[PLAN_DECODE],
                       .dev = p->dev,
                       .prefill_T = p->spec.prefill_T,
                       .Tmax = p->spec.cache_tok,
                       .vocab = (int32_t)l->V,
                       .n_ids = (int32_t)l->V};
}

static double distance_at(const lab *l, const float *logits, int n) {
    return golden_distance(logits, l->full + (n - 1) * l->V, l->V);
}

/* Feeds ids in the given pieces and compares after each. */
static double feed_in_pieces(const lab *l, const int *piece, int n_pieces) {
    generator g = generator_of(l);
    float *logits = malloc(sizeof(float) * (size_t)l->V);
    double worst = 0;
    int n = 0;
    generator_reset(&g);
    for (int i = 0; i < n_pieces && n < LONGEST; i++) {
        int take = piece[i] < LONGEST - n ? piece[i] : LONGEST - n;
        generator_feed(&g, l->ids + n, take, logits);
        n += take;
        assert_int_equal(g.n_cached, n);
        assert_true(distance_at(l, logits, n > 1 ? n - 1 : n + 1) > 1e-3); /* rows do differ */
        double d = distance_at(l, logits, n);
        if (!(d <= worst)) worst = d;
    }
    free(logits);
    return worst;
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

/* What an earlier, longer sequence left in the cache is not seen. */
static void test_reset(void **state) {
    (void)state;
    lab l;
    lab_open(&l, "llama-gqa-tied", DT_F32, LONGEST, PREFILL_T);
    generator g = generator_of(&l);
    float *a = malloc(sizeof(float) * (size_t)l.V), *b = malloc(sizeof(float) * (size_t)l.V);
    generator_feed(&g, l.ids, 3, a);
    generator_reset(&g);
    for (int i = 0; i < LONGEST; i++) generator_feed(&g, &l.ids[LONGEST - 1 - i], 1, b);
    generator_reset(&g);
    generator_feed(&g, l.ids, 3, b);
    assert_memory_equal(a, b, sizeof(float) * (size_t)l.V);
    free(a);
    free(b);
    lab_close(&l);
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
    generator g = generator_of(l);
    strbuf text = {0};
    out->n = 0;
    status st = generate_run(&g, rq, out, &text, f, e);
    strbuf_free(&text);
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
                           .sample = {.top_p = 1, .repetition_penalty = 1},
                           .eos = -1};
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(out.n == 4 && f == FINISH_LENGTH);
    int32_t second = out.id[1];
    bool first_too = out.id[0] == second;
    rq.eos = second;
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(f == FINISH_EOS && out.n == (first_too ? 0 : 1));
    rq.eos = -1;
    rq.max_new = 1000; /* the context of 16 ends it */
    assert_int_equal(run(&l, &rq, &out, &f, &e), ST_OK);
    assert_true(f == FINISH_LENGTH && out.n == 16 - 6 + 1);
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
        cmocka_unit_test(test_equals_one_forward), cmocka_unit_test(test_reset),
        cmocka_unit_test(test_logits_of_a_folder), cmocka_unit_test(test_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
