/* Reading order: calibrate_machine; measuring (run_case); the link. */
#include "train/bench/calibrate.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sort.h"
#include "base/yaml.h"
#include "op/peak.h"
#include "plan/clock/clock.h"
#include "train/bench/rates.h"
#include "train/bench/together.h"
#include "train/layouts/trial.h"

enum { LEAST_STEPS = 4, MOST_STEPS = 64, BATCH_ROUNDS = 2 };

/* Steps are warm-up for so long, and then measured for so long: threads, caches and clocks settle in time, not in steps. */
static const double warm_up_s = 0.1, measure_s = 0.3;

/* ---- what is measured ---- */

/* Models between them have the ops of most families, in sizes from those of a test to a layer of a model of 1B. */
static const struct {
    const char *model;
    int T, B, micro_batches;
} cases[] = {
    {"{model_type: llama, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2, "
     "num_key_value_heads: 1, intermediate_size: 176, vocab_size: 512}",
     64, 2, 2},
    {"{model_type: gpt2, n_embd: 128, n_layer: 2, n_head: 4, vocab_size: 1024, n_positions: 128}",
     128, 4, 1},
    {"{model_type: qwen3, hidden_size: 192, num_hidden_layers: 2, num_attention_heads: 6, "
     "num_key_value_heads: 2, head_dim: 32, intermediate_size: 512, vocab_size: 4096}",
     256, 2, 2},
    {"{model_type: llama, hidden_size: 256, num_hidden_layers: 2, num_attention_heads: 4, "
     "num_key_value_heads: 4, intermediate_size: 704, vocab_size: 8192, tie_word_embeddings: true}",
     512, 4, 1},
    {"{model_type: gpt2, n_embd: 384, n_layer: 2, n_head: 6, vocab_size: 2048, n_positions: 1024}",
     1024, 2, 1},
    {"{model_type: llama, hidden_size: 512, num_hidden_layers: 2, num_attention_heads: 8, "
     "num_key_value_heads: 2, intermediate_size: 1408, vocab_size: 16384}",
     256, 4, 1},
    {"{model_type: llama, hidden_size: 768, num_hidden_layers: 1, num_attention_heads: 12, "
     "num_key_value_heads: 4, intermediate_size: 2048, vocab_size: 8192, "
     "tie_word_embeddings: true}",
     512, 2, 1},
    /* few rows before a large vocabulary */
    {"{model_type: llama, hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 4, "
     "num_key_value_heads: 2, intermediate_size: 352, vocab_size: 16384}",
     64, 1, 2},
    /* more weights than caches hold: what the optimizer of a real model does */
    {"{model_type: llama, hidden_size: 512, num_hidden_layers: 1, num_attention_heads: 8, "
     "num_key_value_heads: 2, intermediate_size: 1408, vocab_size: 32768}",
     128, 1, 1},
    /* many rows of a narrow model before a large vocabulary */
    {"{model_type: llama, hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 4, "
     "num_key_value_heads: 2, intermediate_size: 384, vocab_size: 16384}",
     512, 4, 1},
    /* a model that stays in the last cache from step to step */
    {"{model_type: llama, hidden_size: 384, num_hidden_layers: 1, num_attention_heads: 6, "
     "num_key_value_heads: 2, intermediate_size: 1536, vocab_size: 512}",
     64, 2, 1},
    /* few rows through wide layers */
    {"{model_type: llama, hidden_size: 512, num_hidden_layers: 2, num_attention_heads: 8, "
     "num_key_value_heads: 8, intermediate_size: 2048, vocab_size: 4096}",
     64, 1, 1},
};
static const char *const precisions[] = {"fp32", "bf16"};

/* One rank of a calibration. */
typedef struct rank {
    pthread_t thread;
    comm_world *world;
    comm *all;
    int threads;
    int64_t deadline_ns;
    const cluster *of; /* with its limits */
    rate_samples got;
    double *host; /* seconds of a token, of each case */
    int n_host, cap_host;
    /* Seconds of a micro-batch: of the ops in which ranks meet, and of the others. */
    double met[ARRAY_LEN(cases)][RATES_ROUNDS], apart[ARRAY_LEN(cases)][RATES_ROUNDS];
    int mets[ARRAY_LEN(cases)];
    together_pair pairs[BATCH_ROUNDS * ARRAY_LEN(cases)];
    int n_pairs;
    comm_link link;
    cluster_curve link_by_mib;
    void (*on_case)(void *ctx, int i, int n);
    void *ctx;
    status st;
    err why;
} rank;

static status make_config(const rank *r, int i, const char *precision, const char *parallel,
                          config **out, err *e) {
    json_t *root = NULL;
    char text[1024];
    int ranks = parallel ? comm_world_size(r->world) : 1;
    snprintf(
        text, sizeof text,
        "{device: cpu, model: %s, optim: {lr: 1e-6}, parallel: %s, train: {steps: 10, seq_len: %d, "
        "micro_batch_size: %d, global_batch_size: %d, precision: %s, threads: %d}}",
        cases[i].model, parallel ? parallel : "{}", cases[i].T, cases[i].B,
        cases[i].B * cases[i].micro_batches * ranks, precision, r->threads);
    TRY(yaml_parse(&root, NULL, "calibration", text, strlen(text), e));
    status st = config_from_json(out, root, NULL, "calibration", NULL, 0, e);
    json_decref(root);
    return st;
}

/* ---- one case ---- */

/* Times of several steps: [step][what], where `what` is an op of the program, then norm and update, then the rest, then
 * all. */
typedef struct timing {
    arena *a;
    double *ns[MOST_STEPS];
    int steps, ops;
} timing;

/* The times of one step. */
static status time_step(session *s, timing *t, double **out, err *e) {
    int64_t *op_ns = ARENA_ARRAY(t->a, int64_t, t->ops);
    step_times times = {.op_ns = &op_ns};
    step_result r;
    TRY(trial_step(s, &times, NULL, NULL, &r, e));
    double *to = *out = ARENA_ARRAY(t->a, double, t->ops + 3), known;
    for (int k = 0; k < t->ops; k++) to[k] = (double)op_ns[k];
    known = to[t->ops] = (double)(times.norm_ns + times.update_ns);
    for (int k = 0; k < t->ops; k++) known += to[k];
    to[t->ops + 1] = (double)r.total_ns - known;
    to[t->ops + 2] = (double)r.total_ns;
    return ST_OK;
}

/* Whether the seconds since `began` are over, for all ranks alike. */
static bool is_over(const rank *r, int64_t began, double seconds) {
    int64_t over = clock_since_s(began) >= seconds;
    comm_sum_i64(r->all, &over, 1);
    return over > 0;
}

static status time_steps(const rank *r, session *s, timing *t, err *e) {
    double *warm;
    t->ops = prog_get_stats(s->stage.parts.chunk[0])->ops;
    int64_t began = clock_now_ns();
    do TRY(time_step(s, t, &warm, e));
    while (!is_over(r, began, warm_up_s));
    began = clock_now_ns();
    do TRY(time_step(s, t, &t->ns[t->steps++], e));
    while (t->steps < LEAST_STEPS || (t->steps < MOST_STEPS && !is_over(r, began, measure_s)));
    return ST_OK;
}

/* The median of a round. */
static double usual(const timing *t, int what) {
    double x[MOST_STEPS];
    for (int i = 0; i < t->steps; i++) x[i] = t->ns[i][what];
    return sort_median(x, t->steps) * 1e-9;
}

static void take_ops(rank *r, const session *s, const timing *t) {
    int micro = s->stage.table.micro_batches;
    double update = clock_update_share(s->setup.plan);
    for (int k = 0; k < t->ops; k++) {
        prog_op op = prog_get_op(s->stage.parts.chunk[0], k);
        double seconds = usual(t, k) / micro, ideal = roofline_ideal(r->of, &op);
        if (ideal <= 0 || together_meets(&op)) continue;
        rate_sample x = {.kind = op.kind,
                         .pass = roofline_pass(&op),
                         .format = roofline_format(&op),
                         .ideal = ideal};
        x.has_terms = roofline_terms(r->of, &op, update, x.count);
        rates_add_sample(&r->got, x, seconds);
    }
}

static void take_samples(rank *r, int i, const session *s, const timing *t) {
    (void)i;
    const plan *p = s->setup.plan;
    take_ops(r, s, t);
    double update = clock_update_bytes(p) / r->of->memory_bytes_per_s;
    rate_sample x = {.kind = OP_COUNT, .format = DT_F32, .ideal = update, .has_terms = true};
    roofline_update_terms(r->of, clock_update_bytes(p), clock_frame_bytes(p), x.count);
    rates_add_sample(&r->got, x, usual(t, t->ops));
    double tokens = (double)s->stage.B * s->stage.T * s->stage.table.micro_batches;
    VEC_PUSH(r->host, r->n_host, r->cap_host, usual(t, t->ops + 1) / tokens);
}

static void take_layers(rank *r, int i, const session *s, const timing *t) {
    double seconds[2] = {0, 0};
    take_ops(r, s, t);
    for (int k = 0; k < t->ops; k++) {
        prog_op op = prog_get_op(s->stage.parts.chunk[0], k);
        seconds[together_meets(&op)] += usual(t, k) / s->stage.table.micro_batches;
    }
    r->apart[i][r->mets[i]] = seconds[false];
    r->met[i][r->mets[i]++] = seconds[true];
}

static void say_layers(rank *r, int i, const session *s, const timing *t) {
    (void)t;
    together_pair *to = &r->pairs[r->n_pairs++];
    double met = sort_median(r->met[i], r->mets[i]), rest = sort_median(r->apart[i], r->mets[i]);
    *to = (together_pair){
        .kind = TOGETHER_LAYERS, .alone = {1, rest}, .together = {met, rest}, .said_alone = {1, 0}};
    together_say(to, s->setup.plan, r->of);
}

/* Of the median step. */
static together_time time_of(const timing *t) {
    together_time of = {.rest = usual(t, t->ops + 2)};
    for (int k = 0; k < t->ops; k++) of.kernels += usual(t, k);
    of.rest -= of.kernels;
    return of;
}

static void take_alone(rank *r, int i, const session *s, const timing *t) {
    (void)i;
    together_pair *to = &r->pairs[r->n_pairs];
    to->alone = time_of(t);
    to->said_alone = together_step(s->setup.plan, r->of);
}

static void take_together(rank *r, int i, const session *s, const timing *t) {
    (void)i;
    together_pair *to = &r->pairs[r->n_pairs++];
    to->kind = TOGETHER_BATCH;
    to->together = time_of(t);
    together_say(to, s->setup.plan, r->of);
}

/* What is made of the times of model i's steps. */
typedef struct use {
    void (*take)(rank *r, int i, const session *s, const timing *t);
    const char *parallel; /* NULL: each rank trains its own model, else all one */
    bool planned; /* there are no steps: what was measured before is compared with the plan */
} use;
static const use as_samples = {take_samples, NULL, false}, layers = {take_layers, "{tp: 2}", false},
                 alone = {take_alone, NULL, false}, said_layers = {say_layers, "{tp: 2}", true},
                 together[] = {{take_together, "{}", false}, {take_together, "{zero: 3}", false}};

static status run_case(rank *r, int i, const char *precision, use as, err *e) {
    session s = {0};
    config *c = NULL;
    TRY(make_config(r, i, precision, as.parallel, &c, e));
    timing t = {.a = arena_new("calibration")};
    status st = trial_open(&s, arena_new("a case"), c, as.parallel ? r->world : NULL, true, e);
    comm_barrier(r->all);
    if (st == ST_OK && !as.planned) st = time_steps(r, &s, &t, e);
    if (st == ST_OK) as.take(r, i, &s, &t);
    trial_close(&s, r->world, st, e);
    config_free(c);
    arena_free(t.a);
    return st;
}

/* Whether the time is up, for all ranks alike; the smallest models are measured in any case. i: how many models were. */
static bool time_is_up(rank *r, int i) {
    enum { LEAST = 2 };
    int64_t late = clock_now_ns() > r->deadline_ns;
    comm_sum_i64(r->all, &late, 1);
    return late > 0 && i >= LEAST;
}

/* What cases are run as in one round. Ranks that share the layers have ops of their own. */
typedef struct turns {
    use as[3];
    int n;
} turns;

static turns turns_of(const rank *r) {
    bool halves = comm_size(r->all) % 2 == 0;
    return (turns){{as_samples, as_samples, layers}, halves ? 3 : 2};
}

static const char *precision_of(int i, int turn) {
    int n = ARRAY_LEN(precisions);
    return precisions[turn < n ? turn : i % n];
}

static void show(const rank *r, int i, int n) {
    if (r->on_case && comm_rank(r->all) == 0) r->on_case(r->ctx, i, n);
}

/* Each model in each precision, the small ones first, and all again after others may have disturbed. */
static void *run_cases(void *arg) {
    rank *r = arg;
    turns each = turns_of(r);
    int n = ARRAY_LEN(cases) * each.n, all = RATES_ROUNDS * n;
    for (int i = 0; i < all && r->st == ST_OK && !time_is_up(r, i / each.n); i++) {
        int at = i % n / each.n, turn = i % each.n;
        if (i % n == 0) rates_begin_round(&r->got);
        show(r, i, all);
        r->st = run_case(r, at, precision_of(at, turn), each.as[turn], &r->why);
    }
    if (r->st != ST_OK) comm_fail(r->world, &r->why);
    return NULL;
}

/* How long ranks that share the layers have waited for each other, beside what the rates say of it. */
static void *fit_layers(void *arg) {
    rank *r = arg;
    int turn = ARRAY_LEN(precisions);
    for (int i = 0; i < (int)ARRAY_LEN(cases) && r->st == ST_OK; i++)
        if (r->mets[i] > 0) r->st = run_case(r, i, precision_of(i, turn), said_layers, &r->why);
    if (r->st != ST_OK) comm_fail(r->world, &r->why);
    return NULL;
}

/* Models alone and together, one after the other: what others do on the machine meanwhile has changed since the samples. */
static void *run_batches(void *arg) {
    rank *r = arg;
    int n = ARRAY_LEN(cases), all = BATCH_ROUNDS * n;
    for (int i = 0; i < all && r->st == ST_OK && !time_is_up(r, i); i++) {
        int at = i % n, sharing = (i + i / n) % (int)ARRAY_LEN(together);
        const char *precision = precision_of(at / 2, ARRAY_LEN(precisions));
        show(r, i, all);
        r->st = run_case(r, at, precision, alone, &r->why);
        if (r->st == ST_OK) r->st = run_case(r, at, precision, together[sharing], &r->why);
    }
    if (r->st != ST_OK) comm_fail(r->world, &r->why);
    return NULL;
}

static void on_threads(rank *ranks, int n, void *(*work)(void *)) {
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&ranks[i].thread, NULL, work, &ranks[i]) == 0, "no thread for rank %d",
              i);
    for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

/* One rank works in the thread that calls, which has helpers already. With those of a second thread there were more than
 * processors, and libgomp lets helpers sleep at once then: small ops took up to six times as long as in a run. */
static status on_all(rank *ranks, int n, void *(*work)(void *), err *e) {
    if (n == 1)
        work(&ranks[0]);
    else
        on_threads(ranks, n, work);
    for (int i = 0; i < n; i++) {
        if (ranks[i].st == ST_OK) continue;
        if (e) *e = ranks[i].why;
        return ranks[i].st;
    }
    return ST_OK;
}

/* ---- the link ---- */

/* The median of several all-reduces of n numbers, beside the thread that waits for them. */
static double time_sums(rank *r, float *x, int64_t n, int runs) {
    enum { MOST = 64 };
    double s[MOST];
    for (int i = 0; i < runs; i++) {
        comm_call call = {.kind = COMM_ALL_REDUCE,
                          .in = x,
                          .out = x,
                          .n = n,
                          .dt = DT_F32,
                          .what = "a calibration"};
        comm_barrier(r->all);
        int64_t began = clock_now_ns();
        comm_wait(r->world, comm_start(r->all, &call));
        s[i] = clock_since_s(began);
    }
    return sort_median(s, runs);
}

/* A small all-reduce is two messages; large ones tell the rate, which falls where caches end. */
static void *measure_link(void *arg) {
    enum {
        LARGE = 16 << 20,
        SMALL = LARGE >> 6
    }; /* numbers: the larger are more than caches hold */
    rank *r = arg;
    int ranks = comm_size(r->all), me = comm_rank(r->all);
    float *x = xcalloc(LARGE, sizeof *x);
    cluster_curve rate = {0};
    double best = 0;
    time_sums(r, x, LARGE, 1);
    double latency = time_sums(r, x, 1, 50);
    for (int64_t n = SMALL; n <= LARGE; n *= 4) {
        comm_call call = {.kind = COMM_ALL_REDUCE, .n = n, .dt = DT_F32};
        double seconds = time_sums(r, x, n, 7), sent = (double)comm_call_sends(&call, me, ranks);
        rate.x[rate.n] = sent / (1 << 20);
        rate.y[rate.n++] = sent / (seconds > latency ? seconds - latency : seconds);
    }
    for (int i = 0; i < rate.n; i++) best = fmax(best, rate.y[i]);
    for (int i = 0; i < rate.n; i++) rate.y[i] /= best;
    r->link = (comm_link){latency / 2, best};
    r->link_by_mib = rate;
    free(x);
    return NULL;
}

/* ---- the machine ---- */

static status find_limits(cluster *c, int ranks, err *e) {
    dev *d;
    TRY(dev_open(&d, DEV_CPU, 0, e));
    if (ranks > dev_threads(d)) {
        err_set(e, ST_USAGE, "%d ranks need more than the %d threads of this machine", ranks,
                dev_threads(d));
        dev_close(d);
        return ST_USAGE;
    }
    *c = (cluster){.kind = DEV_CPU, .per_node = ranks, .nodes = 1};
    snprintf(c->name, sizeof c->name, ranks > 1 ? "local-%d" : "local", ranks);
    dev_machine_name(c->device_name);
    snprintf(c->source, sizeof c->source, "athanor doctor calibrate");
    for (int f = 0; f < CLUSTER_FORMATS; f++) c->peak_flops[f] = peak_flops(d, (dtype)f) / ranks;
    status st = peak_bandwidth(d, 1, &c->memory_bytes_per_s, e);
    if (st == ST_OK) st = peak_cache_bytes(d, &c->cache_bytes, e);
    c->memory_bytes_per_s /= ranks;
    c->cache_bytes /= ranks;
    c->near_bytes = peak_near_bytes(d) / ranks;
    c->memory_bytes = (double)dev_machine_total_bytes() / ranks;
    c->node = c->network = (cluster_link){1e10, 1e-6, 1};
    dev_close(d);
    cluster_index(c);
    return st;
}

static status join(rank *r, int segment, int i, int n, err *e) {
    if (n == 1)
        r->world = comm_open_self();
    else
        TRY(comm_open_segment(&r->world, segment, i, n, e));
    int *all = xcalloc((size_t)n, sizeof *all);
    for (int k = 0; k < n; k++) all[k] = k;
    r->all = comm_group(r->world, all, n);
    free(all);
    return ST_OK;
}

/* Ranks of a run are processes, which send through a segment what threads would read where it lies. */
static status open_ranks(rank *ranks, int n, const cluster *c, err *e) {
    int segment = -1;
    if (n > 1) TRY(comm_segment_new(n, &segment, e));
    status st = ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++) {
        st = join(&ranks[i], segment, i, n, e);
        ranks[i].threads = n > 1 ? comm_core_share(n) : 0;
        ranks[i].of = c;
    }
    if (segment >= 0) close(segment);
    return st;
}

static void *close_rank(void *arg) {
    rank *r = arg;
    if (r->world) comm_close(r->world);
    rates_free(&r->got);
    free(r->host);
    return NULL;
}

static void end_after(rank *ranks, int n, double seconds) {
    for (int i = 0; i < n; i++) ranks[i].deadline_ns = clock_now_ns() + (int64_t)(seconds * 1e9);
}

static status measure(rank *ranks, int n, double seconds, cluster *c, err *e) {
    const double first = n > 1 ? 0.6 : 1; /* the rest is for all ranks together */
    end_after(ranks, n, first * seconds);
    TRY(on_all(ranks, n, run_cases, e));
    rates_add_to(c, &ranks[0].got);
    c->token_s = sort_median(ranks[0].host, ranks[0].n_host);
    if (n == 1) return ST_OK;
    TRY(on_all(ranks, n, measure_link, e));
    c->node = c->network = (cluster_link){ranks[0].link.bytes_per_s, ranks[0].link.latency_s, 1};
    c->node_by_mib = ranks[0].link_by_mib;
    /* How long ranks wait for each other is known before it is asked what their transfers do. */
    TRY(on_all(ranks, n, fit_layers, e));
    together_fit(c, ranks[0].pairs, ranks[0].n_pairs);
    for (int i = 0; i < n; i++) ranks[i].n_pairs = 0;
    end_after(ranks, n, (1 - first) * seconds);
    TRY(on_all(ranks, n, run_batches, e));
    together_fit(c, ranks[0].pairs, ranks[0].n_pairs);
    return ST_OK;
}

status calibrate_machine(int ranks, double seconds, void (*on_case)(void *ctx, int i, int n),
                         void *ctx, cluster *out, err *e) {
    TRY(find_limits(out, ranks, e));
    rank *r = xcalloc((size_t)ranks, sizeof *r);
    for (int i = 0; i < ranks; i++) {
        r[i].on_case = on_case;
        r[i].ctx = ctx;
    }
    status st = open_ranks(r, ranks, out, e);
    if (st == ST_OK) st = measure(r, ranks, seconds, out, e);
    err ignored = {0};
    (void)!on_all(r, ranks, close_rank, &ignored);
    free(r);
    return st;
}
