/* The layout never changes the mathematics, and a mistake in one is noticed and named. */
#include "test.h"

#include "plan/plan_int.h"
#include "train/layouts/matrix.h"
#include "train/session.h"

enum { STEPS = 4, BATCH = 8 };

static const char LLAMA[] =
    "model: {model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 48, vocab_size: 67, max_position_embeddings: 16,"
    " tie_word_embeddings: true}\n";
static const char GPT2[] =
    "model: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, vocab_size: 67,"
    " n_positions: 16, embd_pdrop: 0.1, resid_pdrop: 0.1, attn_pdrop: 0.1}\n";

static const char MOE[] =
    "model: {model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 24, vocab_size: 67, max_position_embeddings: 16,"
    " tie_word_embeddings: true, num_experts: 8, num_experts_per_tok: 2, num_shared_experts: 1}\n";

/* Vectors so short that what several ranks hold lies close to what one does. */
static const char QWEN2[] =
    "model: {model_type: qwen2, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4,"
    " num_key_value_heads: 1, intermediate_size: 12, vocab_size: 67, max_position_embeddings: "
    "16}\n";

/* parallel.bucket_mb is below a layer, so that every layer is a unit. */
static layout_trial *trial_of(const char *model, const char *precision) {
    char path[] = "/tmp/athanor-layouts-XXXXXX", text[1024];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    int n = snprintf(text, sizeof text,
                     "%strain: {steps: 1, seq_len: 16, global_batch_size: 8, precision: %s}\n"
                     "optim: {lr: 1.0e-2}\nparallel: {bucket_mb: 0.001}\n",
                     model, precision);
    FILE *f = fdopen(fd, "w");
    assert_int_equal(fwrite(text, 1, (size_t)n, f), n);
    fclose(f);
    config *c;
    layout_trial *t;
    err e = {0};
    if (config_load(&c, path, NULL, 0, &e) != ST_OK) fail_msg("%s", e.message);
    remove(path);
    if (layout_trial_new(&t, c, 0, BATCH, &e) != ST_OK) fail_msg("%s", e.message);
    config_free(c);
    return t;
}

static layout_result *run_way(const layout_trial *t, const layout *l, layout_way way, err *e) {
    layout_result *r = layout_result_new(t, &way);
    if (layout_run(t, l, &way, r, e) == ST_OK) e->code = ST_OK;
    return r;
}

static layout_result *run(const layout_trial *t, const layout *l, int precision, err *e) {
    return run_way(t, l, (layout_way){.precision = precision, .steps = STEPS}, e);
}

static const layout ALONE = {.dp = 1, .dp_replicate = 1, .tp = 1};

/* Sums of floats, and gradients that share their memory with activations. */
static void check_ordinary(const layout_trial *t, const layout *l, const char *name,
                           const layout_result *one) {
    layout_way way = {.precision = one->way.precision, .steps = 2, .ordinary = true};
    err e = {0};
    layout_result *r = run_way(t, l, way, &e);
    if (e.code != ST_OK) fail_msg("%s: %s", name, e.message);
    layout_verdict v = layout_compare(t, l, one, r);
    if (!v.ok) fail_msg("%s, ordinary sums: %s", name, v.why);
    assert_false(v.exact);
    assert_int_equal(r->n_steps, 2);
}

/* Every layout of up to four ranks, and some of eight; every other one with ordinary sums, too. */
static void check_all(const char *model, const char *name, int precision) {
    layout_trial *t = trial_of(model, name);
    err e = {0};
    layout_result *one = run(t, &ALONE, precision, &e);
    int seen = 0, bits = precision == CONFIG_PRECISION_BF16;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        int n;
        layout *all = layout_matrix_of(t, ranks, &n);
        for (int i = 0; i < n; i += ranks == 8 ? 5 : 1) {
            if (bits && !layout_is_exact(&all[i])) continue;
            char text[LAYOUT_NAME_MAX];
            layout_name(&all[i], text);
            layout_result *r = run(t, &all[i], precision, &e);
            if (e.code != ST_OK) fail_msg("%s: %s", text, e.message);
            layout_verdict v = layout_compare(t, &all[i], one, r);
            if (!v.ok) fail_msg("%s: %s", text, v.why);
            assert_int_equal(v.exact, layout_is_exact(&all[i]));
            if (seen++ % 2 == 0) check_ordinary(t, &all[i], text, one);
        }
        free(all);
    }
    assert_true(seen >= (bits ? 13 : 25));
    layout_trial_free(t);
}

static void test_llama(void **state) {
    (void)state;
    check_all(LLAMA, "fp32", CONFIG_PRECISION_FP32);
}
static void test_llama_bf16(void **state) {
    (void)state;
    check_all(LLAMA, "bf16", CONFIG_PRECISION_BF16);
}
static void test_gpt2(void **state) {
    (void)state;
    check_all(GPT2, "fp32", CONFIG_PRECISION_FP32);
}

static void test_moe(void **state) {
    (void)state;
    check_all(MOE, "fp32", CONFIG_PRECISION_FP32);
}

static void test_short_vectors(void **state) {
    (void)state;
    static const layout some[] = {{.dp = 1, .dp_replicate = 1, .tp = 2, .sp = true},
                                  {.dp = 1, .dp_replicate = 1, .tp = 4, .sp = true},
                                  {.dp = 2, .dp_replicate = 1, .zero = 3, .tp = 2, .sp = true}};
    layout_trial *t = trial_of(QWEN2, "fp32");
    err e = {0};
    layout_result *one = run(t, &ALONE, CONFIG_PRECISION_FP32, &e);
    for (int i = 0; i < ARRAY_LEN(some); i++) {
        layout_result *r = run(t, &some[i], CONFIG_PRECISION_FP32, &e);
        if (e.code != ST_OK) fail_msg("layout %d: %s", i, e.message);
        layout_verdict v = layout_compare(t, &some[i], one, r);
        if (!v.ok) fail_msg("layout %d: %s", i, v.why);
    }
    layout_trial_free(t);
}

/* Schedules whose backward is in two parts; in the last one a stage has the first and the last layers. */
static void test_zero_bubble(void **state) {
    (void)state;
    static const char deep[] =
        "model: {model_type: llama, hidden_size: 16, num_hidden_layers: 8, num_attention_heads: 2,"
        " intermediate_size: 24, vocab_size: 67, max_position_embeddings: 16,"
        " tie_word_embeddings: true, attention_bias: true}\n";
    static const layout some[] = {
        {.dp = 1, .tp = 1, .pp = 4, .schedule = CONFIG_PP_ZB_H1},
        {.dp = 1, .tp = 1, .pp = 4, .schedule = CONFIG_PP_ZB_V, .virtual = 2},
        {.dp = 1, .tp = 1, .pp = 3, .schedule = CONFIG_PP_ZB_V, .virtual = 2, .recompute = 2},
        {.dp = 2, .tp = 1, .pp = 2, .schedule = CONFIG_PP_ZB_V, .virtual = 2, .zero = 1},
        {.dp = 1, .tp = 2, .sp = true, .pp = 2, .schedule = CONFIG_PP_ZB_H1, .recompute = 1},
        {.dp = 1, .tp = 2, .sp = true, .pp = 2, .schedule = CONFIG_PP_ZB_V, .virtual = 2}};
    layout_trial *t = trial_of(deep, "fp32");
    err e = {0};
    layout_result *one = run(t, &ALONE, CONFIG_PRECISION_FP32, &e);
    for (int i = 0; i < ARRAY_LEN(some); i++) {
        layout l = some[i];
        char name[LAYOUT_NAME_MAX];
        l.dp_replicate = 1;
        layout_name(&l, name);
        layout_result *r = run(t, &l, CONFIG_PRECISION_FP32, &e);
        if (e.code != ST_OK) fail_msg("%s: %s", name, e.message);
        layout_verdict v = layout_compare(t, &l, one, r);
        if (!v.ok) fail_msg("%s: %s", name, v.why);
        assert_int_equal(v.exact, l.tp == 1);
        check_ordinary(t, &l, name, one);
    }
    layout_trial_free(t);
}

/* ---- mistakes ---- */

/* They are made in what a rank holds, as layout_way.between is called: the product knows of none.
 */
typedef void (*mistake)(session *s, int step);

static bool second_rank(const session *s) {
    return peers_rank(&s->setup.peers) == 1;
}

static param_unit *unit_at(session *s, int u) {
    return (param_unit *)(uintptr_t)param_unit_at(s->setup.plan->store, u);
}

/* Every tensor-parallel rank draws its part of a parameter from the beginning of the whole. */
static void draw_as_first(session *s, int step) {
    const param_store *store = s->setup.plan->store;
    uint64_t seed = (uint64_t)s->setup.c->train.seed;
    for (int i = 0; step == 0 && i < param_count(store); i++) {
        const param *p = param_at(store, i);
        if (p->init.kind != INIT_NORMAL || p->split.kind == SPLIT_NONE) continue;
        param_piece k = param_piece_of(store, p->unit);
        arena *a = arena_new("mistake");
        vec_spans own = param_spans_of(a, store, i);
        for (int n = 0; n < own.n; n++)
            rng_fill_normal(rng_key_named(seed, p->name), (uint64_t)own.item[n].skip,
                            k.master + own.item[n].at, own.item[n].n, p->init.std);
        arena_free(a);
    }
    if (step == 0) param_refresh_work(store);
    if (step == 0) peers_gather_all(&s->setup.peers);
}

/* Gradients that are summands of the same are not summed. */
static void forget_partial(session *s, int step) {
    for (int u = 0; step == 0 && u < param_units(s->setup.plan->store); u++)
        unit_at(s, u)->n_partial = 0;
}

/* One rank begins to sum two units in the other order. */
static void swap_reductions(session *s, int step) {
    step_entry *first = NULL;
    if (step != 0 || !second_rank(s)) return;
    for (int i = 0; i < s->stage.table.n; i++) {
        step_entry *t = &s->stage.table.entry[i];
        if (t->action != STEP_REDUCE || unit_at(s, t->unit)->spans.n == 0) continue;
        if (first) {
            int unit = first->unit;
            first->unit = t->unit;
            t->unit = unit;
            return;
        }
        first = t;
    }
}

/* One rank's slots of layers, which are not the first, begin one element early. */
static void shift_slots(session *s, int step) {
    if (step != 0 || !second_rank(s)) return;
    for (int u = 0; u < param_units(s->setup.plan->store); u++)
        unit_at(s, u)->slot -= unit_at(s, u)->shares_slot;
}

/* In one replica. */
static void flip_bit(session *s, int step) {
    if (step != 3 || !second_rank(s)) return;
    param_piece k = param_piece_of(s->setup.plan->store, param_units(s->setup.plan->store) - 1);
    uint32_t bits;
    float *x = k.master + k.spans->item[0].at;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1u;
    memcpy(x, &bits, sizeof bits);
}

/* The gradients of the table that two stages have are not summed. */
static void forget_tied(session *s, int step) {
    for (int i = 0; step == 0 && i < s->stage.table.n; i++)
        if (s->stage.table.entry[i].action == STEP_TIED)
            s->stage.table.entry[i].action = STEP_COUNTED;
}

/* The first stage sends the activations of two micro-batches in the other order. */
static void swap_micro_batches(session *s, int step) {
    for (int i = 0; step == 0 && i < s->stage.table.n; i++) {
        step_entry *t = &s->stage.table.entry[i];
        if (t->action == STEP_SEND && !t->back) t->frame ^= 1;
    }
}

/* The second stage reads what lies in its frame already, not what has come. */
static void read_no_box(session *s, int step) {
    for (int i = 0; step == 0 && second_rank(s) && i < s->stage.table.n; i++) {
        step_entry *t = &s->stage.table.entry[i];
        if (t->action == STEP_RECEIVED) t->action = STEP_SENT; /* it only waits */
    }
}

/* Of two stages, one believes that the second begins a layer earlier. The linker puts this in the place of
 * plan_cut_stages (CMakeLists.txt). -1: none does. */
static int cut_off = -1;
status __real_plan_cut_stages(plan *p, const param_store *whole, err *e);
status __wrap_plan_cut_stages(plan *p, const param_store *whole, err *e);
status __wrap_plan_cut_stages(plan *p, const param_store *whole, err *e) {
    TRY(__real_plan_cut_stages(p, whole, e));
    if (plan_stage_of(p->phase) != cut_off) return ST_OK;
    int *cut = (int *)(uintptr_t)p->phase[0].cut;
    CHECK(--cut[1] > 0, "a stage without layers would be another mistake");
    for (int i = 1; i < p->n_phases; i++) p->phase[i].cut = cut;
    return ST_OK;
}

/* Which keys a token sees is counted by its place on its rank, not by that in the sequence. */
static void count_by_local_place(session *s, int step) {
    batch_ports *io = s->stage.chunks;
    int32_t end[64];
    int n = (int)io->end.rows, own = s->stage.own.T;
    if (step != 0) return;
    for (int i = 0; i < n; i++) end[i] = i % own + 1;
    prog_put(io->p, 0, io->end, end);
    io->end.bytes = 0; /* what is right does not come any more */
}

/* Gradients of experts are summed over all ranks, which hold different ones. */
static void sum_over_all(session *s, int step) {
    for (int u = 0; step == 0 && u < param_units(s->setup.plan->store); u++)
        unit_at(s, u)->of_experts = false;
}

/* Rows go to the experts of the rank next to theirs. */
static void send_to_neighbour(session *s, int step) {
    const prog *p = s->stage.parts.chunk[0];
    for (int i = 0; step == 0 && i < prog_get_stats(p)->ops; i++) {
        prog_op op = prog_get_op(p, i);
        op_attr *attr = (op_attr *)(uintptr_t)op.attr;
        if (op.kind == OP_EXPERT_RANKS) attr->expert_ranks.rank ^= 1;
    }
}

/* A mistake is found before or in the first step, and the message names a tensor. */
static void check_mistake_of(const char *model, mistake make, layout l, const char *want) {
    layout_trial *t = trial_of(model, "fp32");
    layout_way way = {.precision = CONFIG_PRECISION_FP32, .steps = STEPS, .between = make};
    if (make == send_to_neighbour) way.steps = 1; /* later ones are not finite */
    err e = {0};
    layout_result *one = run(t, &ALONE, CONFIG_PRECISION_FP32, &e);
    layout_result *r = run_way(t, &l, way, &e);
    const char *why = e.message;
    layout_verdict v = {0};
    if (e.code == ST_OK) {
        v = layout_compare(t, &l, one, r);
        why = v.why;
        assert_false(v.ok);
    }
    if (!strstr(why, want)) fail_msg("'%s' does not say '%s'", why, want);
    layout_trial_free(t);
}

static void check_mistake(mistake make, layout l, const char *want) {
    check_mistake_of(LLAMA, make, l, want);
}

static void test_same_seed(void **state) {
    (void)state;
    check_mistake(draw_as_first, (layout){.dp = 1, .dp_replicate = 1, .tp = 2},
                  "step 0: the initial weights of model.embed_tokens.weight");
}
static void test_forgotten_sum(void **state) {
    (void)state;
    check_mistake(forget_partial, (layout){.dp = 1, .dp_replicate = 1, .tp = 2, .sp = true},
                  "step 1: the gradient of model.norm.weight");
    /* key heads on two ranks each */
    check_mistake(forget_partial, (layout){.dp = 1, .dp_replicate = 1, .tp = 4},
                  "step 1: the gradient of model.layers.2.self_attn.k_proj.weight");
}
static void test_bucket_order(void **state) {
    (void)state;
    check_mistake(swap_reductions, (layout){.dp = 2, .dp_replicate = 1, .tp = 1},
                  "gradients of model.layers.");
}
static void test_shifted_slots(void **state) {
    (void)state;
    check_mistake(shift_slots, (layout){.dp = 2, .dp_replicate = 1, .zero = 3, .tp = 1},
                  "step 1: the gradient of model");
}
static void test_flipped_bit(void **state) {
    (void)state;
    check_mistake(flip_bit, (layout){.dp = 2, .dp_replicate = 1, .tp = 1},
                  "the replicas of the weights differ: model.layers.0.");
}

static void test_stages(void **state) {
    (void)state;
    layout two = {.dp = 1, .dp_replicate = 1, .tp = 1, .pp = 2, .schedule = CONFIG_PP_1F1B};
    layout all = two;
    all.schedule = CONFIG_PP_AFAB;
    check_mistake(forget_tied, two, "step 1: the gradient of model.embed_tokens.weight");
    check_mistake(swap_micro_batches, all, "step 1: the gradient of model.");
    check_mistake(read_no_box, two, "step 1: the gradient of model.");
    for (cut_off = 0; cut_off < 2; cut_off++) /* the second layer is on no stage, then on both */
        check_mistake(NULL, two, "step 0: the initial weights of model.layers.1.");
    cut_off = -1;
}

static void test_local_mask(void **state) {
    (void)state;
    layout two = {.dp = 1, .dp_replicate = 1, .tp = 1, .cp = 2, .cp_kind = CONTEXT_ALLGATHER};
    check_mistake(count_by_local_place, two, "step 1: the gradient of model.");
}

static void test_experts(void **state) {
    (void)state;
    layout two = {.dp = 2, .dp_replicate = 1, .tp = 1, .ep = 2};
    layout at_once = two;
    at_once.at_once = true;
    check_mistake_of(MOE, sum_over_all, two, "gradients of model.layers.2.mlp.experts.");
    check_mistake_of(MOE, send_to_neighbour, two, "step 1: the gradient of model.");
    check_mistake_of(MOE, send_to_neighbour, at_once, "step 1: the gradient of model.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),        cmocka_unit_test(test_llama_bf16),
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_short_vectors),
        cmocka_unit_test(test_same_seed),    cmocka_unit_test(test_forgotten_sum),
        cmocka_unit_test(test_bucket_order), cmocka_unit_test(test_shifted_slots),
        cmocka_unit_test(test_flipped_bit),  cmocka_unit_test(test_stages),
        cmocka_unit_test(test_zero_bubble),  cmocka_unit_test(test_local_mask),
        cmocka_unit_test(test_moe),          cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
