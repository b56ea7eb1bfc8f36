/* Every objective against TRL (tests/oracle/objectives.py): losses and their gradients by given
 * log-probabilities; and three steps of training a tiny Llama, in fp32, with rewards and weights. */
#include "io/hf/hf_load.h"
#include "test.h"

#include "io/npy.h"
#include "train/execute.h"
#include "train/layouts/trial.h"

#define GOLDEN TEST_DIR "/golden/train/objectives"
#define POLICY TEST_DIR "/golden/models/llama-gqa-tied"
#define REFERENCE TEST_DIR "/golden/train/two_models/reference"

static json_t *golden(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    json_t *o = json_load_file(path, 0, NULL);
    assert_non_null(o);
    return o;
}

static double number(const json_t *o, const char *name) {
    assert_non_null(json_object_get(o, name));
    return json_number_value(json_object_get(o, name));
}

static double element(const json_t *o, const char *name, size_t i) {
    assert_non_null(json_array_get(json_object_get(o, name), i));
    return json_number_value(json_array_get(json_object_get(o, name), i));
}

/* Relative where numbers are above 1. */
static void near(double got, double want, double tolerance, const char *fmt, ...) {
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s: %.10g, TRL has %.10g", what, got, want);
}

/* "dpo smoothed" is dpo with an option. */
static void name_of(const char *key, char name[32]) {
    snprintf(name, 32, "%s", key);
    if (strchr(name, ' ')) *strchr(name, ' ') = '\0';
}

static int keys_of(const char *key, const json_t *opt, char text[6][64], const char *keys[6]) {
    char name[32];
    name_of(key, name);
    int n = 0;
    bool ref = strcmp(name, "sft") != 0 && strcmp(name, "orpo") != 0;
    snprintf(text[n++], 64, "train.objective=%s", name);
    if (ref) snprintf(text[n++], 64, "train.beta=%g", number(opt, "beta"));
    if (strchr(key, ' '))
        snprintf(text[n++], 64, "train.preference.label_smoothing=%g",
                 number(opt, "label_smoothing"));
    if (strcmp(name, "kto") == 0) {
        snprintf(text[n++], 64, "train.preference.desirable_weight=%g",
                 number(opt, "desirable_weight"));
        snprintf(text[n++], 64, "train.preference.undesirable_weight=%g",
                 number(opt, "undesirable_weight"));
    }
    if (strcmp(name, "orpo") == 0)
        snprintf(text[n++], 64, "train.preference.lambda=%g", number(opt, "lambda"));
    for (int i = 0; i < n; i++) keys[i] = text[i];
    return n;
}

static config *config_with(const char *yaml, const char *const *keys, int n) {
    char path[] = "/tmp/objectives_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, yaml, strlen(yaml)) == (ssize_t)strlen(yaml));
    close(fd);
    config *c;
    err e = {0};
    if (config_load(&c, path, keys, n, &e) != ST_OK) fail_msg("%s", e.message);
    unlink(path);
    return c;
}

/* ---- losses ---- */

/* Row i of the golden file: chosen ones (kto: samples) come first, then rejected ones. */
static objective_row row_at(const json_t *want, size_t i) {
    return (objective_row){.logp = element(want, "logp", i),
                           .ref_logp = element(want, "ref_logp", i),
                           .targets = (int64_t)element(want, "lengths", i)};
}

static void check_slope(const objective *o, const config *c, const objective_row *rows, double kl,
                        const double *d_logp) {
    double unused[2];
    for (int k = 0; k < o->learned; k++) {
        objective_row at[2] = {rows[0], o->learned == 2 ? rows[1] : rows[0]};
        double h = 1e-5, sides[2];
        for (int side = 0; side < 2; side++) {
            at[k].logp = rows[k].logp + (side ? -h : h);
            sides[side] = o->loss(c, at, kl, unused);
        }
        near(d_logp[k], (sides[0] - sides[1]) / (2 * h), 1e-7, "%s: slope", o->name);
    }
}

static void check_losses(const char *key, const json_t *file, const json_t *want) {
    char text[6][64];
    const char *keys[6];
    int n_keys = keys_of(key, json_object_get(file, "options"), text, keys);
    config *c = config_with("model: {preset: gpt2}\n", keys, n_keys);
    const objective *o = objective_of(c);
    size_t n = json_array_size(json_object_get(file, "logp")) / 2;
    double kl = o->kl ? number(want, "kl") : 0, sum = 0;
    int64_t sums[SUM_COUNT] = {0};
    for (size_t i = 0; i < n; i++) {
        objective_row rows[2] = {row_at(file, i), row_at(file, n + i)};
        double d[2];
        rows[0].desirable = i % 3 != 1;
        sum += objective_loss(o, c, rows, 1, kl, d, sums);
        for (int k = 0; k < o->learned; k++)
            near(d[k] / (double)n, element(want, "d_logp", k ? n + i : i), 1e-7, "%s: gradient %zu",
                 key, i);
        check_slope(o, c, rows, kl, d);
    }
    near(sum / (double)n, number(want, "loss"), 1e-6, "%s: loss", key);
    near(objective_average(sums[SUM_LOSS], (int64_t)n), number(want, "loss"), 1e-5, "%s: sums",
         key);
    config_free(c);
}

static void test_losses(void **state) {
    (void)state;
    json_t *file = golden("losses.json"), *want;
    const char *key;
    int n = 0;
    json_object_foreach(json_object_get(file, "objectives"), key, want) {
        check_losses(key, file, want);
        n++;
    }
    assert_int_equal(n, 7);
    json_decref(file);
}

/* Where a side overflows, or nothing is left of an answer. */
static void test_extremes(void **state) {
    (void)state;
    static const char *const words[] = {"dpo", "ipo", "apo-zero", "apo-down", "kto", "orpo"};
    for (int i = 0; i < ARRAY_LEN(words); i++) {
        char key[64];
        snprintf(key, sizeof key, "train.objective=%s", words[i]);
        const char *keys[] = {key};
        config *c = config_with("model: {preset: gpt2}\n", keys, 1);
        for (int k = 0; k < 4; k++) {
            double big = k & 1 ? -1e6 : -1e-30, d[2] = {0}, other = k & 2 ? big : -1e6;
            objective_row rows[] = {{.logp = big, .targets = k}, {.logp = other, .targets = 3}};
            double loss = objective_of(c)->loss(c, rows, 0, d);
            assert_true(isfinite(loss) && isfinite(d[0]) && isfinite(d[1]));
        }
        config_free(c);
    }
}

/* ---- steps ---- */

typedef struct lab {
    session s;
    config *c;
    npy_i32 ids, masks; /* [2 sets, steps, rows, T+1]; the second set is kto's */
    int64_t rows, T, steps;
    bool kto, short_prompts;
} lab;

static lab *current; /* of the callbacks */

static const int32_t *row_of(const lab *l, const npy_i32 *x, int64_t row) {
    int64_t at = ((l->kto ? l->steps : 0) + l->s.at.step) * l->rows + row;
    return x->data + at * (l->T + 1);
}

/* Fills a row; returns its targets. The prompts of orpo are their last token. */
static int64_t put_row(const lab *l, int64_t row, int32_t *ids, int32_t *targets) {
    const int32_t *from = row_of(l, &l->ids, row), *mask = row_of(l, &l->masks, row);
    int64_t cut = 0, n = 0;
    while (l->short_prompts && !mask[cut + 1]) cut++;
    for (int64_t t = 0; t < l->T; t++) {
        bool in = t + cut + 1 <= l->T && mask[t + cut + 1];
        ids[t] = t + cut <= l->T ? from[t + cut] : 0;
        targets[t] = in ? from[t + cut + 1] : LOADER_IGNORE;
        n += in;
    }
    return n;
}

static int64_t count_targets(session *s) {
    int32_t unused[2][64];
    int64_t n = 0;
    (void)s;
    for (int64_t i = 0; i < current->rows; i++) n += put_row(current, i, unused[0], unused[1]);
    return n;
}

static status fill(session *s, int micro_batch, err *e) {
    const batch_rows *r = &s->stage.rows;
    (void)e;
    for (int b = 0; b < r->B; b++) {
        int64_t row = (int64_t)micro_batch * r->B + b;
        put_row(current, row, r->ids + b * r->T, r->targets + b * r->T);
        for (int t = 0; t < r->T; t++) r->pos[b * r->T + t] = t;
        for (int t = 0; r->start && t < r->T; t++) r->start[b * r->T + t] = 0;
        r->info[b].label = row / 2 % 3 != 1;
    }
    execute_complete(&s->stage, NULL, 0);
    return ST_OK;
}

static void read_ids(npy_i32 *out, const char *name) {
    char path[512];
    err e = {0};
    snprintf(path, sizeof path, "%s/%s", GOLDEN, name);
    if (npy_read_i32(out, path, &e) != ST_OK) fail_msg("%s", e.message);
}

static void lab_open(lab *l, const char *key, const json_t *file, const char *more) {
    const json_t *opt = json_object_get(file, "options");
    char yaml[1024], text[6][64];
    const char *keys[8];
    err e = {0};
    int n = keys_of(key, opt, text, keys);
    *l = (lab){.rows = (int64_t)number(file, "rows"),
               .T = (int64_t)number(file, "T"),
               .steps = (int64_t)number(file, "steps"),
               .kto = strcmp(key, "kto") == 0,
               .short_prompts = strcmp(key, "orpo") == 0};
    read_ids(&l->ids, "ids.npy");
    read_ids(&l->masks, "masks.npy");
    snprintf(yaml, sizeof yaml,
             "model: {from: %s}\n"
             "train: {steps: 3, seq_len: %d, global_batch_size: %d, micro_batch_size: 4, "
             "precision: fp32}\n"
             "optim: {lr: %g, betas: [%g, %g], eps: %g, weight_decay: 0, clip_norm: %g}\n",
             POLICY, (int)l->T, (int)l->rows, number(opt, "lr"), element(opt, "betas", 0),
             element(opt, "betas", 1), number(opt, "eps"), number(opt, "clip_norm"));
    if (json_object_get(json_object_get(json_object_get(file, "objectives"), key),
                        "reward_chosen") &&
        !l->short_prompts) {
        keys[n++] = "train.reference=" REFERENCE;
        keys[n++] = "train.reference_cache=false";
    }
    if (more) keys[n++] = more;
    l->c = config_with(yaml, keys, n);
    arena *a = arena_new("test");
    status st = trial_open(&l->s, a, l->c, NULL, false, &e);
    if (st == ST_OK) st = hf_load_weights(l->s.setup.plan->store, POLICY, &e);
    if (st != ST_OK) fail_msg("%s", e.message);
}

static void lab_close(lab *l) {
    session_close(&l->s);
    config_free(l->c);
    npy_i32_free(&l->ids);
    npy_i32_free(&l->masks);
}

static const double NEAR = 1e-5;

/* A reward is a small difference of log-probabilities, which are sums in fp32. TRL's of orpo are means
 * over tokens. */
static void check_metrics(const lab *l, const char *key, const json_t *want, const int64_t *sums,
                          size_t step) {
    const struct {
        const char *name;
        int sum, count;
    } metrics[] = {{"reward_chosen", SUM_REWARD_CHOSEN, SUM_CHOSEN},
                   {"reward_rejected", SUM_REWARD_REJECTED, SUM_REJECTED},
                   {"logp_chosen", SUM_LOGP_CHOSEN, SUM_CHOSEN}};
    for (int i = 0; i < (l->short_prompts ? 2 : 3) && l->s.setup.objective->loss; i++) {
        near(objective_average(sums[metrics[i].sum], sums[metrics[i].count]),
             element(want, metrics[i].name, step),
             i == 2 ? NEAR : 1e-6 * fabs(element(want, "logp_chosen", step)), "%s: %s of step %zu",
             key, metrics[i].name, step);
    }
    if (json_object_get(want, "accuracy"))
        near((double)sums[SUM_WINS] / (double)sums[SUM_CHOSEN], element(want, "accuracy", step),
             1e-6, "%s: accuracy", key);
    if (json_object_get(want, "kl"))
        near(l->s.stage.kl, element(want, "kl", step), NEAR, "%s: kl", key);
}

static void check_weights(const lab *l, const char *key, const json_t *all) {
    const param_store *s = l->s.setup.plan->store;
    dev_room room = {0};
    const float *w =
        dev_look(l->s.setup.dev, param_master(s), (size_t)param_store_sizes(s).master_bytes, &room);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        const json_t *want = json_object_get(all, p->name);
        assert_non_null(want);
        double sum = 0, squares = 0, n = (double)param_elems(p), v[6];
        for (size_t k = 0; k < 6; k++) v[k] = json_number_value(json_array_get(want, k));
        for (int64_t k = 0; k < param_elems(p); k++) {
            double x = (double)w[p->offset + k];
            sum += x;
            squares += x * x;
        }
        near(sum, v[0], NEAR * sqrt(n * v[1]), "%s: %s, sum", key, p->name);
        near(squares, v[1], NEAR * v[1], "%s: %s, squares", key, p->name);
        for (int k = 0; k < 4; k++)
            near((double)w[p->offset + k], v[2 + k], NEAR, "%s: %s[%d]", key, p->name, k);
    }
    dev_room_free(&room);
}

static void train(const char *key, const json_t *file, const json_t *want, const char *more) {
    static const step_source golden_rows = {.count_targets = count_targets, .fill = fill};
    lab l;
    err e = {0};
    current = &l;
    lab_open(&l, key, file, more);
    for (size_t step = 0; step < (size_t)l.steps; step++) {
        step_result r;
        if (execute_step(&l.s, &golden_rows, NULL, &r, &e) != ST_OK) fail_msg("%s", e.message);
        near(execute_mean_loss(&r), element(want, "loss", step), NEAR, "%s: loss of step %zu", key,
             step);
        near(r.norm, element(want, "grad_norm", step), NEAR, "%s: norm of step %zu", key, step);
        check_metrics(&l, key, want, r.sums, step);
        execute_advance(&l.s, &r);
    }
    check_weights(&l, key, json_object_get(want, "params"));
    lab_close(&l);
}

static void test_steps(void **state) {
    (void)state;
    json_t *file = golden("steps.json"), *want;
    const char *key;
    int n = 0;
    json_object_foreach(json_object_get(file, "objectives"), key, want) {
        train(key, file, want, NULL);
        train(key, file, want, n++ % 2 ? "parallel.virtual=2" : "train.micro_batch_size=2");
    }
    assert_int_equal(n, 8);
    json_decref(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_losses),
                                       cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
