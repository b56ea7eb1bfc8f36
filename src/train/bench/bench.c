/* A session without data, and its steps. */
#include "train/bench/bench.h"

#include <stdlib.h>

#include "base/rng.h"
#include "op/peak.h"
#include "train/execute.h"

struct bench {
    session s;
    bench_facts facts;
    step_times *times;             /* NULL: not wanted */
    int64_t timed_steps, timed_ns; /* since it is wanted */
};

/* ---- opening ---- */

/* Does the model take its vocabulary from the tokenizer? (session.c reads `model:` likewise.) */
static bool vocab_is_tokenizers(const config *c) {
    const json_t *v = json_object_get(c->model, "vocab_size");
    if (v) return json_is_string(v);
    return !json_object_get(c->model, "preset") && !json_object_get(c->model, "from");
}

void bench_trim_config(config *c) {
    if (!vocab_is_tokenizers(c)) c->tokenizer = NULL;
    c->data.valid = NULL;
    c->sample.prompts.n = 0;
}

static status open_model(session *s, err *e) {
    TRY(config_check_supported(s->c, e));
    TRY(dev_open(&s->dev, DEV_CPU, (int)s->c->train.threads, e));
    TRY(session_open_tokenizer(s, e));
    TRY(session_open_course(s, 0, NULL, e));
    return session_make_plan(s, e);
}

static status open_memory(session *s, err *e) {
    course_stage *first = &s->course->stage[0];
    first->schedule = (schedule){.kind = SCHEDULE_CONSTANT, .lr = s->c->optim.lr};
    TRY(session_commit(s, e));
    session_enter_shape(s, 0, first->max_batch);
    param_init_all(s->plan->store, (uint64_t)s->c->train.seed);
    return ST_OK;
}

static bench_facts facts_of(const session *s) {
    const plan *p = s->plan;
    double micro = (double)s->table.micro_batches;
    return (bench_facts){.isa = cpu_isa_name(dev_isa(s->dev)),
                         .precision = dtype_name(p->spec.compute),
                         .threads = dev_threads(s->dev),
                         .params = param_store_sizes(p->store).elems,
                         .tok_per_step = s->batch * s->T,
                         .micro_batches = s->table.micro_batches,
                         .planned_peak_bytes = p->peak_bytes,
                         .activation_bytes = prog_get_stats(p->prog[PLAN_TRAIN])->saved_bytes,
                         .model_flops = micro * plan_model_flops(p),
                         .hardware_flops = micro * plan_hardware_flops(p),
                         .peak_flops = s->peak_flops};
}

status bench_open(bench **out, config *c, err *e) {
    static const train_options none = {0};
    arena *a = arena_new("bench");
    bench *b = ARENA_NEW(a, bench);
    bench_trim_config(c);
    b->s = (session){.c = c, .opt = &none, .a = a};
    status st = open_model(&b->s, e);
    if (st == ST_OK) st = open_memory(&b->s, e);
    if (st != ST_OK) {
        bench_close(b);
        return st;
    }
    b->facts = facts_of(&b->s);
    *out = b;
    return ST_OK;
}

void bench_close(bench *b) {
    if (b) session_close(&b->s); /* b lies in its arena */
}

const bench_facts *bench_get_facts(const bench *b) {
    return &b->facts;
}

/* ---- steps ---- */

static int64_t count_targets(session *s) {
    return s->batch * s->T;
}

/* Sequences of T + 1 random ids; all of one document, so attention costs what it can cost. */
static status fill(session *s, int micro_batch, err *e) {
    (void)e;
    const prog *p = s->plan->prog[PLAN_TRAIN];
    rng_key key = rng_key_named((uint64_t)s->c->train.seed, "bench.ids");
    uint32_t vocab = (uint32_t)s->model.vocab_size;
    const tensor *start = prog_tensor(p, "start");
    int32_t *ids = prog_tensor(p, "ids")->data, *targets = prog_tensor(p, "targets")->data;
    int32_t *pos = prog_tensor(p, "pos")->data;
    for (int b = 0; b < s->B; b++) {
        uint64_t sample = (uint64_t)(s->at.step * s->batch) +
                          (uint64_t)micro_batch * (uint64_t)s->B + (uint64_t)b;
        uint64_t first = sample * ((uint64_t)s->T + 1);
        for (int t = 0; t < s->T; t++) {
            int64_t at = (int64_t)b * s->T + t;
            ids[at] = (int32_t)(rng_u32(key, first + (uint64_t)t) % vocab);
            targets[at] = (int32_t)(rng_u32(key, first + (uint64_t)t + 1) % vocab);
            pos[at] = t;
            if (start) ((int32_t *)start->data)[at] = 0;
        }
    }
    return ST_OK;
}

status bench_run_step(bench *b, bench_step *out, err *e) {
    static const step_source random = {.count_targets = count_targets, .fill = fill};
    session *s = &b->s;
    step_result r;
    TRY(execute_step(s, &random, b->times, &r, e));
    if (!r.finite) {
        err_set(e, ST_NONFINITE, "the loss or gradient norm of step %ld is not finite",
                (long)s->at.step + 1);
        err_where(e, "optim.lr (%s)", config_where(s->c, "optim.lr"));
        return err_hint(e, "lower optim.lr (now %g)", s->c->optim.lr);
    }
    execute_advance(s, &r);
    b->timed_steps += b->times != NULL;
    b->timed_ns += b->times ? r.total_ns : 0;
    double seconds = (double)r.total_ns / 1e9;
    *out = (bench_step){.step = s->at.step,
                        .ns = r.total_ns,
                        .tok_per_s = (double)b->facts.tok_per_step / seconds,
                        .mfu = b->facts.model_flops / seconds / b->facts.peak_flops,
                        .hfu = b->facts.hardware_flops / seconds / b->facts.peak_flops,
                        .loss = r.nll_sum / (double)r.targets};
    return ST_OK;
}

/* ---- results ---- */

static int slowest_first(const void *a, const void *b) {
    const bench_step *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

bench_summary bench_summarize(const bench *b, const bench_step *steps, int n) {
    bench_step *sorted = ARENA_ARRAY(b->s.a, bench_step, n);
    for (int i = 0; i < n; i++) sorted[i] = steps[i];
    qsort(sorted, (size_t)n, sizeof *sorted, slowest_first);
    double ns = (double)(sorted[n / 2].ns + sorted[(n - 1) / 2].ns) / 2, seconds = ns / 1e9;
    return (bench_summary){.tok_per_s = (double)b->facts.tok_per_step / seconds,
                           .tok_per_s_min = sorted[0].tok_per_s,
                           .tok_per_s_max = sorted[n - 1].tok_per_s,
                           .step_ms = ns / 1e6,
                           .mfu = b->facts.model_flops / seconds / b->facts.peak_flops,
                           .hfu = b->facts.hardware_flops / seconds / b->facts.peak_flops,
                           .loss = steps[n - 1].loss,
                           .peak_rss_bytes = (int64_t)dev_process_peak_bytes()};
}

void bench_start_profile(bench *b) {
    int ops = prog_get_stats(b->s.plan->prog[PLAN_TRAIN])->ops;
    b->times = ARENA_NEW(b->s.a, step_times);
    b->times->op_ns = ARENA_ARRAY(b->s.a, int64_t, ops);
    b->timed_steps = b->timed_ns = 0;
}

status bench_get_profile(bench *b, bench_profile *out, err *e) {
    CHECK(b->timed_steps > 0, "a profile of no step");
    *out = (bench_profile){.steps = b->timed_steps, .peak_flops = b->facts.peak_flops};
    TRY(peak_bandwidth(b->s.dev, &out->peak_bandwidth, e));
    bench_profile_fill(out, b->s.a, b->s.plan, b->facts.micro_batches, b->times, b->timed_ns);
    return ST_OK;
}
