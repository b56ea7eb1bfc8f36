/* A run with two models, a policy that is trained and a frozen reference, and a loss whose gradient
 * is known only after the forward: five steps of preference optimisation against NumPy's
 * (tests/oracle/two_models.py), over every way to cut them into micro-batches, chunks and frames,
 * and on a device whose memory the host cannot reach. */
#include "test.h"

#include "io/npy.h"
#include "train/execute.h"
#include "train/layouts/trial.h"

static const char GOLDEN[] = TEST_DIR "/golden/train/two_models";
static const char POLICY[] = TEST_DIR "/golden/models/llama-gqa-tied";

/* A wrong decay, clipping or reference moves each of these by 100 times as much. */
static const double NEAR = 2e-5, NEAR_SUMS = 1e-6;

typedef struct lab {
    session s;
    config *c;
    json_t *want;
    npy_i32 ids, targets;
    int64_t sequences; /* of a step */
} lab;

static void read_golden(lab *l) {
    char path[512];
    err e = {0};
    snprintf(path, sizeof path, "%s/expected.json", GOLDEN);
    l->want = json_load_file(path, 0, NULL);
    assert_non_null(l->want);
    snprintf(path, sizeof path, "%s/ids.npy", GOLDEN);
    if (npy_read_i32(&l->ids, path, &e) != ST_OK) fail_msg("%s", e.message);
    snprintf(path, sizeof path, "%s/targets.npy", GOLDEN);
    if (npy_read_i32(&l->targets, path, &e) != ST_OK) fail_msg("%s", e.message);
    l->sequences = l->ids.dims[1];
}

static double number(const lab *l, const char *name) {
    return json_number_value(json_object_get(l->want, name));
}

static double element(const lab *l, const char *name, size_t i) {
    return json_number_value(json_array_get(json_object_get(l->want, name), i));
}

static void write_config(const lab *l, char path[]) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(f, "model: {from: %s}\n", POLICY);
    fprintf(f,
            "train: {steps: 5, seq_len: %d, global_batch_size: %d, micro_batch_size: 4, "
            "precision: fp32, objective: dpo, beta: %g, reference: %s/reference, "
            "reference_cache: false}\n",
            (int)l->ids.dims[2], (int)l->sequences, number(l, "beta"), GOLDEN);
    fprintf(f,
            "optim: {lr: %g, betas: [%g, %g], eps: %g, weight_decay: %g, clip_norm: %g, "
            "no_decay: ['*norm*', '*.bias']}\n",
            number(l, "lr"), element(l, "betas", 0), element(l, "betas", 1), number(l, "eps"),
            number(l, "weight_decay"), number(l, "clip_norm"));
    fclose(f);
}

static void lab_open(lab *l, const char *const *keys, int n_keys) {
    err e = {0};
    char path[] = "/tmp/two_models_XXXXXX";
    *l = (lab){0};
    read_golden(l);
    write_config(l, path);
    arena *a = arena_new("test");
    status st = config_load(&l->c, path, keys, n_keys, &e);
    unlink(path);
    if (st == ST_OK) st = trial_open(&l->s, a, l->c, NULL, false, &e);
    setup *u = &l->s.setup;
    if (st == ST_OK) st = setup_make_weights(u, u->plan->store, &u->models[0], &e);
    if (st != ST_OK) fail_msg("%s", e.message);
}

static void lab_close(lab *l) {
    session_close(&l->s);
    config_free(l->c);
    npy_i32_free(&l->ids);
    npy_i32_free(&l->targets);
    json_decref(l->want);
}

/* ---- steps ---- */

static lab *current; /* of the callbacks */

static int64_t count_targets(session *s) {
    const lab *l = current;
    int64_t n = 0, each = l->sequences * s->stage.T;
    for (int64_t i = 0; i < each; i++) n += l->targets.data[s->at.step * each + i] >= 0;
    return n;
}

static status fill(session *s, int micro_batch, err *e) {
    (void)e;
    const lab *l = current;
    int64_t n = (int64_t)s->stage.B * s->stage.T,
            at = s->at.step * l->sequences * s->stage.T + micro_batch * n;
    memcpy(s->stage.rows.ids, l->ids.data + at, sizeof *s->stage.rows.ids * (size_t)n);
    memcpy(s->stage.rows.targets, l->targets.data + at, sizeof *s->stage.rows.ids * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        s->stage.rows.pos[i] = (int32_t)(i % s->stage.T);
        if (s->stage.rows.start) s->stage.rows.start[i] = 0;
    }
    return ST_OK;
}

static void near(double got, double want, double size, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance * size))
        fail_msg("%s: %.10g, NumPy has %.10g", what, got, want);
}

static double largest(const json_t *list) {
    double most = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        most = fmax(most, fabs(json_number_value(json_array_get(list, i))));
    return most;
}

static void check_step(lab *l, uint64_t *digest) {
    static const step_source golden = {.count_targets = count_targets, .fill = fill};
    step_result r;
    err e = {0};
    size_t step = (size_t)l->s.at.step;
    if (execute_step(&l->s, &golden, NULL, &r, &e) != ST_OK) fail_msg("%s", e.message);
    near(execute_mean_loss(&r), element(l, "loss", step), element(l, "loss", 0), NEAR, "loss");
    near(r.norm, element(l, "grad_norm", step), element(l, "grad_norm", 0), NEAR, "norm");
    execute_advance(&l->s, &r);
    *digest = param_digest(l->s.setup.plan->store);
}

static void check_params(const lab *l) {
    const param_store *s = l->s.setup.plan->store;
    json_t *all = json_object_get(l->want, "params");
    dev_room room = {0};
    const float *w =
        dev_look(l->s.setup.dev, param_master(s), (size_t)param_store_sizes(s).master_bytes, &room);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        json_t *want = json_object_get(all, p->name), *first = json_object_get(want, "first");
        assert_non_null(want);
        double sum = 0, squares = 0, n = (double)param_elems(p);
        for (int64_t k = 0; k < param_elems(p); k++) {
            double x = w[p->offset + k];
            sum += x;
            squares += x * x;
        }
        double size = json_number_value(json_object_get(want, "sum_squares"));
        near(squares, size, size, NEAR_SUMS, p->name);
        near(sum, json_number_value(json_object_get(want, "sum")), sqrt(n * size), NEAR_SUMS,
             p->name);
        for (size_t k = 0; k < json_array_size(first); k++)
            near(w[p->offset + (int64_t)k], json_number_value(json_array_get(first, k)),
                 largest(first), NEAR, p->name);
    }
    dev_room_free(&room);
}

/* Returns the digest after the last step. */
static uint64_t train(const char *const *keys, int n_keys) {
    lab l;
    uint64_t digest = 0;
    lab_open(&l, keys, n_keys);
    uint64_t reference = param_digest(l.s.setup.plan->model[1].store);
    current = &l;
    for (int i = 0; i < 5; i++) check_step(&l, &digest);
    check_params(&l);
    assert_true(param_digest(l.s.setup.plan->model[1].store) == reference);
    assert_int_equal(plan_touched_bytes(l.s.setup.plan), l.s.setup.plan->peak_bytes);
    lab_close(&l);
    return digest;
}

static void test_trains_to_numpys_values(void **state) {
    (void)state;
    static const char *const ways[][3] = {
        {"train.recompute=none"},
        {"train.micro_batch_size=8", "train.recompute=full"},
        {"train.recompute=full"},
        {"train.recompute=selective", "train.head_chunk_rows=7"},
        {"parallel.virtual=2"},
        {"parallel.virtual=2", "parallel.pp_schedule=afab"},
        {"train.micro_batch_size=2", "parallel.pp_schedule=afab"},
        {"train.deterministic=true"},
        {"train.deterministic=true", "parallel.virtual=2", "parallel.pp_schedule=afab"},
    };
    for (int i = 0; i < ARRAY_LEN(ways); i++) {
        int n = 0;
        while (n < 3 && ways[i][n]) n++;
        train(ways[i], n);
    }
}

/* The deterministic mode gives the same bits however a step is cut up. */
static void test_same_bits(void **state) {
    (void)state;
    static const char *const whole[] = {"train.deterministic=true"};
    static const char *const parts[] = {"train.deterministic=true", "parallel.virtual=2",
                                        "parallel.pp_schedule=afab", "train.recompute=full"};
    uint64_t want = train(whole, 1);
    assert_true(train(parts, 4) == want);
    setenv("ATHANOR_DEVICE", "twin", 1);
    assert_true(train(parts, 4) == want);
    assert_true(train(whole, 1) == want);
    unsetenv("ATHANOR_DEVICE");
}

static void expect_refusal(const char *key, const char *where) {
    lab l = {0};
    err e = {0};
    char path[] = "/tmp/two_models_XXXXXX";
    read_golden(&l);
    write_config(&l, path);
    arena *a = arena_new("test");
    assert_int_equal(config_load(&l.c, path, &key, 1, &e), ST_OK);
    unlink(path);
    assert_int_equal(trial_open(&l.s, a, l.c, NULL, false, &e), ST_USAGE);
    if (!strstr(e.where, where)) fail_msg("%s: %s (%s)", key, e.message, e.where);
    lab_close(&l);
}

static void test_refuses(void **state) {
    (void)state;
    expect_refusal("train.micro_batch_size=1", "train.micro_batch_size"); /* half a pair */
    expect_refusal("train.reference=" TEST_DIR "/golden/models/llama-linear", "train.reference");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trains_to_numpys_values),
                                       cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
