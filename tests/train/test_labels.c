/* Heads of labels against transformers and TRL (tests/oracle/labels.py): scores, losses and every gradient, by the program and the
 * objective that train them; which token the head looks at; what a new head is made of; accuracy and F1. */
#include "../plan/golden.h"

#include "infer/labels.h"
#include "io/whole_tensors.h"
#include "train/batch.h"
#include "train/objective/objective.h"

static const double SCORES = 1e-5, GRADS = 1e-4;
static const double CENTER = 0.01; /* of labels.py */

static const struct {
    const char *name, *objective;
} models[] = {{"gpt2-classes", "classify"},
              {"llama-classes", "classify"},
              {"qwen3-number", "classify"},
              {"mixtral-classes", "classify"},
              {"llama-reward", "reward"}};

static void open_labels(golden *g, const char *name, plan_spec spec) {
    char path[128];
    snprintf(path, sizeof path, "../labels/%s", name);
    golden_open(g, path, spec);
}

static const float *floats(const golden *g, const char *name) {
    const st_view *v = st_find(g->file, name);
    assert_non_null(v);
    return (const float *)(const void *)v->data;
}

static batch_rows rows_of(const golden *g) {
    batch_rows r = batch_rows_new(g->a, g->B, g->T, false, &g->mc);
    const int32_t *ids = (const int32_t *)(const void *)g->ids->data;
    const int32_t *length = (const int32_t *)(const void *)st_find(g->file, "length")->data;
    for (int b = 0; b < g->B; b++) {
        r.info[b] = (loader_row){.label = floats(g, "label")[b], .n_inputs = length[b]};
        for (int t = 0; t < g->T; t++) {
            r.ids[b * g->T + t] = t < length[b] ? ids[b * (g->T + 1) + t] : 0;
            r.pos[b * g->T + t] = t;
        }
    }
    batch_find_last(&r);
    return r;
}

static config *config_with(const char *name) {
    char key[64];
    config *c;
    snprintf(key, sizeof key, "train.objective=%s", name);
    const char *keys[] = {key, "model.model_type=llama", "train.preference.center=0.01"};
    MUST(config_load(&c, NULL, keys, 3, E));
    assert_true(c->train.preference.center == CENTER);
    return c;
}

static int objective_rows(const batch_rows *r, objective_row *out) {
    for (int b = 0; b < r->B; b++)
        out[b] = (objective_row){.labels = r->labels,
                                 .problem = r->problem,
                                 .label = r->info[b].label,
                                 .score = r->score + b * r->labels,
                                 .d_score = r->d_score + b * r->labels};
    return r->B;
}

/* Forward, loss, backward, as execute.c has them. Returns the mean loss. */
static double run(golden *g, const char *name, batch_rows *r) {
    config *c = config_with(name);
    const objective *o = objective_of(c);
    batch_ports io = batch_ports_of(plan_prog(g->p, USE_TRAIN, 0));
    op_run of = {.dev = g->dev, .seed = 1, .step = 1, .first_micro = true, .grad_scale = 1};
    objective_row rows[16];
    double unused[16];
    int64_t sums[SUM_COUNT] = {0};
    batch_put(&io, 0, r);
    prog_replay(io.p, PROG_F, &of);
    batch_take_scores(&io, 0, r);
    int n = objective_rows(r, rows) / o->sequences;
    float *seen = malloc(sizeof *seen * (size_t)(r->B * r->labels));
    memcpy(seen, r->score, sizeof *seen * (size_t)(r->B * r->labels));
    double loss = objective_loss(o, c, rows, n, 0, unused, sums) / n;
    for (int i = 0; i < r->B * r->labels; i++) r->d_score[i] /= (float)n;
    batch_put_score_grads(&io, 0, r);
    memcpy(r->score, seen, sizeof *seen * (size_t)(r->B * r->labels));
    prog_replay(io.p, PROG_B | PROG_W, &of);
    golden_wait(g);
    free(seen);
    config_free(c);
    return loss;
}

static void check_gradients(const golden *g) {
    const param_store *s = g->p->store;
    st_tensor *t = whole_tensors(g->a, s, param_grad(s), "grad.", DT_F32, HF_FILES_PAIRS);
    for (int i = 0; i < param_count(s); i++) {
        const st_view *v = st_find(g->file, t[i].name);
        if (!v) fail_msg("%s has no %s", g->dir, t[i].name);
        float *mine = malloc(sizeof(float) * (size_t)v->numel);
        if (t[i].data)
            memcpy(mine, t[i].data, sizeof(float) * (size_t)v->numel);
        else
            MUST(t[i].fill(t[i].ctx, 0, v->numel, mine, E));
        double d = golden_distance(mine, (const float *)(const void *)v->data, v->numel);
        if (!(d < GRADS)) fail_msg("%s of %s: %.2e", t[i].name, g->dir, d);
        free(mine);
    }
}

static void test_scores_losses_and_gradients(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(models); m++) {
        golden g;
        open_labels(&g, models[m].name, (plan_spec){.compute = DT_F32});
        assert_int_equal(g.mc.num_labels, g.logits->dims[1]);
        batch_rows r = rows_of(&g);
        memset(param_grad(g.p->store), 0xff, (size_t)param_store_sizes(g.p->store).grad_bytes);
        double loss = run(&g, models[m].objective, &r);
        double d =
            golden_distance(r.score, (const float *)(const void *)g.logits->data, g.logits->numel);
        double want = (double)*(const float *)(const void *)g.loss->data;
        print_message("%s: scores %.2e, loss %.7f, golden %.7f\n", models[m].name, d, loss, want);
        assert_true(d < SCORES);
        assert_true(fabs(loss - want) < GRADS * fabs(want));
        check_gradients(&g);
        golden_close(&g);
    }
}

/* Every recompute policy gives the bits of none, and so do chunks of layers, here the head's own. */
static void test_recompute_changes_no_bit(void **state) {
    (void)state;
    float *first = NULL;
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        golden g;
        open_labels(&g, "llama-classes",
                    (plan_spec){.compute = DT_F32, .recompute = (recompute_policy)policy});
        batch_rows r = rows_of(&g);
        run(&g, "classify", &r);
        size_t bytes = (size_t)param_store_sizes(g.p->store).grad_bytes;
        const float *grad = param_grad(g.p->store);
        if (!first) {
            first = malloc(bytes);
            memcpy(first, grad, bytes);
        }
        for (int i = 0; i < param_count(g.p->store); i++) { /* there are gaps between parameters */
            const param *p = param_at(g.p->store, i);
            assert_memory_equal(first + p->offset, grad + p->offset,
                                sizeof *grad * (size_t)param_elems(p));
        }
        golden_close(&g);
    }
    free(first);
}

/* Padding ids at the end of a text are passed over, the padding behind it always; a text of padding alone has its first token. */
static void test_the_head_looks_at_the_last_token(void **state) {
    (void)state;
    arena *a = arena_new("rows");
    model_config mc = {.num_labels = 2, .pad_token_id = 5};
    batch_rows r = batch_rows_new(a, 4, 3, false, &mc);
    const int32_t ids[] = {1, 2, 3, 1, 2, 5, 5, 5, 5, 4, 0, 0};
    const int32_t length[] = {3, 3, 3, 1}, want[] = {2, 4, 6, 9};
    memcpy(r.ids, ids, sizeof ids);
    for (int b = 0; b < 4; b++) r.info[b].n_inputs = length[b];
    batch_find_last(&r);
    for (int b = 0; b < 4; b++) assert_int_equal(r.last[b], want[b]);
    arena_free(a);
}

static void test_tally(void **state) {
    (void)state;
    arena *a = arena_new("tally");
    model_config three = {.num_labels = 3}, two = {.num_labels = 2}, number = {.num_labels = 1};
    /* said 0 0 1 1, they are 0 1 1 2: F1 of the classes 2/3, 1/2, 0 */
    static const float said[4][3] = {{3, 1, 0}, {3, 1, 0}, {0, 2, 1}, {0, 2, 2}};
    static const float is[] = {0, 1, 1, 2};
    label_tally t = label_tally_new(a, &three);
    for (int i = 0; i < 4; i++) label_tally_add(&t, said[i], is[i]);
    assert_true(label_tally_accuracy(&t) == 0.5);
    assert_true(fabs(label_tally_f1(&t) - (2.0 / 3 + 1.0 / 2) / 3) < 1e-12);
    t = label_tally_new(a, &two);
    for (int i = 0; i < 3; i++) label_tally_add(&t, said[i], is[i]);
    assert_true(fabs(label_tally_f1(&t) - 2.0 / 3) < 1e-12); /* of class 1 */
    t = label_tally_new(a, &number);
    label_tally_add(&t, &(float){1.5F}, 1);
    label_tally_add(&t, &(float){-1}, 0);
    assert_true(label_tally_mse(&t) == 0.625 && label_tally_mae(&t) == 0.75);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores_losses_and_gradients),
                                       cmocka_unit_test(test_recompute_changes_no_bit),
                                       cmocka_unit_test(test_the_head_looks_at_the_last_token),
                                       cmocka_unit_test(test_tally)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
