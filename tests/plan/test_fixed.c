/* The deterministic mode on whole models: training steps through the real programs end with the
 * same weights, bit for bit, whatever is recomputed, with any number of threads, and in whichever
 * order a step's micro-batches run; and with nearly those of the fast mode. */
#include "test.h"

#include "base/rng.h"
#include "op/clip.h"
#include "plan/plan.h"
#include "prog_memory.h"

enum { MICRO_BATCHES = 4, B = 2, V = 67, MOST_STEPS = 10 };

typedef struct model_case {
    const char *name, *json;
    int T, steps;
} model_case;

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"vocab_size\":67,\"hidden_size\":40,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":72,"
    "\"max_position_embeddings\":128,\"tie_word_embeddings\":true}";
static const char UNTIED[] =
    "{\"model_type\":\"llama\",\"vocab_size\":67,\"hidden_size\":40,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":72,"
    "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}";
/* Each block runs twice, with dropout. */
static const char SHARED[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":67,\"hidden_size\":32,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"max_position_embeddings\":128,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1,\"block_repeat\":2,\"tie_word_embeddings\":false}";
/* Large enough for kernels to use several threads. */
static const char WIDE[] =
    "{\"model_type\":\"llama\",\"vocab_size\":67,\"hidden_size\":192,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":384,"
    "\"max_position_embeddings\":128,\"tie_word_embeddings\":true}";

static const model_case CASES[] = {{"tied", LLAMA, 24, MOST_STEPS},
                                   {"untied", UNTIED, 24, MOST_STEPS},
                                   {"shared", SHARED, 16, MOST_STEPS},
                                   {"wide", WIDE, 96, 2}};

/* How a run goes about it. */
typedef struct way {
    recompute_policy recompute;
    int threads;
    int order; /* of micro-batches: 0, 1, 2, ... begins there and goes on by steps of 3 */
    bool fast;
} way;

typedef struct outcome {
    uint64_t digest[MOST_STEPS];
    double norm[MOST_STEPS], loss[MOST_STEPS];
} outcome;

typedef struct lab {
    arena *a;
    dev *dev;
    plan *p;
    bool decay[64];
    bool overflow;
} lab;

static void lab_open(lab *l, const model_case *c, dtype compute, const way *w) {
    err e = {0};
    *l = (lab){.a = arena_new("fixed")};
    plan_spec spec = {.compute = compute,
                      .T = c->T,
                      .train_B = B,
                      .micro_batches = 2,
                      .recompute = w->recompute,
                      .fixed_grads = !w->fast,
                      .optim = optim_find("adamw")};
    json_t *o = json_loads(c->json, 0, NULL);
    if (model_config_read(l->a, o, 0, &spec.model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    assert_int_equal(dev_open(&l->dev, DEV_CPU, w->threads, &e), ST_OK);
    if (plan_new(&l->p, l->dev, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(plan_commit(l->p, &e), ST_OK);
    assert_true(param_count(l->p->store) <= 64);
    param_init_all(l->p->store, 5);
}

static void lab_close(lab *l) {
    plan_free(l->p);
    dev_close(l->dev);
    arena_free(l->a);
}

static void fill(const lab *l, int step, int micro) {
    const prog *p = plan_prog(l->p, USE_TRAIN, 0);
    int T = l->p->spec.T;
    rng_key key = rng_key_numbered(9, (uint64_t)(step * MICRO_BATCHES + micro));
    for (int i = 0; i < B * T; i++) {
        ((int32_t *)prog_at(p, "ids"))[i] = (int32_t)(rng_u32(key, (uint64_t)i) % V);
        ((int32_t *)prog_at(p, "targets"))[i] = (int32_t)(rng_u32(key, i + 1u) % V);
        ((int32_t *)prog_at(p, "pos"))[i] = i % T;
    }
}

static double sum_nll(const prog *p) {
    tensor t = prog_named(p, "nll");
    double sum = 0;
    for (int64_t i = 0; i < t.rows; i++) sum += ((const float *)t.data)[i];
    return sum;
}

/* The gradients of a step; returns the mean loss. */
static double accumulate(lab *l, int step, int order) {
    const prog *p = plan_prog(l->p, USE_TRAIN, 0);
    double targets = MICRO_BATCHES * B * l->p->spec.T, sum = 0;
    for (int i = 0; i < MICRO_BATCHES; i++) {
        int micro = (order + i * (order ? 3 : 1)) % MICRO_BATCHES;
        int64_t uses = prog_count_contributions(&p, 1);
        op_run run = {.dev = l->dev,
                      .seed = 4,
                      .step = (uint64_t)step,
                      .micro_batch = (uint32_t)micro,
                      .first_micro = i == 0,
                      .grad_scale = (float)(1.0 / targets),
                      .fixed_unscale = 1,
                      .fixed_limit = fixed_grad_limit(MICRO_BATCHES * uses),
                      .fixed_overflow = &l->overflow};
        fill(l, step, micro);
        prog_replay(p, PROG_ALL, &run);
        sum += sum_nll(p);
    }
    return sum / targets;
}

static double grad_norm(const lab *l) {
    int64_t limb[VEC_LIMBS];
    if (!l->p->spec.fixed_grads) return sqrt(optim_grad_squares(l->dev, l->p->store));
    optim_grad_limbs(l->dev, l->p->store, limb);
    return sqrt(vec_limbs_value(limb));
}

static outcome train(const model_case *c, dtype compute, const way *w) {
    lab l;
    outcome r = {0};
    lab_open(&l, c, compute, w);
    for (int step = 0; step < c->steps; step++) {
        r.loss[step] = accumulate(&l, step, w->order);
        r.norm[step] = grad_norm(&l);
        optim_hyper h = {.lr = 3e-3,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .step = step + 1,
                         .grad_scale = (float)clip_factor(r.norm[step], 1.0)};
        optim_update(l.p->spec.optim, l.dev, l.p->store, 0, l.decay, l.p->optim_state, &h,
                     &r.digest[step]);
    }
    assert_false(l.overflow);
    lab_close(&l);
    return r;
}

static void check_same(const char *what, const model_case *c, dtype compute, const way *w,
                       const outcome *want) {
    outcome got = train(c, compute, w);
    for (int i = 0; i < c->steps; i++)
        if (got.digest[i] != want->digest[i] || got.norm[i] != want->norm[i])
            fail_msg("%s in %s, %s: step %d has other weights or another norm", c->name,
                     dtype_name(compute), what, i);
}

static void check_case(const model_case *c, dtype compute) {
    const way plain = {.threads = 1};
    outcome want = train(c, compute, &plain);
    check_same("selective recompute", c, compute,
               &(way){.recompute = RECOMPUTE_SELECTIVE, .threads = 1}, &want);
    check_same("full recompute, 2 threads", c, compute,
               &(way){.recompute = RECOMPUTE_FULL, .threads = 2}, &want);
    check_same("another order", c, compute, &(way){.threads = 1, .order = 1}, &want);
    check_same("a third order, 3 threads", c, compute, &(way){.threads = 3, .order = 2}, &want);
    outcome fast = train(c, compute, &(way){.threads = 1, .fast = true});
    /* Where one sum rounds to another bf16, which is so on some processors, steps carry it on. */
    double near = compute == DT_BF16 ? 1e-3 : 1e-4;
    for (int i = 0; i < c->steps; i++) {
        assert_true(fabs(fast.loss[i] - want.loss[i]) < near * want.loss[i]);
        assert_true(fabs(fast.norm[i] - want.norm[i]) < 10 * near * want.norm[i]);
    }
    assert_true(want.loss[0] > 4 && want.digest[0] != want.digest[1]);
}

static void test_layouts(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(CASES); i++) {
        check_case(&CASES[i], DT_F32);
        check_case(&CASES[i], DT_BF16);
    }
}

/* In the fast mode the order does matter, so the test above can fail. */
static void test_fast_mode_has_an_order(void **state) {
    (void)state;
    outcome one = train(&CASES[0], DT_F32, &(way){.threads = 1, .fast = true});
    outcome two = train(&CASES[0], DT_F32, &(way){.threads = 1, .order = 1, .fast = true});
    assert_true(one.digest[9] != two.digest[9]);
}

static int contributions(const plan *p) {
    const prog *training = plan_prog(p, USE_TRAIN, 0);
    return prog_count_contributions(&training, 1);
}

/* What a plan says of memory: twice the gradients, and the same of everything that stays. */
static void test_plan(void **state) {
    (void)state;
    lab fast, fixed;
    lab_open(&fast, &CASES[0], DT_BF16, &(way){.threads = 1, .fast = true});
    lab_open(&fixed, &CASES[0], DT_BF16, &(way){.threads = 1});
    for (int k = 0; k < REGION_FRAME; k++) {
        int64_t times = k == REGION_GRADS ? 2 : 1;
        assert_int_equal(fixed.p->region[k].bytes, times * fast.p->region[k].bytes);
    }
    assert_int_equal(contributions(fixed.p), 2); /* tied */
    assert_int_equal(contributions(fast.p), 0);
    lab_close(&fixed);
    lab_open(&fixed, &CASES[2], DT_F32, &(way){.threads = 1});
    assert_int_equal(contributions(fixed.p), 2); /* blocks */
    lab_close(&fast);
    lab_close(&fixed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts),
                                       cmocka_unit_test(test_fast_mode_has_an_order),
                                       cmocka_unit_test(test_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
