/* AdamW against the formula in double precision, over several steps, all dtypes of the copies, with
 * decay groups and clipping. */
#include "test.h"

#include "base/rng.h"
#include "op/clip.h"
#include "optim/optim.h"

enum { STEPS = 6 };

typedef struct lab {
    arena *a;
    dev *dev;
    param_store *s;
    param_sizes n;
    float *master, *grad;
    void *state[2];
    uint16_t *work;
    double *p, *m, *v; /* the formula's */
    bool decay[8];
} lab;

static void add(param_store *s, const char *name, int64_t rows, int64_t cols, int rank) {
    param_add(s, &(param){.name = name,
                          .rows = rows,
                          .cols = cols,
                          .rank = rank,
                          .init = {.kind = INIT_NORMAL, .std = 0.5}});
}

static void lab_open(lab *l, dtype compute) {
    *l = (lab){.a = arena_new("adamw")};
    assert_int_equal(dev_open(&l->dev, DEV_CPU, 2, NULL), ST_OK);
    l->s = param_store_new(l->a, compute);
    add(l->s, "layers.0.q.weight", 37, 19, 2);
    add(l->s, "layers.0.q.bias", 1, 37, 1);
    add(l->s, "layers.0.norm.weight", 1, 19, 1);
    add(l->s, "head.weight", 129, 19, 2);
    l->n = param_store_sizes(l->s);
    size_t flat = (size_t)l->n.flat_elems;
    l->master = aligned_alloc(64, flat * 4);
    l->grad = aligned_alloc(64, flat * 4);
    for (int i = 0; i < 2; i++) {
        l->state[i] = aligned_alloc(64, flat * 4);
        memset(l->state[i], 0, flat * 4);
    }
    l->work = compute == DT_F32 ? NULL : aligned_alloc(64, flat * 4);
    param_store_bind(l->s, l->dev,
                     &(param_arrays){.master = l->master, .work = l->work, .grad = l->grad});
    param_init_all(l->s, 5);
    l->p = calloc(flat, 8);
    l->m = calloc(flat, 8);
    l->v = calloc(flat, 8);
    for (size_t i = 0; i < flat; i++) l->p[i] = l->master[i];
    const char *no_decay[] = {"*.bias", "*norm*"};
    optim_decay_mask(l->s, no_decay, 2, l->decay);
}

static void lab_close(lab *l) {
    free(l->master);
    free(l->grad);
    free(l->state[0]);
    free(l->state[1]);
    free(l->work);
    free(l->p);
    free(l->m);
    free(l->v);
    dev_close(l->dev);
    arena_free(l->a);
}

static void fill_grad(lab *l, int step) {
    for (int i = 0; i < param_count(l->s); i++) {
        const param *p = param_at(l->s, i);
        rng_fill_normal(rng_key_numbered(77, (uint64_t)(step * 8 + i)), 0, l->grad + p->offset,
                        param_elems(p), 3.0);
    }
    l->grad[param_at(l->s, 0)->offset] = 0.0f; /* nothing but decay moves this one on step 1 */
}

/* p in double by Loshchilov & Hutter 2019, algorithm 2, over parameter i. */
static void formula(lab *l, int i, const optim_hyper *h) {
    const param *q = param_at(l->s, i);
    for (int64_t k = q->offset; k < q->offset + param_elems(q); k++) {
        double g = (double)l->grad[k] * h->grad_scale;
        l->m[k] = h->beta1 * l->m[k] + (1 - h->beta1) * g;
        l->v[k] = h->beta2 * l->v[k] + (1 - h->beta2) * g * g;
        double m = l->m[k] / (1 - pow(h->beta1, (double)h->step));
        double v = l->v[k] / (1 - pow(h->beta2, (double)h->step));
        if (l->decay[i]) l->p[k] -= h->lr * h->weight_decay * l->p[k];
        l->p[k] -= h->lr * m / (sqrt(v) + h->eps);
    }
}

static double worst_distance(const lab *l, const float *got, const double *want) {
    double worst = 0;
    for (int i = 0; i < param_count(l->s); i++) {
        const param *q = param_at(l->s, i);
        for (int64_t k = q->offset; k < q->offset + param_elems(q); k++) {
            double d = fabs(got[k] - want[k]) / (fabs(want[k]) + 1e-2);
            if (!(d <= worst)) worst = d;
        }
    }
    return worst;
}

static void run(dtype compute) {
    lab l;
    lab_open(&l, compute);
    for (int step = 1; step <= STEPS; step++) {
        fill_grad(&l, step);
        double norm = sqrt(optim_grad_squares(l.dev, l.s));
        optim_hyper h = {.lr = 0.01 * step,
                         .beta1 = 0.9,
                         .beta2 = 0.95,
                         .eps = 1e-8,
                         .weight_decay = 0.1,
                         .step = step,
                         .grad_scale = (float)clip_factor(norm, 1.0)};
        uint64_t digest = 0;
        optim_update(optim_find("adamw"), l.dev, l.s, 0, l.decay, l.state, &h,
                     step % 2 ? &digest : NULL);
        assert_true(digest == (step % 2 ? param_digest(l.s) : 0));
        for (int i = 0; i < param_count(l.s); i++) formula(&l, i, &h);
    }
    double p = worst_distance(&l, l.master, l.p), m = worst_distance(&l, l.state[0], l.m);
    double v = worst_distance(&l, l.state[1], l.v);
    print_message("%s: p %.1e m %.1e v %.1e\n", dtype_name(compute), p, m, v);
    assert_true(p < 3e-6 && m < 3e-6 && v < 3e-6);
    for (int i = 0; l.work && i < param_count(l.s); i++) {
        const param *q = param_at(l.s, i);
        for (int64_t k = 0; q->rank == 2 && k < param_elems(q); k++)
            assert_int_equal(l.work[q->offset + k], f32_to_bf16(l.master[q->offset + k]));
    }
    lab_close(&l);
}

static void test_formula(void **state) {
    (void)state;
    run(DT_F32);
    run(DT_BF16);
}

static void test_decay_mask(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32);
    const bool want[] = {true, false, false, true};
    assert_memory_equal(l.decay, want, sizeof want);
    optim_decay_mask(l.s, NULL, 0, l.decay);
    for (int i = 0; i < 4; i++) assert_true(l.decay[i]);
    const char *head[] = {"head.*"};
    optim_decay_mask(l.s, head, 1, l.decay);
    assert_true(l.decay[0] && !l.decay[3]);
    /* Without gradients a step only decays, and only what is decayed. */
    memset(l.grad, 0, (size_t)l.n.grad_bytes);
    optim_hyper h = {.lr = 0.5,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .weight_decay = 0.5,
                     .step = 1,
                     .grad_scale = 1};
    optim_update(optim_find("adamw"), l.dev, l.s, 0, l.decay, l.state, &h, NULL);
    for (int i = 0; i < 4; i++) {
        const param *q = param_at(l.s, i);
        for (int64_t k = q->offset; k < q->offset + param_elems(q); k++)
            assert_true(fabs(l.master[k] - l.p[k] * (l.decay[i] ? 0.75 : 1.0)) < 1e-6);
    }
    lab_close(&l);
}

static void test_norm_and_clip(void **state) {
    (void)state;
    lab l;
    lab_open(&l, DT_F32);
    memset(l.grad, 0xff, (size_t)l.n.grad_bytes); /* the gaps between parameters do not count */
    fill_grad(&l, 3);
    double sum = 0;
    for (int i = 0; i < param_count(l.s); i++) {
        const param *q = param_at(l.s, i);
        for (int64_t k = 0; k < param_elems(q); k++)
            sum += (double)l.grad[q->offset + k] * l.grad[q->offset + k];
    }
    assert_true(fabs(optim_grad_squares(l.dev, l.s) - sum) < 2e-9 * sum);
    l.grad[param_at(l.s, 3)->offset + 7] = NAN;
    assert_true(isnan(optim_grad_squares(l.dev, l.s)));
    assert_true(clip_factor(0.5, 1.0) == 1.0);
    assert_true(fabs(clip_factor(4.0, 1.0) - 1.0 / (4.0 + 1e-6)) < 1e-15);
    assert_true(clip_factor(4.0, 0.0) == 1.0);
    assert_true(clip_factor(0.0, 1.0) == 1.0);
    lab_close(&l);
}

static void test_names(void **state) {
    (void)state;
    assert_non_null(optim_find("adamw"));
    assert_null(optim_find("adamv"));
    assert_int_equal(optim_find("adamw")->n_states, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula), cmocka_unit_test(test_decay_mask),
        cmocka_unit_test(test_norm_and_clip), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
