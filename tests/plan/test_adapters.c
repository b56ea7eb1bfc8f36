/* Parameters that are trained beside frozen ones: gradients, optimizer state and updates are of
 * these alone, and before the first step the model computes what it does without them. */
#include "test.h"

#include "base/rng.h"
#include "op/fixed.h"
#include "plan/plan.h"
#include "prog_memory.h"

enum { B = 2, T = 12, V = 61, RANK = 3 };

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"tie_word_embeddings\":true}";
static const char GPT2[] = /* fused, transposed in files, with biases */
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"max_position_embeddings\":32}";

typedef struct lab {
    arena *a;
    dev *dev;
    plan *p;
} lab;

static lab lab_open(const char *model, plan_spec spec) {
    lab l = {.a = arena_new("adapters")};
    err e = {0};
    json_t *o = json_loads(model, 0, NULL);
    spec.T = T;
    spec.train_B = B;
    spec.optim = optim_find("adamw");
    assert_int_equal(dev_open(&l.dev, DEV_CPU, 1, &e), ST_OK);
    if (model_config_read(l.a, o, 0, &spec.model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    if (plan_new(&l.p, l.dev, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    if (plan_commit(l.p, &e) != ST_OK) fail_msg("%s", e.message);
    param_init_all(l.p->store, 7);
    return l;
}

static void lab_close(lab *l) {
    plan_free(l->p);
    dev_close(l->dev);
    arena_free(l->a);
}

/* The mean loss of one batch, and its gradients. */
static double run(const lab *l) {
    const prog *p = plan_prog(l->p, USE_TRAIN, 0);
    int32_t *ids = prog_at(p, "ids"), *targets = prog_at(p, "targets"), *pos = prog_at(p, "pos");
    for (int i = 0; i < B * T; i++) {
        ids[i] = (i * 7 + 3) % V;
        targets[i] = (i * 5 + 1) % V;
        pos[i] = i % T;
    }
    bool overflow = false;
    op_run run = {.dev = l->dev,
                  .first_micro = true,
                  .grad_scale = 1.0f / (B * T),
                  .fixed_unscale = 1,
                  .fixed_limit = fixed_grad_limit(prog_count_contributions(&p, 1)),
                  .fixed_overflow = &overflow};
    prog_replay(p, PROG_ALL, &run);
    assert_false(overflow);
    const float *nll = prog_at(p, "nll");
    double sum = 0;
    for (int i = 0; i < B * T; i++) sum += nll[i];
    return sum / (B * T);
}

static void update(const lab *l, int64_t step) {
    const param_store *s = l->p->store;
    optim_hyper h = {.lr = 0.02,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0.1,
                     .step = step,
                     .grad_scale = 1.0f};
    bool decay[128];
    assert_true(param_count(s) <= ARRAY_LEN(decay));
    optim_decay_mask(s, NULL, 0, decay);
    for (int u = 0; u < param_units(s); u++)
        if (!param_unit_at(s, u)->frozen)
            optim_update(l->p->spec.optim, l->dev, s, u, decay, l->p->optim_state, &h, NULL);
}

static uint64_t frozen_digest(const param_store *s) {
    uint64_t sum = 0;
    for (int i = 0; i < param_count(s); i++)
        if (param_at(s, i)->frozen) sum += param_digest_of(s, i);
    return sum;
}

static bool is_adapter(const param *p) {
    return strstr(p->name, ".lora_") != NULL;
}

static void check_frozen(const lab *l) {
    const param_store *s = l->p->store;
    int64_t adapted = 0, end = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        assert_true(p->frozen == !is_adapter(p));
        if (p->frozen) continue;
        adapted += param_elems(p);
        if (p->offset + param_elems(p) > end) end = p->offset + param_elems(p);
    }
    for (int i = 0; i < param_count(s); i++)
        if (param_at(s, i)->frozen) assert_true(param_at(s, i)->offset >= end);
    param_sizes z = param_store_sizes(s);
    assert_int_equal(z.trained_elems, adapted);
    assert_in_range(z.state_bytes, 4 * adapted, 4 * (end + 64));
    assert_int_equal(z.grad_bytes, z.state_bytes * (param_grads_are_fixed(s) ? 2 : 1));
    assert_in_range(z.master_bytes, 4 * z.elems, 4 * z.flat_elems);
}

/* Against differences of the loss along a random direction in all adapters. */
static void check_gradient(const lab *l) {
    const param_store *s = l->p->store;
    rng_key key = rng_key_numbered(3, 9);
    double slope = 0, loss[2], step = 2e-3;
    run(l);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        for (int64_t k = p->offset; !p->frozen && k < p->offset + param_elems(p); k++)
            slope += (rng_uniform(key, (uint64_t)k) - 0.5) * param_grad(s)[k];
    }
    for (int side = 0; side < 2; side++) {
        double by = side ? -2 * step : step; /* there, and to the other side */
        for (int i = 0; i < param_count(s); i++) {
            const param *p = param_at(s, i);
            for (int64_t k = p->offset; !p->frozen && k < p->offset + param_elems(p); k++)
                param_master(s)[k] += (float)(by * (rng_uniform(key, (uint64_t)k) - 0.5));
        }
        loss[side] = run(l);
    }
    double found = (loss[0] - loss[1]) / (2 * step);
    if (fabs(found - slope) > 0.02 * fabs(slope) + 1e-5) fail_msg("%g, not %g", slope, found);
}

static void check(const char *model, dtype compute, bool fixed) {
    plan_spec spec = {.compute = compute, .micro_batches = 2, .fixed_grads = fixed};
    lab plain = lab_open(model, spec);
    spec.adapters = (model_adapters){.rank = RANK, .alpha = 6};
    lab l = lab_open(model, spec);
    check_frozen(&l);
    double before = run(&l), without = run(&plain);
    /* in bf16 the residual is no longer added where the product leaves its registers */
    double near = compute == DT_F32 ? 0 : 4e-3 * without;
    if (!(fabs(before - without) <= near)) fail_msg("%g, without adapters %g", before, without);
    uint64_t frozen = frozen_digest(l.p->store), all = param_digest(l.p->store);
    for (int step = 1; step <= 8; step++) {
        update(&l, step);
        run(&l);
    }
    assert_true(frozen_digest(l.p->store) == frozen);
    assert_true(param_digest(l.p->store) != all);
    double after = run(&l);
    if (!(after < before - 0.05)) fail_msg("the loss went from %g to %g", before, after);
    if (compute == DT_F32 && !fixed) check_gradient(&l);
    assert_int_equal(plan_touched_bytes(l.p), l.p->peak_bytes);
    lab_close(&l);
    lab_close(&plain);
}

static void test_adapters(void **state) {
    (void)state;
    check(LLAMA, DT_F32, false);
    check(LLAMA, DT_BF16, false);
    check(LLAMA, DT_F32, true);
    check(GPT2, DT_F32, false);
}

static const param *find(const param_store *s, const char *name) {
    int i = param_find(s, name);
    if (i < 0) fail_msg("there is no %s", name);
    return param_at(s, i);
}

/* Of the matrix NAME [O,I], of which the plain model has the gradient dW: that of B is
 * scale * dW A^T, while B is 0. What the first step of SGD then changes, scale * dB A, points the
 * more the way of dW the higher the rank is: A^T A comes near a multiple of 1. Returns the
 * cosine. */
static double check_direction(const lab *plain, const lab *l, const char *name, double scale) {
    const param_store *s = l->p->store;
    const param *w = find(plain->p->store, arena_printf(l->a, "%s.weight", name));
    const param *a = find(s, arena_printf(l->a, "%s.lora_A.weight", name));
    const param *b = find(s, arena_printf(l->a, "%s.lora_B.weight", name));
    const float *dw = param_grad(plain->p->store) + w->offset, *db = param_grad(s) + b->offset;
    const float *A = param_master(s) + a->offset;
    double dot = 0, whole = 0, step = 0, worst = 0, most = 0;
    for (int64_t o = 0; o < w->rows; o++) {
        for (int64_t r = 0; r < a->rows; r++) {
            double want = 0;
            for (int64_t i = 0; i < w->cols; i++)
                want += scale * (double)dw[o * w->cols + i] * (double)A[r * w->cols + i];
            worst = fmax(worst, fabs((double)db[o * a->rows + r] - want));
            most = fmax(most, fabs(want));
        }
        for (int64_t i = 0; i < w->cols; i++) {
            double moved = 0, g = (double)dw[o * w->cols + i];
            for (int64_t r = 0; r < a->rows; r++)
                moved += (double)db[o * a->rows + r] * (double)A[r * w->cols + i];
            dot += moved * g, whole += g * g, step += moved * moved;
        }
    }
    if (!(worst <= 1e-5 * most)) fail_msg("%s: the gradient of B is %g off", name, worst / most);
    return dot / sqrt(whole * step);
}

static void test_direction(void **state) {
    (void)state;
    double before = 0;
    for (int rank = 6; rank <= 384; rank *= 4) { /* the matrices have 24 columns */
        plan_spec spec = {.compute = DT_F32, .micro_batches = 2};
        lab plain = lab_open(GPT2, spec);
        spec.adapters = (model_adapters){.rank = rank, .alpha = 6};
        lab l = lab_open(GPT2, spec);
        run(&plain);
        run(&l);
        double cosine = check_direction(&plain, &l, "transformer.h.1.attn.c_attn", 6.0 / rank);
        if (!(cosine > before)) fail_msg("rank %d: cosine %g, before %g", rank, cosine, before);
        before = cosine;
        lab_close(&l);
        lab_close(&plain);
    }
    if (!(before > 0.95)) fail_msg("the cosine is %g at the highest rank", before);
}

static double backward_flops(const char *const *targets, int n, int rank) {
    plan_spec spec = {.compute = DT_F32, .micro_batches = 2};
    spec.adapters = (model_adapters){.rank = rank, .alpha = 6, .targets = targets, .n_targets = n};
    lab l = lab_open(LLAMA, spec);
    double flops = prog_get_stats(plan_prog(l.p, USE_TRAIN, 0))->flops_backward;
    lab_close(&l);
    return flops;
}

/* Nothing is computed for weights that are frozen, or below the first adapter. */
static void test_left_out(void **state) {
    (void)state;
    static const char *const last[] = {"model.layers.2.mlp.down_proj"}, *const q[] = {"q_proj"};
    double whole = backward_flops(NULL, 0, 0), all = backward_flops(NULL, 0, 1);
    assert_true(all < 0.75 * whole);
    assert_true(backward_flops(q, 1, 1) < all);
    assert_true(backward_flops(last, 1, 1) < 0.1 * all);
}

/* ZeRO shares what is trained; what is frozen comes after it, in units that nobody updates. */
static void test_shared(void **state) {
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        mesh ranks;
        mesh_place(&ranks, &(mesh_shape){.dp = 2, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1}, 1);
        plan_spec spec = {.compute = DT_F32, .ranks = &ranks};
        spec.adapters = (model_adapters){.rank = RANK, .alpha = 6};
        spec.sharing = (param_sharding){.shards = 2, .rank = 1, .zero = zero, .bucket_elems = 1};
        lab l = {.a = arena_new("shared")};
        err e = {0};
        json_t *o = json_loads(LLAMA, 0, NULL);
        spec.T = T, spec.train_B = B, spec.optim = optim_find("adamw");
        assert_int_equal(dev_open_meta(&l.dev, DEV_CPU, 1, &e), ST_OK);
        assert_int_equal(model_config_read(l.a, o, 0, &spec.model, &e), ST_OK);
        json_decref(o);
        if (plan_new(&l.p, l.dev, &spec, &e) != ST_OK) fail_msg("%s", e.message);
        const param_store *s = l.p->store;
        int64_t trained = 0;
        bool frozen = false;
        for (int u = 0; u < param_units(s); u++) {
            const param_unit *k = param_unit_at(s, u);
            assert_true(k->frozen || !frozen); /* the trained ones come first */
            frozen = k->frozen;
            trained += k->frozen ? 0 : k->piece_n;
            for (int i = 0; i < param_count(s); i++)
                if (param_at(s, i)->unit == u) assert_true(param_at(s, i)->frozen == frozen);
        }
        assert_true(frozen);
        assert_int_equal(param_store_sizes(s).state_bytes, 4 * trained);
        lab_close(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters), cmocka_unit_test(test_direction),
        cmocka_unit_test(test_left_out), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
