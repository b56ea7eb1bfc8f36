/* Tensor and sequence parallelism against one rank: losses, every gradient, initial weights. In
 * double, where an error cannot hide in rounding; in fp32 and bf16 within theirs. */
#include "layouts.h"

static const char *const names[] = {"gpt2-tanh-tied",
                                    "gpt2-erf-untied",
                                    "llama-gqa-tied",
                                    "llama-bias-untied",
                                    "llama-rope3-mqa",
                                    "mistral",
                                    "neox-parallel",
                                    "neox-sequential",
                                    "phi",
                                    "phi-qknorm",
                                    "olmo-clip-tied",
                                    "olmo2",
                                    "smollm3",
                                    "qwen1",
                                    "qwen2-tied",
                                    "qwen3-tied",
                                    "gemma2",
                                    "gemma3",
                                    "openelm",
                                    "mobilellm-shared",
                                    "minicpm",
                                    "llama-ahead",
                                    "llama-sinks-chunks",
                                    "mixtral",
                                    "qwen2-moe",
                                    "deepseek-v2-groups",
                                    "deepseek-v3",
                                    "qwen3-next",
                                    "qwen3-next-tied"};

/* Sizes that divide over 4 ranks, a vocabulary that does not, and dropout everywhere. */
static model_config config_for(arena *a, const char *name, int64_t kv_heads) {
    model_config mc = layout_config(a, name);
    bool grouped = mc.num_key_value_heads != mc.num_attention_heads;
    mc.num_attention_heads = 4;
    mc.num_key_value_heads = kv_heads ? kv_heads : grouped ? 2 : 4;
    mc.intermediate_size = 44;
    if (mc.num_experts) mc.moe_intermediate_size = 12, mc.router_aux_loss_coef = 0.02;
    if (mc.shared_expert_gate) mc.shared_expert_intermediate_size = 20;
    if (model_has_states(&mc)) /* in the tied one all ranks have a key head, else four share two */
        mc.linear_num_key_heads = mc.tie_word_embeddings ? 4 : 2,
        mc.linear_num_value_heads = mc.tie_word_embeddings ? 4 : 8;
    mc.vocab_size = 89;
    mc.embd_pdrop = 0.1, mc.resid_pdrop = 0.2, mc.attn_pdrop = 0.15;
    return mc;
}

static double distance_of(const char *name, const model_config *mc, const outcome *want,
                          const layout *l) {
    outcome got = layout_run(mc, l);
    const char *where;
    double d = outcome_distance(&got, want, &where);
    print_message("%s %s tp %d sp %d recompute %d: %.2e (%s)\n", name, dtype_name(l->dt), l->tp,
                  l->sequence_parallel, (int)l->recompute, d, where);
    assert_true(got.digest == want->digest);
    arena_free(got.a);
    return d;
}

/* bf16 is compared with fp32. Mixtral's experts drop picks. */
static void check_layouts(const char *name, const model_config *mc, dtype dt, double most) {
    double factor = strcmp(name, "mixtral") ? 0 : 0.75;
    layout one = {.dt = dt == DT_BF16 ? DT_F32 : dt, .tp = 1, .capacity_factor = factor};
    outcome want = layout_run(mc, &one);
    for (int i = 0; i < 4; i++) {
        layout l = {.dt = dt, .tp = i < 2 ? 2 : 4, .sequence_parallel = i % 2, .chunk_rows = 5};
        l.capacity_factor = factor;
        l.recompute = (recompute_policy)(i % 3);
        assert_true(distance_of(name, mc, &want, &l) < most);
    }
    arena_free(want.a);
}

static void test_families_in_double(void **state) {
    (void)state;
    arena *a = arena_new("families");
    int n = 0;
    for (int m = 0; m < ARRAY_LEN(names); m++) {
        model_config mc = config_for(a, names[m], 0);
        err e = {0};
        if (model_check_ranks(&mc, 4, &e) != ST_OK) continue; /* heads of each layer's own */
        check_layouts(names[m], &mc, DT_F64, 1e-12);
        n++;
    }
    assert_true(n >= ARRAY_LEN(names) - 1);
    arena_free(a);
}

/* How far bf16 is from fp32 on one rank. */
static double rounding_of(const model_config *mc, bool deferred) {
    layout exact = {.dt = DT_F32, .tp = 1, .deferred = deferred}, narrow = exact;
    narrow.dt = DT_BF16;
    outcome a = layout_run(mc, &exact), b = layout_run(mc, &narrow);
    const char *where;
    double d = outcome_distance(&b, &a, &where);
    print_message("rounding %.2e (%s)\n", d, where);
    arena_free(a.a);
    arena_free(b.a);
    return d;
}

static void compare_async(const char *name, const model_config *mc, dtype dt, double most) {
    for (int i = 0; i < 4; i++) {
        layout l = {.dt = dt, .tp = i < 2 ? 2 : 4, .sequence_parallel = i % 2};
        l.recompute = (recompute_policy)(i % 3);
        outcome want = layout_run(mc, &l);
        l.async = true;
        assert_true(distance_of(name, mc, &want, &l) <= most);
        arena_free(want.a);
    }
}

/* Products beside the transfer of their rows have the bits of the plain form: rows are multiplied and summed alike, and gradients of
 * weights are one product. In narrow types a few rows, as pieces have here, are multiplied by other kernels. */
static void test_async_products(void **state) {
    (void)state;
    arena *a = arena_new("async");
    for (int m = 0; m < ARRAY_LEN(names); m++) {
        model_config mc = config_for(a, names[m], 0);
        err e = {0};
        if (model_check_ranks(&mc, 4, &e) != ST_OK) continue;
        bool adds = strcmp(names[m], "olmo2") == 0; /* products read the residual stream itself */
        compare_async(names[m], &mc, DT_F64, adds ? 1e-14 : 0);
        if (m % 4) continue;
        compare_async(names[m], &mc, DT_F32, 1e-5);
        compare_async(names[m], &mc, DT_BF16, rounding_of(&mc, false));
    }
    arena_free(a);
}

static void test_async_is_used(void **state) {
    (void)state;
    arena *a = arena_new("used");
    model_config mc = config_for(a, "llama-gqa-tied", 0);
    for (int sp = 0; sp < 2; sp++) {
        layout l = {.dt = DT_F64, .tp = 2, .sequence_parallel = sp, .async = true};
        outcome o = layout_run(&mc, &l);
        assert_int_equal(o.async_products, 4 * mc.num_hidden_layers);
        arena_free(o.a);
    }
    arena_free(a);
}

/* Fewer key heads than ranks: two and four ranks have the same one. */
static void test_shared_key_heads(void **state) {
    (void)state;
    arena *a = arena_new("heads");
    static const char *const grouped[] = {"llama-gqa-tied", "qwen2-tied", "qwen3-tied", "gemma2",
                                          "olmo2"};
    for (int m = 0; m < ARRAY_LEN(grouped); m++) {
        model_config mc = config_for(a, grouped[m], 1);
        check_layouts(grouped[m], &mc, DT_F64, 1e-12);
    }
    arena_free(a);
}

/* One norm over all heads: what an ablation may ask of families that have none. */
static void test_norms_of_all_heads(void **state) {
    (void)state;
    arena *a = arena_new("norms");
    static const char *const layered[] = {"gpt2-tanh-tied", "olmo-clip-tied", "phi", "gemma2"};
    for (int m = 0; m < ARRAY_LEN(layered); m++)
        for (int kv = 1; kv <= 4; kv *= 4) {
            bool gpt2 = m == 0; /* with as many key heads as heads, and without rotation: the loss
                                   does not depend on a bias of its keys */
            model_config mc = config_for(a, layered[m], gpt2 ? 4 : kv);
            if (gpt2) mc.norm_weights = NORM_WEIGHTS_W;
            mc.qk_norm = QK_NORM_FULL;
            check_layouts(layered[m], &mc, DT_F64, 1e-12);
        }
    arena_free(a);
}

static void test_narrow_types(void **state) {
    (void)state;
    arena *a = arena_new("narrow");
    static const char *const some[] = {"llama-gqa-tied", "gpt2-tanh-tied", "qwen3-tied",
                                       "gemma2",         "olmo2",          "phi"};
    for (int m = 0; m < ARRAY_LEN(some); m++) {
        model_config mc = config_for(a, some[m], 0);
        if (m == 5) mc.qk_norm = QK_NORM_FULL; /* a LayerNorm */
        check_layouts(some[m], &mc, DT_F32, 1e-5);
        check_layouts(some[m], &mc, DT_BF16, 2 * rounding_of(&mc, false));
    }
    arena_free(a);
}

static void test_eight_ranks(void **state) {
    (void)state;
    arena *a = arena_new("eight");
    model_config mc = config_for(a, "llama-gqa-tied", 2);
    mc.num_attention_heads = 8, mc.intermediate_size = 48;
    layout one = {.dt = DT_F64, .tp = 1}, eight = {.dt = DT_F64, .tp = 8};
    outcome want = layout_run(&mc, &one);
    for (int sp = 0; sp < 2; sp++) {
        eight.sequence_parallel = sp;
        assert_true(distance_of("llama", &mc, &want, &eight) < 1e-12);
    }
    arena_free(want.a);
    arena_free(a);
}

/* Validation: the same losses without gradients. */
static void test_validation(void **state) {
    (void)state;
    arena *a = arena_new("valid");
    model_config mc = config_for(a, "gemma2", 0);
    layout one = {.dt = DT_F64, .tp = 1, .valid = true}, four = one;
    four.tp = 4, four.sequence_parallel = true;
    outcome want = layout_run(&mc, &one);
    assert_true(distance_of("gemma2 validation", &mc, &want, &four) < 1e-13);
    arena_free(want.a);
    arena_free(a);
}

/* A loss that is computed outside, from what the head says: tied and untied, with a bias, with a
 * cap, in narrow types, and where layers are recomputed. */
static void test_deferred_loss(void **state) {
    (void)state;
    arena *a = arena_new("deferred");
    static const char *const some[] = {"llama-gqa-tied", "gpt2-erf-untied", "phi", "gemma2"};
    static const dtype types[] = {DT_F64, DT_F32, DT_BF16};
    for (int k = 0; k < 3 * ARRAY_LEN(some); k++) {
        model_config mc = config_for(a, some[k / 3], 0);
        double most = k % 3 == 0 ? 1e-12 : k % 3 == 1 ? 1e-5 : 2 * rounding_of(&mc, true);
        layout one = {.dt = types[k % 3], .tp = 1, .deferred = true};
        outcome want = layout_run(&mc, &one);
        for (int i = 0; i < 4; i++) {
            layout l = one;
            l.tp = i < 2 ? 2 : 4, l.sequence_parallel = i % 2, l.chunk_rows = i == 3 ? 0 : 5;
            l.recompute = (recompute_policy)(i % 3);
            assert_true(distance_of(some[k / 3], &mc, &want, &l) < most);
        }
        arena_free(want.a);
    }
    arena_free(a);
}

/* What sampling asks for: logits of all tokens, with keys and values kept in a cache. */
static void test_logits(void **state) {
    (void)state;
    arena *a = arena_new("logits");
    static const char *const some[] = {"llama-gqa-tied", "gpt2-erf-untied", "gemma2"};
    for (int m = 0; m < ARRAY_LEN(some); m++) {
        model_config mc = config_for(a, some[m], m == 0 ? 1 : 0);
        layout l = {.dt = DT_F32, .tp = 1, .valid = true, .logits = true};
        outcome want = layout_run(&mc, &l);
        assert_true(want.n_logits == LAYOUT_N * mc.vocab_size);
        for (l.tp = 2; l.tp <= 4; l.tp *= 2) {
            outcome got = layout_run(&mc, &l);
            double d = layout_distance(got.logits, want.logits, want.n_logits);
            print_message("%s logits tp %d: %.2e\n", some[m], l.tp, d);
            assert_true(d < 1e-5);
            arena_free(got.a);
        }
        arena_free(want.a);
    }
    arena_free(a);
}

/* The test sees a forgotten sum: of norms with sequence parallelism, of norms of heads, of shared
 * key heads. */
static void test_forgotten_sums_show(void **state) {
    (void)state;
    arena *a = arena_new("forgotten");
    static const struct {
        const char *name, *tensor;
        bool sp;
    } cases[] = {{"llama-gqa-tied", "norm", true},
                 {"qwen3-tied", "self_attn.k_norm", false},
                 {"llama-gqa-tied", "self_attn.k_proj", false}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        model_config mc = config_for(a, cases[i].name, 1);
        layout one = {.dt = DT_F64, .tp = 1}, two = {.dt = DT_F64, .tp = 2, .forget_sum = true};
        two.sequence_parallel = cases[i].sp;
        outcome want = layout_run(&mc, &one), got = layout_run(&mc, &two);
        int differ = 0, others = 0;
        for (int k = 0; k < want.n; k++) {
            bool off = layout_distance(got.grad[k], want.grad[k], want.elems[k]) > 1e-3;
            differ += off && strstr(want.name[k], cases[i].tensor);
            others += !off;
        }
        assert_true(differ > 0 && others > 0);
        arena_free(want.a);
        arena_free(got.a);
    }
    arena_free(a);
}

/* Selective recompute keeps the results of collectives, full recompute asks for them again. */
static void test_recomputed_collectives(void **state) {
    (void)state;
    arena *a = arena_new("recompute");
    model_config mc = config_for(a, "llama-gqa-tied", 0);
    for (int sp = 0; sp < 2; sp++)
        for (int k = RECOMPUTE_NONE; k <= RECOMPUTE_FULL; k++) {
            layout l = {.dt = DT_F64, .tp = 2, .sequence_parallel = sp};
            l.recompute = (recompute_policy)k;
            outcome o = layout_run(&mc, &l);
            assert_true((o.collectives_again > 0) == (k == RECOMPUTE_FULL || sp));
            arena_free(o.a);
        }
    arena_free(a);
}

/* With collectives kept none runs again, under any policy, and all gradients have the same bits. */
static void test_kept_collectives(void **state) {
    (void)state;
    arena *a = arena_new("kept");
    int again = 0;
    for (int m = 0; m < ARRAY_LEN(names); m++) {
        model_config mc = config_for(a, names[m], 0);
        err e = {0};
        if (model_check_ranks(&mc, 4, &e) != ST_OK) continue;
        for (int i = 0; i < 4; i++) {
            layout l = {.dt = DT_F64, .tp = 2, .sequence_parallel = i % 2};
            l.recompute = i < 2 ? RECOMPUTE_FULL : (recompute_policy)((m + i) % 2);
            outcome want = layout_run(&mc, &l);
            l.keep_collectives = true;
            outcome got = layout_run(&mc, &l);
            const char *where;
            assert_true(outcome_distance(&got, &want, &where) == 0);
            assert_int_equal(got.collectives_again, 0);
            again += want.collectives_again;
            arena_free(want.a);
            arena_free(got.a);
        }
    }
    assert_true(again > 0);
    arena_free(a);
}

static void test_refusals(void **state) {
    (void)state;
    arena *a = arena_new("refusals");
    model_config mc = config_for(a, "llama-gqa-tied", 0);
    err e = {0};
    assert_int_equal(model_check_ranks(&mc, 3, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "4 heads and 2 key/value heads of layer 0"));
    mc.intermediate_size = 42;
    assert_int_equal(model_check_ranks(&mc, 4, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "feed-forward width 42"));
    assert_int_equal(model_check_ranks(&mc, 1, &e), ST_OK);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families_in_double),
        cmocka_unit_test(test_async_products),
        cmocka_unit_test(test_async_is_used),
        cmocka_unit_test(test_shared_key_heads),
        cmocka_unit_test(test_norms_of_all_heads),
        cmocka_unit_test(test_narrow_types),
        cmocka_unit_test(test_eight_ranks),
        cmocka_unit_test(test_validation),
        cmocka_unit_test(test_deferred_loss),
        cmocka_unit_test(test_forgotten_sums_show),
        cmocka_unit_test(test_recomputed_collectives),
        cmocka_unit_test(test_kept_collectives),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
