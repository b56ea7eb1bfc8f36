/* Reading order: measured_predict, measured_judge, measured_fit. Rows are read by measured_read.c. */
#include "plan/clock/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/yaml.h"

/* ---- predicting ---- */

/* Products of 8 bits: on H100 the best of large ones reach 1403 TFLOP/s, of 16 bits 794 (ml-engineering's mamf-finder). */
static runtime runtime_of(const runtime *t, const measured_row *x) {
    static const double PRODUCTS_OF_8_BITS = 794.5 / 1402.6;
    runtime own = *t;
    if (x->fp8) {
        own.products *= PRODUCTS_OF_8_BITS;
        own.experts *= PRODUCTS_OF_8_BITS;
    } else {
        own.casts = 0;
    }
    return own;
}

static void predict(const measured_rows *r, measured_row *x, const runtime *t, cluster *on) {
    sketch_result s;
    runtime own = runtime_of(t, x);
    on->nodes = x->nodes;
    x->predicted = 0;
    if (sketch_time(&r->sketch[x->sketch], &x->layout, on, &own, &s, NULL) != ST_OK) return;
    x->predicted =
        x->only_bubble ? 1 / (1 + clock_bubble(&s.time)) : s.time.tokens / s.time.step_s / x->gpus;
    x->memory_bytes = s.memory_bytes;
    x->fill = own.fill;
}

void measured_predict(measured_rows *r, const measured_model *m) {
    cluster on = m->c;
    int on_device = 0;
    for (int i = 0; i < r->n; i++) {
        measured_row *x = &r->row[i];
        if (x->device != on_device) on = x->device ? r->device[x->device] : m->c;
        on_device = x->device;
        predict(r, x, &m->t, &on);
    }
}

/* By measured_row.whose. */
static const char *const runtime_names[] = {"athanor", "nanotron-0.5", "megatron", "torchtitan",
                                            "megatron-core"};

/* Of another program's kernels only what its own fit could not see, as torchtitan's was fitted on A100 and H100 with rows of 16 bits: the
 * FlashAttention of later Megatrons than the one of 2022, and dense products of 16 bits in megatron-core, whose dense rows were all of 8. */
static void borrow_kernels(const measured_rows *r, const measured_row *x, measured_model *m) {
    measured_model lender;
    bool dense = !r->sketch[x->sketch].spec.model.num_experts,
         core = !strcmp(runtime_names[x->whose], "megatron-core");
    CHECK(measured_as(&lender, "torchtitan", &m->c, NULL) == ST_OK, "no runtime of torchtitan's");
    if (x->flash) m->t.attention = fmin(m->t.attention, lender.t.attention);
    if (core && dense && !x->fp8) m->t.products = fmax(m->t.products, lender.t.products);
}

void measured_predict_published(measured_rows *r) {
    for (int i = 0; i < r->n; i++) {
        measured_row *x = &r->row[i];
        measured_model m;
        const cluster *c = r->n_devices ? &r->device[x->device] : &r->c;
        CHECK(measured_as(&m, runtime_names[x->whose], c, NULL) == ST_OK, "no runtime %d",
              x->whose);
        borrow_kernels(r, x, &m);
        predict(r, x, &m.t, &m.c);
    }
}

/* ---- judging ---- */

static double median(double *x, int n) {
    return n ? sort_median(x, n) : 0;
}

static bool counts(const measured_row *x) {
    return x->ok && x->tok_per_s_gpu > 0 && x->predicted > 0;
}

/* How many of the n in order are below v, or not above it. */
static int count_below(const double *sorted, int n, double v, bool or_equal) {
    int low = 0, high = n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (sorted[mid] < v || (or_equal && sorted[mid] == v))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Each becomes how many of the n are smaller, ties half. scratch: [n]. */
static void rank_all(double *x, int n, double *scratch) {
    memcpy(scratch, x, (size_t)n * sizeof *x);
    sort_doubles(scratch, n);
    for (int i = 0; i < n; i++)
        x[i] = 0.5 * (count_below(scratch, n, x[i], false) + count_below(scratch, n, x[i], true));
}

/* without: where one of them does not vary. */
static double correlation(const double *x, const double *y, int n, double without) {
    double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < n; i++) sx += x[i], sy += y[i];
    for (int i = 0; i < n; i++) {
        double a = x[i] - sx / n, b = y[i] - sy / n;
        xx += a * a, yy += b * b, xy += a * b;
    }
    return xx * yy > 0 ? xy / sqrt(xx * yy) : without;
}

/* As in the file. */
static int in_order(const measured_row *x, const measured_row *y) {
    return (x > y) - (x < y);
}

static int by_batch(const void *a, const void *b) {
    const measured_row *x = *(const measured_row *const *)a, *y = *(const measured_row *const *)b;
    if (x->cell != y->cell) return x->cell < y->cell ? -1 : 1;
    if (x->batch != y->batch) return x->batch < y->batch ? -1 : 1;
    return in_order(x, y);
}

/* By cell, tp, pp and ZeRO. */
static int compare_ways(const measured_row *x, const measured_row *y) {
    if (x->cell != y->cell) return x->cell < y->cell ? -1 : 1;
    if (x->layout.key.tp != y->layout.key.tp) return x->layout.key.tp < y->layout.key.tp ? -1 : 1;
    if (x->layout.pp != y->layout.pp) return x->layout.pp < y->layout.pp ? -1 : 1;
    return (x->layout.zero > y->layout.zero) - (x->layout.zero < y->layout.zero);
}

static int by_way(const void *a, const void *b) {
    const measured_row *x = *(const measured_row *const *)a, *y = *(const measured_row *const *)b;
    int order = compare_ways(x, y);
    return order ? order : in_order(x, y);
}

static const measured_row **sorted_rows(const measured_rows *r, arena *a,
                                        int (*order)(const void *, const void *)) {
    const measured_row **list = ARENA_ARRAY(a, const measured_row *, r->n);
    for (int i = 0; i < r->n; i++) list[i] = &r->row[i];
    qsort(list, (size_t)r->n, sizeof *list, order);
    return list;
}

/* Of each row whether it is the best of those of its cell with its tp, pp and ZeRO, by what is measured. */
static bool *mark_bests(const measured_rows *r, arena *a) {
    const measured_row **list = sorted_rows(r, a, by_way);
    bool *best = ARENA_ARRAY(a, bool, r->n);
    for (int from = 0, to; from < r->n; from = to) {
        double most = 0;
        for (to = from; to < r->n && compare_ways(list[to], list[from]) == 0; to++)
            if (counts(list[to]) && list[to]->tok_per_s_gpu > most) most = list[to]->tok_per_s_gpu;
        for (int i = from; i < to; i++) best[list[i] - r->row] = list[i]->tok_per_s_gpu >= most;
    }
    return best;
}

/* Of the n rows of a cell, by batch: where those of the batch begin that most have (of two the one that comes first in the file), and how
 * many they are. Layouts of other batches do another work. */
static int usual_batch(const measured_row **list, int n, int *of) {
    int usual = 0, most = 0;
    const measured_row *usual_first = NULL;
    *of = 0;
    for (int from = 0, to; from < n; from = to) {
        int k = 0;
        const measured_row *first = NULL;
        for (to = from; to < n && list[to]->batch == list[from]->batch; to++) {
            if (list[to]->stalls) continue;
            if (k++ == 0) first = list[to];
        }
        if (k < most || k == 0 || (k == most && first > usual_first)) continue;
        most = k;
        usual = from;
        usual_first = first;
        *of = to - from;
    }
    return usual;
}

typedef struct judging {
    const measured_rows *r;
    const bool *best;
    double *x, *y, *scratch, *rho; /* [rows] */
    measured_score *s;
} judging;

/* One cell, its rows of the usual batch: order, and what the chosen layout loses. Rows that stall are apart: nothing in their layout
 * says so. */
static void judge_cell(const judging *j, const measured_row **list, int n) {
    measured_regret regret = {.lost = 0};
    measured_score *s = j->s;
    int ranked = 0;
    for (int i = 0; i < n; i++) {
        const measured_row *k = list[i];
        if (!counts(k) || k->stalls || k->only_bubble) continue;
        if (!regret.best || k->tok_per_s_gpu > regret.best->tok_per_s_gpu) regret.best = k;
        if (!regret.chosen || k->predicted > regret.chosen->predicted) regret.chosen = k;
        if (!j->best[k - j->r->row]) continue;
        j->x[ranked] = k->predicted;
        j->y[ranked++] = k->tok_per_s_gpu;
    }
    if (ranked < 3) return;
    rank_all(j->x, ranked, j->scratch);
    rank_all(j->y, ranked, j->scratch);
    j->rho[s->cells] = correlation(j->x, j->y, ranked, 1);
    regret.lost = 1 - regret.chosen->tok_per_s_gpu / regret.best->tok_per_s_gpu;
    s->regret_5 += regret.lost <= 0.05;
    s->regret_10 += regret.lost <= 0.1;
    s->regret[s->cells++] = regret;
}

static void judge_cells(judging *j, arena *a) {
    const measured_row **list = sorted_rows(j->r, a, by_batch);
    for (int from = 0, to; from < j->r->n; from = to) {
        for (to = from; to < j->r->n && list[to]->cell == list[from]->cell; to++) continue;
        int n, at = from + usual_batch(list + from, to - from, &n);
        judge_cell(j, list + at, n);
    }
    j->s->spearman = median(j->rho, j->s->cells);
}

/* Whether it fits, of all rows; how much it is, of those that tell. */
static void judge_memory(judging *j) {
    const measured_rows *r = j->r;
    measured_score *s = j->s;
    double ok = 0, failed = 0;
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        bool fits = x->memory_bytes <= x->fill * cluster_usable_bytes(&r->device[x->device]);
        ok += x->ok;
        failed += !x->ok;
        s->kept_success += x->ok && fits;
        s->rejected_fail += !x->ok && !fits;
        if (!counts(x) || x->measured_bytes <= 0) continue;
        j->x[s->memory_rows] = x->memory_bytes;
        j->y[s->memory_rows] = x->measured_bytes;
        j->scratch[s->memory_rows++] = x->memory_bytes / x->measured_bytes;
    }
    s->kept_success /= ok > 0 ? ok : 1;
    s->rejected_fail /= failed > 0 ? failed : 1;
    double rho = correlation(j->x, j->y, s->memory_rows, NAN);
    s->memory_r2 = rho * rho;
    s->memory_ratio = median(j->scratch, s->memory_rows);
}

measured_score measured_judge(const measured_rows *r) {
    arena *a = arena_new("judging");
    measured_score s = {.rows = r->all, .regret = ARENA_ARRAY(r->a, measured_regret, r->n)};
    judging j = {.r = r,
                 .best = mark_bests(r, a),
                 .x = ARENA_ARRAY(a, double, r->n),
                 .y = ARENA_ARRAY(a, double, r->n),
                 .scratch = ARENA_ARRAY(a, double, r->n),
                 .rho = ARENA_ARRAY(a, double, r->n),
                 .s = &s};
    int n = 0, n_stalls = 0;
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        if (!counts(x)) continue;
        double e = fabs(x->predicted / x->tok_per_s_gpu - 1);
        if (x->stalls)
            j.y[n_stalls++] = e;
        else
            j.x[n++] = e;
    }
    s.used = n + n_stalls;
    s.median = median(j.x, n);
    s.median_stalls = median(j.y, n_stalls);
    judge_cells(&j, a);
    judge_memory(&j);
    arena_free(a);
    return s;
}

/* ---- models ---- */

/* A number of a model that can be fitted, and what it came to for other programs (measured_runtimes). */
enum { RUNTIMES = 4 };
typedef struct number {
    const char *name;
    size_t at;
    double low, high, start;
    double fitted[RUNTIMES];
    bool of_memory;
} number;

/* nanotron-0.5: the successful rows of the Ultra-Scale Playbook's benchmarks on 1, 2, 8 and 32 nodes of 8 H100 (844). megatron: 22B and
 * 530B of Korthikanti et al. 2022 on A100, four rows; 175B and 1T were held out. torchtitan: nine rows of its tables of December 2024 on H100,
 * every second one, and every second one of MosaicML's tables of FSDP on H100 and A100 (llm-foundry, scripts/train/benchmarking); the
 * others were held out. megatron-core: 26 rows of mixtures of experts and 11 dense ones of Megatron
 * Bridge's performance summaries 25.11 and 26.02.01 on H100, B200, B300, GB200, GB300; of its
 * numbers launch_s, expert_launch_s, experts, casts, rows_hidden and tp_hidden were fitted, and others' experts are as its are beside
 * their products. nanotron's logit_bytes are those of its cross entropy, which has logits, these without
 * their maximum, and exponentials, each in fp32; the others' have not been fitted. */
static const char *const runtimes[RUNTIMES] = {"nanotron-0.5", "megatron", "torchtitan",
                                               "megatron-core"};

#define OF(member) offsetof(measured_model, member)
static const double network_nodes[] = {2, 8, 32}, send_nodes[] = {1, 2, 8, 32};
static const number numbers[] = {
    {"products", OF(t.products), 0.5, 3, 1, {1.834, 1.083, 1.25, 1}, false},
    {"attention", OF(t.attention), 0.3, 5, 1, {0.3807, 5, 1.799, 1}, false},
    {"other", OF(t.other), 0.5, 10, 1, {0.6345, 0.5, 5.148, 1}, false},
    {"casts", OF(t.casts), 1e-3, 20, 1, {1e-3, 1e-3, 0.3644, 4.878}, false},
    {"experts", OF(t.experts), 0.3, 5, 1, {2.318, 1.369, 1.58, 1.264}, false},
    {"expert_launch_s",
     OF(t.expert_launch_s),
     1e-7,
     1e-3,
     1e-5,
     {7.2e-5, 7.2e-5, 7.2e-5, 7.2e-5},
     false},
    {"rows_hidden", OF(t.rows_hidden), 1e-3, 0.9, 0.05, {1e-3, 1e-3, 1e-3, 0.3395}, false},
    {"launch_s", OF(t.launch_s), 1e-6, 1e-3, 1e-4, {0.0001114, 0.0001, 0.0001022, 0.00017}, false},
    {"tp_hidden", OF(t.tp_hidden), 1e-3, 0.9, 0.05, {0.001, 0.391, 0.9, 0.859}, false},
    {"dp_usable", OF(t.dp_usable), 0.01, 1, 1, {0.8593, 1, 0.8063, 1}, false},
    {"dp_calls", OF(t.dp_calls), 0.05, 20, 1, {0.1806, 1, 0.05, 1}, false},
    {"dp_calls_of_gb", OF(t.dp_calls_of_gb), 1e-3, 1000, 1, {3.152, 1e-3, 0.005645, 1e-3}, false},
    {"send_s_1_node", OF(t.send_s.y[0]), 1e-6, 5, 1e-5, {1.269e-06, 1e-05, 1e-05, 1e-06}, false},
    {"send_s_2_nodes", OF(t.send_s.y[1]), 1e-6, 5, 1e-5, {1e-06, 1e-05, 1e-05, 1e-06}, false},
    {"send_s_8_nodes", OF(t.send_s.y[2]), 1e-6, 5, 1e-4, {6.965e-06, 0.0001, 0.0001, 1e-06}, false},
    {"send_s_32_nodes",
     OF(t.send_s.y[3]),
     1e-6,
     5,
     1e-3,
     {0.0001393, 0.000128, 0.04061, 1e-06},
     false},
    {"pipe_rank_s",
     OF(t.pipe_rank_s),
     1e-7,
     1e-2,
     1e-5,
     {0.0002415, 1e-05, 3.513e-05, 1e-07},
     false},
    {"step_s", OF(t.step_s), 1e-4, 1, 5e-3, {0.01795, 0.000639, 0.0001957, 1e-4}, false},
    {"node_reached", OF(c.node.reached), 0.05, 1.2, 0.8, {1.2, 0.465, 0.8671, 0.8}, false},
    {"network_latency_s",
     OF(c.network.latency_s),
     1e-6,
     1e-3,
     2e-5,
     {0.0002999, 1e-06, 1.646e-06, 1.2e-05},
     false},
    {"straggle", OF(c.straggle), 1e-3, 0.5, 0.02, {0.001114, 0.157, 0.001928, 0.02}, false},
    {"network_2_nodes", OF(c.network_by_nodes.y[0]), 0.3, 1.2, 0.8, {0.8915, 1.2, 1.2, 0.8}, false},
    {"network_8_nodes", OF(c.network_by_nodes.y[1]), 0.3, 1.2, 0.8, {0.3152, 0.8, 1.2, 0.8}, false},
    {"network_32_nodes",
     OF(c.network_by_nodes.y[2]),
     0.3,
     1.2,
     0.8,
     {0.6403, 0.8, 1.031, 0.8},
     false},
    {"fill", OF(t.fill), 0.3, 1, 1, {0.8748, 0.752, 1, 1}, true},
    {"logit_bytes", OF(t.logit_bytes), 1e-3, 20, 4, {10.83, 1e-3, 1e-3, 1e-3}, true},
    {"kept", OF(t.kept), 0.5, 10, 2, {1.719, 2, 0.5819, 1}, true},
    {"extra_bytes", OF(t.extra_bytes), 1e6, 2e10, 2e9, {2.446e8, 2e+09, 2e+10, 1e8}, true},
};

static double *number_at(measured_model *m, int i) {
    return (double *)((char *)m + numbers[i].at);
}

measured_model measured_plain(const cluster *c) {
    return (measured_model){*c, runtime_athanor};
}

/* Numbers that depend on the nodes have their points. */
static measured_model with_curves(const cluster *c) {
    measured_model m = measured_plain(c);
    m.t.balanced = true;
    m.t.dispatches = c->kind == DEV_CUDA; /* of CPUs rows are this program's */
    m.t.own = !m.t.dispatches;
    m.c.network_by_nodes.n = ARRAY_LEN(network_nodes);
    m.t.send_s.n = ARRAY_LEN(send_nodes);
    memcpy(m.c.network_by_nodes.x, network_nodes, sizeof network_nodes);
    memcpy(m.t.send_s.x, send_nodes, sizeof send_nodes);
    return m;
}

measured_model measured_start(const cluster *c) {
    measured_model m = with_curves(c);
    for (int i = 0; i < ARRAY_LEN(numbers); i++) *number_at(&m, i) = numbers[i].start;
    return m;
}

status measured_as(measured_model *out, const char *name, const cluster *c, err *e) {
    *out = measured_plain(c);
    if (strcmp(name, "athanor") == 0) return ST_OK;
    for (int k = 0; k < RUNTIMES; k++) {
        if (strcmp(name, runtimes[k]) != 0) continue;
        *out = with_curves(c);
        for (int i = 0; i < ARRAY_LEN(numbers); i++) *number_at(out, i) = numbers[i].fitted[k];
        return ST_OK;
    }
    err_at(e, ST_USAGE, "--as", "'%s' is no runtime", name);
    return err_hint(e, "there are athanor, nanotron-0.5, megatron, torchtitan, megatron-core, and "
                       "published: each row "
                       "by the one that its source names; plan fit makes others");
}

json_t *measured_json(const measured_model *m) {
    measured_model copy = *m;
    json_t *fitted = json_object();
    for (int i = 0; i < ARRAY_LEN(numbers); i++)
        json_object_set_new(fitted, numbers[i].name, json_f64(*number_at(&copy, i)));
    return json_pack("{s:o,s:o}", "cluster", cluster_json(&m->c), "runtime", fitted);
}

static bool is_number_of_ours(const char *name) {
    for (int i = 0; i < ARRAY_LEN(numbers); i++)
        if (strcmp(name, numbers[i].name) == 0) return true;
    return false;
}

static status refuse_key(const char *path, const char *group, const char *key, err *e) {
    err_at(e, ST_FORMAT, path, "%s: %s%s is no key of what plan fit writes", path, group, key);
    if (e) text_make_plain(e->message);
    return ST_FORMAT;
}

/* A key that nobody reads is a mistake. */
static status check_keys(const json_t *root, const char *path, err *e) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        bool known = strcmp(key, "cluster") == 0 || strcmp(key, "runtime") == 0;
        if (!known) return refuse_key(path, "", key, e);
    }
    json_object_foreach(json_object_get(root, "runtime"), key, v) {
        if (!is_number_of_ours(key)) return refuse_key(path, "runtime.", key, e);
    }
    return ST_OK;
}

static status read_model(measured_model *out, const json_t *root, const char *path, err *e) {
    const json_t *fitted = json_object_get(root, "runtime");
    cluster c;
    TRY(check_keys(root, path, e));
    TRY(cluster_read(&c, json_object_get(root, "cluster"), NULL, path, e));
    *out = with_curves(&c);
    for (int i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *v = json_object_get(fitted, numbers[i].name);
        double x = json_number_value(v);
        *number_at(out, i) = x;
        if (json_is_number(v) && x >= numbers[i].low * 0.999 && x <= numbers[i].high * 1.001)
            continue;
        err_at(e, ST_FORMAT, path, "%s: runtime.%s is no number from %g to %g", path,
               numbers[i].name, numbers[i].low, numbers[i].high);
        return v ? ST_FORMAT
                 : err_hint(e, "an earlier version made it, without that number: run athanor plan "
                               "fit again");
    }
    return ST_OK;
}

status measured_load(measured_model *out, const char *path, err *e) {
    json_t *root;
    TRY(yaml_load_data(&root, NULL, path, e));
    status st = read_model(out, root, path, e);
    json_decref(root);
    return st;
}

/* ---- fitting ---- */

/* Mean of |log(predicted / measured)|. Of times much counts as 1: some rows are of a sick cluster. Memory is not sick, and
 * where a fit begins it may be far off. */
static double loss_of(measured_rows *r, const measured_model *m, int without, bool of_memory) {
    double sum = 0;
    int n = 0;
    measured_predict(r, m);
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        if (!counts(x) || x->stalls || x->cell == without) continue;
        if (of_memory && x->measured_bytes <= 0) continue;
        double d = fabs(of_memory ? log(x->memory_bytes / x->measured_bytes)
                                  : log(x->predicted / x->tok_per_s_gpu));
        sum += d < 1 || of_memory ? d : 1;
        n++;
    }
    return n ? sum / n : 0;
}

/* Tries number i up and down by a factor; returns the least loss. */
static double turn(measured_rows *r, measured_model *m, int without, int i, double step,
                   double best) {
    double *x = number_at(m, i);
    for (int down = 0; down < 2; down++) {
        double was = *x, next = down ? was / step : was * step;
        *x = next < numbers[i].low    ? numbers[i].low
             : next > numbers[i].high ? numbers[i].high
                                      : next;
        double now = loss_of(r, m, without, numbers[i].of_memory);
        if (now < best)
            best = now;
        else
            *x = was;
    }
    return best;
}

/* Each number by turns, by factors that shrink. */
static void descend(measured_rows *r, measured_model *m, int without, bool of_memory) {
    enum { ROUNDS = 20 };
    double step = 2, best = loss_of(r, m, without, of_memory);
    for (int round = 0; round < ROUNDS && step > 1.02; round++) {
        double before = best;
        for (int i = 0; i < ARRAY_LEN(numbers); i++)
            if (numbers[i].of_memory == of_memory) best = turn(r, m, without, i, step, best);
        if (before - best < 0.002) step = sqrt(step);
    }
}

/* So that few successful rows would have been refused: what is reserved but unused differs from run to run. */
static void fit_fill(const measured_rows *r, measured_model *m, int without) {
    static const double KEPT = 0.997;
    double *need = xcalloc((size_t)r->n + 1, sizeof *need), usable = cluster_usable_bytes(&m->c);
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (counts(&r->row[i]) && r->row[i].cell != without) need[n++] = r->row[i].memory_bytes;
    sort_doubles(need, n);
    double fill = n ? need[(int)(KEPT * (n - 1))] / usable : 1;
    m->t.fill = fill > 1 ? 1 : fill < 0.3 ? 0.3 : fill;
    free(need);
}

/* Of time, by a second descent from large factors, since the first may end in a local minimum; then of memory. */
void measured_fit(measured_rows *r, measured_model *m, int without) {
    descend(r, m, without, false);
    descend(r, m, without, false);
    descend(r, m, without, true);
    fit_fill(r, m, without);
    measured_predict(r, m);
}
