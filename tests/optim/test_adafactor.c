/* Adafactor against transformers', step by step, on the CPU and on the emulated GPU, and what it promises beyond
 * numbers: the same bits with any number of threads and from gradients in fixed point, a copy in 16 bits, and a
 * step left out. */
#include "test.h"

#include <jansson.h>

#include "op/factored.h"
#include "optim/optim.h"
#include "optim/lr_schedule.h"

enum { TENSORS = 5, STEPS = 7 };
static const int64_t SHAPES[TENSORS][2] = {{9, 7}, {70, 3}, {3, 270}, {1, 11}, {1, 11}};

typedef struct lab {
    arena *a;
    dev *dev;
    param_store *s;
    const param_store *states;
    int64_t flat, state_bytes;
    float *master, *grad;
    void *state;
    int64_t *fixed;
    uint16_t *work;
    bool decay[TENSORS];
} lab;

typedef struct how {
    int threads;
    bool fixed;
    dtype compute;
    const char *seed; /* on the emulated GPU, in the order of blocks and threads that this draws */
} how;

/* As tests/oracle/optimizers.py has it. */
static float number(int64_t i, int which, int step) {
    float x = (float)(((i + 1000 * which) * 7919 + (int64_t)step * 104729) % 1000 - 500) / 250.0f;
    return i == 0 ? x * 1e-3f : x;
}

static void *zeros(int64_t bytes) {
    size_t n = (size_t)(bytes + 63) / 64 * 64;
    return memset(aligned_alloc(64, n), 0, n);
}

/* Kernels may touch only what a call names, wherever that lies, so arrays are the host's on both. */
static dev *open_dev(how w) {
    dev *d;
    err e;
    if (w.seed) setenv("ATHANOR_CUDA_SEED", w.seed, 1);
    if (dev_open(&d, w.seed ? DEV_CUDA : DEV_CPU, w.threads, &e) != ST_OK)
        fail_msg("%s", e.message);
    return d;
}

static void check_dev(dev *d) {
    err e;
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
}

static void lab_open(lab *l, how w) {
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "norm"};
    *l = (lab){.a = arena_new("adafactor"), .dev = open_dev(w)};
    l->s = param_store_new(l->a, w.compute);
    if (w.fixed) param_store_fix_grads(l->s);
    for (int i = 0; i < TENSORS; i++) {
        param_add(l->s, &(param){.name = names[i],
                                 .rows = SHAPES[i][0],
                                 .cols = SHAPES[i][1],
                                 .rank = i == TENSORS - 1 ? 1 : 2});
        l->decay[i] = true;
    }
    l->flat = param_store_sizes(l->s).flat_elems;
    l->master = zeros(l->flat * 4);
    l->grad = zeros(l->flat * 4);
    l->fixed = zeros(l->flat * 8);
    l->work = w.compute == DT_F32 ? NULL : zeros(l->flat * 2);
    param_store_bind(l->s, l->dev,
                     &(param_arrays){.master = l->master,
                                     .work = l->work,
                                     .grad = w.fixed ? (void *)l->fixed : l->grad});
    l->states = optim_states(optim_find("adafactor"), l->a, l->dev, l->s);
    l->state_bytes = param_store_sizes(l->states).state_bytes;
    l->state = zeros(l->state_bytes);
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < param_elems(param_at(l->s, i)); k++)
            l->master[param_at(l->s, i)->offset + k] = number(k, i, 0);
}

static void lab_close(lab *l) {
    free(l->master);
    free(l->grad);
    free(l->fixed);
    free(l->work);
    free(l->state);
    dev_close(l->dev);
    arena_free(l->a);
}

static void fill_grad(lab *l, int step) {
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < param_elems(param_at(l->s, i)); k++) {
            int64_t at = param_at(l->s, i)->offset + k;
            l->grad[at] = number(k, i, step);
            l->fixed[at] = (int64_t)((double)l->grad[at] * 0x1p50);
        }
}

static double option(const json_t *o, const char *key, double usual) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v)  ? json_number_value(v)
           : json_is_true(v)  ? 1
           : json_is_false(v) ? 0
                              : usual;
}

/* The options of transformers' class, in our words: its relative step is a schedule. */
static optim_hyper hyper_of(const lab *l, const json_t *o, int step) {
    bool warms = option(o, "warmup_init", 0) != 0;
    lr_schedule relative = {.kind = SCHEDULE_INVERSE_SQRT,
                            .lr = 0.01,
                            .timescale = 10000,
                            .warmup_steps = warms ? 10000 : 0};
    const json_t *eps = json_object_get(o, "eps");
    return (optim_hyper){
        .lr = option(o, "lr", lr_schedule_at(&relative, step)),
        .weight_decay = option(o, "weight_decay", 0),
        .step = step,
        .grad_scale = 1,
        .states = l->states,
        .factored = {.eps = eps ? json_number_value(json_array_get(eps, 0)) : 1e-30,
                     .eps_scale = eps ? json_number_value(json_array_get(eps, 1)) : 1e-3,
                     .clip = option(o, "clip_threshold", 1),
                     .decay_rate = -option(o, "decay_rate", -0.8),
                     .scale_parameter = option(o, "scale_parameter", 1) != 0}};
}

static void train(lab *l, const json_t *options) {
    for (int step = 1; step <= STEPS; step++) {
        uint64_t digest = 0;
        fill_grad(l, step);
        optim_hyper h = hyper_of(l, options, step);
        optim_update(optim_find("adafactor"), l->dev, l->s, 0, l->decay, &l->state, &h,
                     step % 2 ? &digest : NULL);
        check_dev(l->dev);
        assert_true(digest == (step % 2 ? param_digest(l->s) : 0));
    }
}

static void check_golden(const lab *l, const json_t *want, double most) {
    double worst = 0;
    for (int i = 0; i < TENSORS; i++) {
        const json_t *list = json_array_get(want, (size_t)i);
        assert_int_equal(json_array_size(list), param_elems(param_at(l->s, i)));
        for (size_t k = 0; k < json_array_size(list); k++) {
            double w = json_number_value(json_array_get(list, k));
            double d =
                fabs(l->master[param_at(l->s, i)->offset + (int64_t)k] - w) / (fabs(w) + 0.1);
            if (!(d <= worst)) worst = d;
        }
    }
    print_message("worst %.1e\n", worst);
    assert_true(worst < most);
}

static json_t *golden_cases(void) {
    json_t *o = json_load_file(TEST_DIR "/golden/optim/optimizers.json", 0, NULL);
    assert_non_null(o);
    json_t *cases = json_incref(json_object_get(o, "adafactor"));
    json_decref(o);
    return cases;
}

static void test_golden(void **state) {
    (void)state;
    json_t *cases = golden_cases();
    assert_int_equal(json_array_size(cases), 4);
    for (size_t i = 0; i < 2 * json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i / 2);
        const json_t *options = json_object_get(one, "options");
        lab l;
        lab_open(&l, (how){1, false, DT_F32, i % 2 ? "1" : NULL});
        train(&l, options);
        check_golden(&l, json_object_get(json_object_get(one, "after"), "7"), 2e-6);
        lab_close(&l);
    }
    json_decref(cases);
}

/* Gradients of these tests are multiples of 2^-50, so that fixed point has the same numbers. */
static void check_bits(const how *ways, int n) {
    json_t *cases = golden_cases();
    const json_t *options = json_object_get(json_array_get(cases, 3), "options");
    uint64_t first = 0;
    for (int i = 0; i < n; i++) {
        lab l;
        lab_open(&l, ways[i]);
        train(&l, options);
        uint64_t digest = param_digest(l.s);
        if (i == 0) first = digest;
        assert_true(digest == first);
        const param *c = param_at(l.s, 2), *norm = param_at(l.s, 4);
        for (int64_t k = 0; l.work && k < param_elems(c); k++)
            assert_int_equal(l.work[c->offset + k], f32_to_bf16(l.master[c->offset + k]));
        if (l.work) assert_int_equal(l.work[norm->offset], 0); /* vectors have no copy */
        lab_close(&l);
    }
    json_decref(cases);
}

static void test_bits(void **state) {
    (void)state;
    check_bits((how[]){{1, false, DT_F32, NULL},
                       {3, false, DT_F32, NULL},
                       {2, true, DT_F32, NULL},
                       {2, false, DT_BF16, NULL}},
               4);
    check_bits((how[]){{2, false, DT_F32, "1"},
                       {2, false, DT_F32, "2"},
                       {2, true, DT_F32, "3"},
                       {2, false, DT_BF16, "4"}},
               4);
}

/* A matrix costs rows + columns, a vector its length; a factor that is no number leaves all as it was. */
static void test_states(void **state) {
    (void)state;
    lab l;
    lab_open(&l, (how){1, false, DT_F32, NULL});
    const struct {
        const char *name;
        int64_t n;
    } want[] = {{"row.a", 9},   {"col.a", 7}, {"row.b", 70}, {"col.b", 3}, {"row.c", 3},
                {"col.c", 270}, {"row.d", 1}, {"col.d", 11}, {"norm", 11}};
    assert_int_equal(param_count(l.states), ARRAY_LEN(want));
    for (int i = 0; i < ARRAY_LEN(want); i++) {
        assert_string_equal(param_at(l.states, i)->name, want[i].name);
        assert_int_equal(param_at(l.states, i)->cols, want[i].n);
    }
    assert_int_equal(l.state_bytes, 4 * (64 * 9 + 64 + 256)); /* rounded up to 64 elements each */
    assert_true(optim_states(optim_find("adamw"), l.a, l.dev, l.s) == l.s);
    uint64_t before = param_digest(l.s);
    float scale = NAN;
    json_t *none = json_object();
    optim_hyper h = hyper_of(&l, none, 1);
    h.grad_scale_at = &scale;
    fill_grad(&l, 1);
    optim_update(optim_find("adafactor"), l.dev, l.s, 0, l.decay, &l.state, &h, NULL);
    dev_sync(l.dev);
    assert_true(param_digest(l.s) == before && *(float *)l.state == 0);
    scale = 1;
    optim_update(optim_find("adafactor"), l.dev, l.s, 0, l.decay, &l.state, &h, NULL);
    dev_sync(l.dev);
    assert_true(param_digest(l.s) != before && *(float *)l.state > 0);
    json_decref(none);
    lab_close(&l);
}

/* A matrix of which a GPU sums columns in several chunks of rows: close to the CPU's. */
enum { TALL = 517, WIDE = 37, TALL_ELEMS = TALL * WIDE };
typedef struct tall {
    float param[TALL_ELEMS], grad[TALL_ELEMS], row[TALL], col[WIDE];
} tall;

static tall *tall_after(how w, const float *scale) {
    tall *t = zeros(sizeof *t);
    dev *d = open_dev(w);
    for (int i = 0; i < TALL_ELEMS; i++)
        t->param[i] = number(i, 1, 0), t->grad[i] = number(i, 2, 3);
    for (int step = 1; step <= 2; step++)
        factored_update(d, &(factored_args){.rows = TALL,
                                            .cols = WIDE,
                                            .param = t->param,
                                            .grad = t->grad,
                                            .row = t->row,
                                            .col = t->col,
                                            .rule = {.lr = 0.01,
                                                     .keep = step > 1 ? 0.4 : 0,
                                                     .eps = 1e-30,
                                                     .eps_scale = 1e-3,
                                                     .clip = 1,
                                                     .weight_decay = 0.1,
                                                     .scale_parameter = true},
                                            .grad_scale_at = scale});
    check_dev(d);
    dev_close(d);
    return t;
}

static void check_close(const float *got, const float *want, int n) {
    for (int i = 0; i < n; i++) assert_true(fabsf(got[i] - want[i]) <= 2e-6f * fabsf(want[i]));
}

static void test_tall(void **state) {
    (void)state;
    float scale = 0.5f, none = NAN;
    tall *cpu = tall_after((how){1, false, DT_F32, NULL}, &scale);
    tall *gpu = tall_after((how){2, false, DT_F32, "1"}, &scale);
    tall *still = tall_after((how){2, false, DT_F32, "1"}, &none);
    check_close(gpu->param, cpu->param, TALL_ELEMS);
    check_close(gpu->row, cpu->row, TALL);
    check_close(gpu->col, cpu->col, WIDE);
    assert_true(still->row[TALL - 1] == 0 && still->param[7] == number(7, 1, 0));
    free(cpu), free(gpu), free(still);
}

int main(void) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_bits),
                                       cmocka_unit_test(test_states), cmocka_unit_test(test_tall)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
