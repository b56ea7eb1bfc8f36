/* Golden models: logits, loss, every gradient and a 10-step curve against PyTorch in double
 * precision; recompute policies against each other, bit for bit. */
#include "golden.h"

static const double LOGITS = 1e-5, GRADS = 1e-4, CURVE = 1e-4, CURVE_BF16 = 2e-2;

/* A program of its own for all logits of B sequences. */
typedef struct logits_prog {
    prog *p;
    void *base[SPACE_COUNT];
} logits_prog;

static logits_prog logits_record(golden *g, int B, int T, bool document_mask) {
    logits_prog l = {0};
    graph_options opt = {.dev = g->dev, .dt = DT_F32};
    model_rec r = {.g = graph_new(g->a, &opt),
                   .mc = &g->mc,
                   .params = g->p->store,
                   .task = TASK_LOGITS,
                   .B = B,
                   .T = T,
                   .n_logits = (int64_t)B * T,
                   .document_mask = document_mask};
    model_record(&r);
    MUST(prog_finish(&l.p, r.g, E));
    const prog_stats *s = prog_get_stats(l.p);
    l.base[SPACE_FRAME] = aligned_alloc(64, ((size_t)s->frame_bytes + 63) / 64 * 64);
    l.base[SPACE_PINNED] = aligned_alloc(64, ((size_t)s->pinned_bytes + 63) / 64 * 64);
    l.base[SPACE_MASTER] = param_master(g->p->store);
    memset(l.base[SPACE_FRAME], 0xff, (size_t)s->frame_bytes);
    prog_bind(l.p, l.base);
    for (int i = 0; i < B * T; i++) golden_ints(l.p, "rows")[i] = i;
    return l;
}

static double logits_distance(const golden *g, const logits_prog *l, const st_view *want) {
    op_run run = {.dev = g->dev};
    prog_replay(l->p, PROG_F, &run);
    return golden_distance(prog_tensor(l->p, "logits")->data,
                           (const float *)(const void *)want->data, want->numel);
}

static void logits_free(logits_prog *l) {
    free(l->base[SPACE_FRAME]);
    free(l->base[SPACE_PINNED]);
}

static void test_logits(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        golden g;
        golden_open(&g, golden_names[m], (plan_spec){.compute = DT_F32});
        logits_prog l = logits_record(&g, g.B, g.T, false);
        golden_feed(l.p, (const int32_t *)(const void *)g.ids->data, g.B, g.T);
        double d = logits_distance(&g, &l, g.logits);
        print_message("%s: logits %.2e\n", golden_names[m], d);
        assert_true(d < LOGITS);
        logits_free(&l);
        golden_close(&g);
    }
}

/* Several documents in one row, attention and positions inside each. */
static void test_packed_documents(void **state) {
    (void)state;
    static const char *const names[] = {"llama-gqa-tied", "llama-rope3-mqa"};
    for (int m = 0; m < ARRAY_LEN(names); m++) {
        golden g;
        golden_open(&g, names[m], (plan_spec){.compute = DT_F32});
        char path[640];
        snprintf(path, sizeof path, "%s/packed.safetensors", g.dir);
        st_reader *packed;
        MUST(st_open(&packed, path, E));
        const st_view *ids = st_find(packed, "ids"), *start = st_find(packed, "start");
        int T = (int)ids->dims[1] - 1;
        logits_prog l = logits_record(&g, 1, T, true);
        golden_feed(l.p, (const int32_t *)(const void *)ids->data, 1, T);
        for (int t = 0; t < T; t++) {
            int32_t first = ((const int32_t *)(const void *)start->data)[t];
            golden_ints(l.p, "start")[t] = first;
            golden_ints(l.p, "pos")[t] = t - first;
        }
        double d = logits_distance(&g, &l, st_find(packed, "logits"));
        print_message("%s: packed documents %.2e\n", names[m], d);
        assert_true(d < LOGITS);
        logits_free(&l);
        st_close(packed);
        golden_close(&g);
    }
}

static void check_gradients(const golden *g) {
    const param_store *s = g->p->store;
    double worst = 0;
    arena *a = arena_new("grads");
    st_tensor *t = hf_tensors(a, s, param_grad(s), "grad.", DT_F32, true);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        const st_view *v = st_find(g->file, t[i].name);
        assert_non_null(v);
        float *mine = malloc(sizeof(float) * (size_t)param_elems(p));
        if (t[i].data)
            memcpy(mine, t[i].data, sizeof(float) * (size_t)param_elems(p));
        else
            MUST(t[i].fill(t[i].ctx, 0, param_elems(p), mine, E));
        double d = golden_distance(mine, (const float *)(const void *)v->data, v->numel);
        if (d > worst) worst = d;
        if (!(d < GRADS)) fail_msg("gradient of %s: %.2e", p->name, d);
        free(mine);
    }
    arena_free(a);
    print_message("   gradients %.2e\n", worst);
}

static void test_loss_and_gradients(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        golden g;
        golden_open(&g, golden_names[m], (plan_spec){.compute = DT_F32});
        memset(param_grad(g.p->store), 0xff, (size_t)param_store_sizes(g.p->store).grad_bytes);
        double loss = golden_step(&g, (const int32_t *)(const void *)g.ids->data, 1);
        float want = *(const float *)(const void *)g.loss->data;
        print_message("%s: loss %.7f, golden %.7f\n", golden_names[m], loss, want);
        assert_true(fabs(loss - want) < GRADS * want);
        check_gradients(&g);
        golden_close(&g);
    }
}

/* Largest relative distance of a 10-step loss curve from the golden one. */
static double curve_distance(const char *name, dtype compute) {
    golden g;
    golden_open(&g, name, (plan_spec){.compute = compute});
    json_t *curve = golden_json(&g, "curve.json");
    const char *no_decay[] = {"*.bias", "*norm*", "*ln_*"};
    bool decay[256];
    optim_decay_mask(g.p->store, no_decay, 3, decay);
    double worst = 0;
    int n = (int)json_array_size(json_object_get(curve, "ids"));
    assert_int_equal(n, 10);
    for (int k = 0; k < n; k++) {
        int32_t ids[4096];
        json_t *batch = json_array_get(json_object_get(curve, "ids"), (size_t)k);
        for (int b = 0; b < g.B; b++)
            for (int t = 0; t <= g.T; t++)
                ids[b * (g.T + 1) + t] = (int32_t)json_integer_value(
                    json_array_get(json_array_get(batch, (size_t)b), (size_t)t));
        double loss = golden_step(&g, ids, (uint64_t)k + 1);
        double want = json_number_value(json_array_get(json_object_get(curve, "loss"), (size_t)k));
        double d = fabs(loss - want) / want;
        if (!(d <= worst)) worst = d;
        double norm = optim_grad_norm(g.dev, g.p->store);
        optim_hyper h = {.lr = json_number_value(json_object_get(curve, "lr")),
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .weight_decay = 0.1,
                         .step = k + 1,
                         .grad_scale = (float)optim_clip_factor(norm, 1.0)};
        optim_find("adamw")->update(g.dev, g.p->store, decay, g.p->optim_state, &h, NULL);
    }
    json_decref(curve);
    golden_close(&g);
    return worst;
}

static void test_curve(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++) {
        double f32 = curve_distance(golden_names[m], DT_F32);
        double bf16 = curve_distance(golden_names[m], DT_BF16);
        print_message("%s: curve fp32 %.2e, bf16 %.2e\n", golden_names[m], f32, bf16);
        assert_true(f32 < CURVE);
        assert_true(bf16 < CURVE_BF16);
    }
}

/* The gradients of one step, without the gaps between them. Dropout on, so that recomputed masks
 * count too. */
static float *gradients_under(const char *name, plan_spec spec, int64_t *bytes, prog_stats *stats) {
    golden g;
    golden_open(&g, name, spec);
    golden_step(&g, (const int32_t *)(const void *)g.ids->data, 7);
    const param_store *store = g.p->store;
    *bytes = param_store_sizes(store).elems * 4;
    *stats = *prog_get_stats(g.p->prog[PLAN_TRAIN]);
    float *copy = malloc((size_t)*bytes), *to = copy;
    for (int i = 0; i < param_count(store); i++) {
        const param *p = param_at(store, i);
        memcpy(to, param_grad(store) + p->offset, (size_t)param_elems(p) * 4);
        to += param_elems(p);
    }
    golden_close(&g);
    return copy;
}

/* Whatever is kept or recomputed, and wherever gradients lie. */
static void test_memory_policies_are_bitwise(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(golden_names); m++)
        for (int k = 0; k < 2; k++) {
            dtype compute = k ? DT_BF16 : DT_F32;
            int64_t bytes;
            prog_stats none, s;
            plan_spec spec = {.compute = compute, .accumulates = true};
            float *want = gradients_under(golden_names[m], spec, &bytes, &none);
            for (int i = 0; i < 6; i++) {
                spec.recompute = (recompute_policy)(i / 2), spec.accumulates = i % 2;
                float *got = gradients_under(golden_names[m], spec, &bytes, &s);
                assert_memory_equal(got, want, (size_t)bytes);
                assert_true(spec.recompute == RECOMPUTE_NONE || s.ops_recomputed > 0);
                assert_true(spec.recompute == RECOMPUTE_NONE || s.saved_bytes < none.saved_bytes);
                free(got);
            }
            free(want);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits), cmocka_unit_test(test_packed_documents),
        cmocka_unit_test(test_loss_and_gradients), cmocka_unit_test(test_curve),
        cmocka_unit_test(test_memory_policies_are_bitwise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
