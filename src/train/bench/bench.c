/* A session without data, and its steps. */
#include "train/bench/bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dev/cuda.h"
#include "op/peak.h"
#include "train/layouts/trial.h"

struct bench {
    session s;
    bench_facts facts;
    step_times *times;             /* NULL: not wanted */
    int64_t timed_steps, timed_ns; /* since it is wanted */
};

/* ---- opening ---- */

static bench_facts facts_of(const session *s) {
    const stage *g = &s->stage;
    const setup *u = &s->setup;
    const plan *p = u->plan;
    double micro = (double)g->table.micro_batches;
    bench_facts f = {.isa = cpu_isa_name(dev_isa(u->dev)),
                     .precision = dtype_name(p->spec.compute),
                     .device = dev_kind_name(dev_get_kind(u->dev)),
                     .threads = dev_threads(u->dev),
                     .params = param_store_sizes(param_store_whole(p->store)).elems,
                     .tok_per_step = g->batch * g->T,
                     .micro_batches = g->table.micro_batches,
                     .planned_peak_bytes = p->peak_bytes,
                     .activation_bytes = plan_saved_bytes(p),
                     .model_flops = micro * plan_model_flops(p),
                     .hardware_flops = micro * plan_hardware_flops(p),
                     .peak_flops = u->peak_flops};
    if (dev_get_kind(u->dev) != DEV_CUDA) return f;
    cuda_name(u->dev, f.gpu);
    f.emulated = cuda_is_emulated(u->dev);
    return f;
}

status bench_open(bench **out, config *c, comm_world *world, err *e) {
    arena *a = arena_new("bench");
    bench *b = ARENA_NEW(a, bench);
    status st = trial_open(&b->s, a, c, world, true, e);
    if (st != ST_OK) {
        trial_close(&b->s, world, st, e);
        return st;
    }
    b->facts = facts_of(&b->s);
    *out = b;
    return ST_OK;
}

bool bench_agree(const bench *b, bool x) {
    return peers_first(&b->s.setup.peers, x);
}

void bench_close(bench *b) {
    if (b) session_close(&b->s); /* b lies in its arena */
}

const bench_facts *bench_get_facts(const bench *b) {
    return &b->facts;
}

/* ---- steps ---- */

status bench_run_step(bench *b, bench_step *out, err *e) {
    session *s = &b->s;
    step_result r;
    TRY(trial_step(s, b->times, NULL, NULL, &r, e));
    b->timed_steps += b->times != NULL;
    b->timed_ns += b->times ? r.total_ns : 0;
    double seconds = (double)r.total_ns / 1e9;
    *out = (bench_step){.step = s->at.step,
                        .ns = r.total_ns,
                        .tok_per_s = (double)b->facts.tok_per_step / seconds,
                        .mfu = b->facts.model_flops / seconds / b->facts.peak_flops,
                        .hfu = b->facts.hardware_flops / seconds / b->facts.peak_flops,
                        .loss = execute_mean_loss(&r)};
    return ST_OK;
}

/* ---- results ---- */

static int slowest_first(const void *a, const void *b) {
    const bench_step *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

bench_summary bench_summarize(const bench *b, const bench_step *steps, int n) {
    bench_step *sorted = ARENA_ARRAY(b->s.setup.a, bench_step, n);
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

/* Of a chunk that another stage has: none. */
static int ops_of(const step_parts *parts, int c) {
    return parts->chunk[c] ? prog_get_stats(parts->chunk[c])->ops : 0;
}

void bench_start_profile(bench *b) {
    const step_parts *parts = &b->s.stage.parts;
    b->times = ARENA_NEW(b->s.setup.a, step_times);
    b->times->op_ns = ARENA_ARRAY(b->s.setup.a, int64_t *, parts->chunks);
    for (int c = 0; c < parts->chunks; c++)
        b->times->op_ns[c] = ARENA_ARRAY(b->s.setup.a, int64_t, ops_of(parts, c));
    b->timed_steps = b->timed_ns = 0;
}

/* An op by itself. */
typedef struct one_op {
    const prog *p;
    int index;
    op_run run;
} one_op;

static void run_one(const void *args) {
    const one_op *o = args;
    prog_replay_range(o->p, o->index, o->index + 1, &o->run, NULL);
}

/* Of many calls, after one. */
static double seconds_of(const one_op *o) {
    enum { RUNS = 10 };
    if (dev_get_kind(o->run.dev) == DEV_CUDA) return cuda_seconds(o->run.dev, RUNS, run_one, o);
    run_one(o);
    dev_sync(o->run.dev);
    int64_t began = clock_now_ns();
    for (int i = 0; i < RUNS; i++) run_one(o);
    dev_sync(o->run.dev);
    return clock_since_s(began) / RUNS;
}

void bench_time_ops(bench *b) {
    const step_parts *parts = &b->s.stage.parts;
    bench_start_profile(b);
    b->timed_steps = 1;
    for (int c = 0; c < parts->chunks; c++)
        for (int i = 0; i < ops_of(parts, c); i++) {
            one_op o = {parts->chunk[c], i, execute_run_of(&b->s, 0, 0.0f)};
            b->times->op_ns[c][i] = llround(1e9 * seconds_of(&o) * b->facts.micro_batches);
            b->timed_ns += b->times->op_ns[c][i];
        }
    if (b->timed_ns == 0)
        b->timed_ns = 1; /* shares are quotients, and the emulated GPU has no time */
}

status bench_get_profile(bench *b, bench_profile *out, err *e) {
    CHECK(b->timed_steps > 0, "a profile of no step");
    *out = (bench_profile){.steps = b->timed_steps, .peak_flops = b->facts.peak_flops};
    TRY(peak_bandwidth(b->s.setup.dev, 1, &out->peak_bandwidth, e));
    bench_profile_fill(out, b->s.setup.a, b->s.setup.plan, b->facts.micro_batches, b->times,
                       b->timed_ns);
    return ST_OK;
}
