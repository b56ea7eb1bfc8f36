/* Adapters that PEFT made (tests/oracle/make_lora_golden.py): logits, losses and three steps of
 * AdamW are PEFT's, with the base model's matrices read in its mapped files, and copied. */
#include "io/hf/hf_model.h"
#include "io/hf/hf_part.h"
#include "test.h"

#include <stdlib.h>

#include "base/file.h"
#include "golden.h"
#include "io/hf/peft.h"

enum { STEPS = 3 };

typedef struct lab {
    arena *a;
    dev *dev;
    model_config mc;
    peft_adapter adapter;
    hf_model base;
    plan *p;
    st_reader *golden;
    const st_view *ids;
    int B, T;
} lab;

static void open_base(lab *l) {
    const char *dir;
    MUST(peft_find_base(&l->adapter, "", &dir, E));
    json_t *from = json_pack("{s:s}", "from", dir);
    MUST(model_config_read(l->a, from, 0, &l->mc, E));
    json_decref(from);
    MUST(hf_model_open(&l->base, dir, &l->mc, E));
}

static void lab_open(lab *l, const char *name, bool mapped) {
    *l = (lab){.a = arena_new("lora"), .dev = golden_device()};
    MUST(peft_open(&l->adapter, arena_printf(l->a, "%s/golden/lora/%s", TEST_DIR, name), E));
    MUST(st_open(&l->golden, arena_printf(l->a, "%s/golden.safetensors", l->adapter.dir), E));
    open_base(l);
    l->ids = st_find(l->golden, "ids");
    l->B = (int)l->ids->dims[1], l->T = (int)l->ids->dims[2] - 1;
    plan_spec spec = {.model = l->mc,
                      .compute = DT_F32,
                      .T = l->T,
                      .train_B = l->B,
                      .micro_batches = 1,
                      .logits_T = l->T,
                      .optim = optim_find("adamw"),
                      .adapters = l->adapter.adapters};
    if (mapped) spec.locate = hf_model_locate, spec.locate_ctx = &l->base, spec.file = l->base.base;
    MUST(plan_new(&l->p, l->dev, &spec, E));
    MUST(plan_commit(l->p, E));
    MUST(hf_model_load_rest(&l->base, l->p->store, E));
    MUST(peft_load(&l->adapter, l->p->store, l->base.order, E));
}

static void lab_close(lab *l) {
    plan_free(l->p);
    st_close(l->golden);
    hf_model_close(&l->base);
    peft_close(&l->adapter);
    dev_leave(l->dev);
    dev_close(l->dev);
    arena_free(l->a);
}

static const int32_t *batch(const lab *l, int step) {
    return (const int32_t *)(const void *)l->ids->data + step * l->B * (l->T + 1);
}

static double run(const lab *l, int step) {
    const prog *p = plan_prog(l->p, USE_TRAIN, 0);
    golden_feed(p, batch(l, step), l->B, l->T);
    op_run run = {.dev = l->dev, .first_micro = true, .grad_scale = 1.0f / (float)(l->B * l->T)};
    prog_replay(p, PROG_ALL, &run);
    dev_sync(l->dev);
    const float *nll = prog_at(p, "nll");
    double sum = 0;
    for (int i = 0; i < l->B * l->T; i++) sum += nll[i];
    return sum / (l->B * l->T);
}

static void update(const lab *l, int64_t step) {
    const param_store *s = l->p->store;
    optim_hyper h = {.lr = 1e-2,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0.1,
                     .step = step,
                     .grad_scale = 1.0f};
    bool decay[256];
    assert_true(param_count(s) <= ARRAY_LEN(decay));
    for (int i = 0; i < param_count(s); i++) decay[i] = true;
    for (int u = 0; u < param_units(s); u++)
        if (!param_unit_at(s, u)->frozen)
            optim_update(l->p->spec.optim, l->dev, s, u, decay, l->p->optim_state, &h, NULL);
    dev_sync(l->dev);
}

static void check_logits(const lab *l, double tolerance) {
    const st_view *want = st_find(l->golden, "logits");
    const float *w = (const float *)(const void *)want->data;
    int64_t V = want->dims[2];
    const prog *p = plan_prog(l->p, USE_LOGITS, 0);
    for (int b = 0; b < l->B; b++) {
        for (int t = 0; t < l->T; t++) {
            golden_ints(p, "ids")[t] = batch(l, 0)[b * (l->T + 1) + t];
            golden_ints(p, "pos")[t] = golden_ints(p, "rows")[t] = t;
        }
        op_run run = {.dev = l->dev, .first_micro = true, .grad_scale = 1.0f};
        prog_replay(p, PROG_F, &run);
        dev_sync(l->dev);
        const float *got = prog_at(p, "logits");
        for (int64_t i = 0; i < l->T * V; i++)
            if (!(fabsf(got[i] - w[b * l->T * V + i]) <= tolerance))
                fail_msg("%s: logit %lld is %g, not %g", l->adapter.dir, (long long)i,
                         (double)got[i], (double)w[b * l->T * V + i]);
    }
}

/* Every tensor of the adapter as a checkpoint would hold it. */
static void check_tensors(const lab *l, double tolerance) {
    const param_store *s = l->p->store;
    const st_tensor *t = peft_declare(l->a, s, l->base.order);
    int n = hf_declared(s);
    char dir[] = "/tmp/athanor-lora-XXXXXX";
    assert_non_null(mkdtemp(dir));
    const char *path = path_join(l->a, dir, PEFT_WEIGHTS);
    held_array masters = held_masters(s);
    MUST(st_create(path, t, n, E));
    MUST(hf_write_part(path, t, &masters, 1, l->base.order, E));
    st_reader *r;
    MUST(st_open(&r, path, E));
    for (int i = 0; i < n; i++) {
        const st_view *want = st_find(l->golden, arena_printf(l->a, "after.%s", t[i].name));
        const st_view *got = st_find(r, t[i].name);
        if (!want) fail_msg("%s is no tensor of PEFT", t[i].name);
        assert_int_equal(got->numel, want->numel);
        for (int64_t k = 0; k < got->numel; k++) {
            float x = ((const float *)(const void *)got->data)[k];
            float y = ((const float *)(const void *)want->data)[k];
            if (!(fabsf(x - y) <= tolerance))
                fail_msg("%s[%lld] is %g, not %g", t[i].name, (long long)k, (double)x, (double)y);
        }
    }
    st_close(r);
    MUST(file_remove_tree(dir, E));
}

static void check(const char *name, bool mapped) {
    lab l;
    lab_open(&l, name, mapped);
    const float *loss = (const float *)(const void *)st_find(l.golden, "loss")->data;
    check_logits(&l, 1e-5);
    for (int step = 0; step < STEPS; step++) {
        double got = run(&l, step);
        if (!(fabs(got - (double)loss[step]) <= 1e-5))
            fail_msg("%s: loss %d is %g, not %g", name, step, got, (double)loss[step]);
        update(&l, step + 1);
    }
    check_tensors(&l, 1e-5);
    lab_close(&l);
}

static const char *const names[] = {"llama", "llama-some", "llama-head",      "gpt2",
                                    "neox",  "neox-head",  "llama-head-alone"};

static void test_steps(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(names); i++)
        for (int mapped = 0; mapped < 2; mapped++) check(names[i], mapped);
}

static st_tensor as_written(const st_view *v, const char *name) {
    st_tensor t = {.name = name, .dt = v->dt, .rank = v->rank, .data = v->data};
    memcpy(t.dims, v->dims, sizeof v->dims);
    return t;
}

/* The lab's adapter with a trained tensor of the base model, in the folder. */
static void write_with(const lab *l, const char *dir, const char *trained, bool ties) {
    const st_reader *r = l->adapter.file;
    int n = (int)st_count(r);
    st_tensor *list = ARENA_ARRAY(l->a, st_tensor, n + 1);
    for (int i = 0; i < n; i++) list[i] = as_written(st_get(r, i), st_get(r, i)->name);
    list[n] =
        as_written(st_find(l->base.file, trained), arena_printf(l->a, PEFT_PREFIX "%s", trained));
    MUST(st_write(path_join(l->a, dir, PEFT_WEIGHTS), list, n + 1, E));
    json_t *o = json_load_file(path_join(l->a, l->adapter.dir, PEFT_CONFIG), 0, NULL);
    json_object_set_new(o, "ensure_weight_tying", json_boolean(ties));
    assert_int_equal(json_dump_file(o, path_join(l->a, dir, PEFT_CONFIG), 0), 0);
    json_decref(o);
}

/* PEFT trains a copy of the embedding, beside which the head of a tied model stays as it was, unless it is told to tie them. */
static void test_embedding_of_a_tied_model(void **state) {
    (void)state;
    lab l;
    char dir[] = "/tmp/athanor-lora-XXXXXX";
    assert_non_null(mkdtemp(dir));
    lab_open(&l, "llama", false);
    for (int ties = 0; ties < 2; ties++) {
        peft_adapter p;
        err e = {0};
        write_with(&l, dir, "model.embed_tokens.weight", ties);
        MUST(peft_open(&p, dir, E));
        assert_true(p.adapters.embedding && !p.adapters.head);
        assert_int_equal(peft_load(&p, l.p->store, l.base.order, &e), ties ? ST_OK : ST_FORMAT);
        if (!ties) assert_non_null(strstr(e.message, "trained without the head"));
        peft_close(&p);
    }
    lab_close(&l);
    MUST(file_remove_tree(dir, E));
}

/* What PEFT can train and is not read here: it says how to go on. */
static void test_other_tensors(void **state) {
    (void)state;
    static const char *const others[] = {"model.norm.weight",
                                         "model.layers.0.self_attn.q_proj.weight"};
    lab l;
    char dir[] = "/tmp/athanor-lora-XXXXXX";
    assert_non_null(mkdtemp(dir));
    lab_open(&l, "llama", false);
    for (int i = 0; i < ARRAY_LEN(others); i++) {
        peft_adapter p;
        err e = {0};
        write_with(&l, dir, others[i], false);
        assert_int_equal(peft_open(&p, dir, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, others[i]));
        assert_non_null(strstr(e.hint, "merge_and_unload"));
        peft_close(&p);
    }
    lab_close(&l);
    MUST(file_remove_tree(dir, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_embedding_of_a_tied_model),
                                       cmocka_unit_test(test_other_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
