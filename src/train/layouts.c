#include "train/layouts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "train/trial.h"

void layout_name(const layout *l, char out[LAYOUT_NAME_MAX]) {
    static const char *const recompute[] = {"none", "selective", "full"};
    strbuf b = {0};
    strbuf_printf(&b, "dp%d", l->dp);
    if (l->dp_replicate > 1) strbuf_printf(&b, " replicate%d", l->dp_replicate);
    if (l->zero) strbuf_printf(&b, " zero%d", l->zero);
    if (l->tp > 1) strbuf_printf(&b, " tp%d%s", l->tp, l->sp ? " sp" : "");
    if (l->micro_batch) strbuf_printf(&b, " micro%ld", (long)l->micro_batch);
    if (l->recompute >= 0) strbuf_printf(&b, " recompute-%s", recompute[l->recompute]);
    snprintf(out, LAYOUT_NAME_MAX, "%s", strbuf_cstr(&b));
    strbuf_free(&b);
}

int layout_ranks(const layout *l) {
    return l->dp * l->tp;
}

/* ---- one rank ---- */

typedef struct rank_job {
    pthread_t thread;
    const config *c;
    const layout *l;
    comm_world *world;
    int steps;
    layout_result *result; /* rank 0 fills it */
    int64_t peak_bytes;
    status st;
    err why;
} rank_job;

static status own_config(config **out, const rank_job *j, err *e) {
    json_t *o = config_to_json(j->c);
    status st = config_from_json(out, o, NULL, "layout", NULL, 0, e);
    json_decref(o);
    TRY(st);
    config *c = *out;
    c->parallel.dp = j->l->dp;
    c->parallel.dp_replicate = j->l->dp_replicate;
    c->parallel.zero = j->l->zero;
    c->parallel.tp = j->l->tp;
    c->parallel.sp = j->l->sp;
    c->train.threads = 1;
    c->train.digest_every = 1;
    if (j->l->micro_batch) c->train.micro_batch_size = j->l->micro_batch;
    if (j->l->recompute >= 0) c->train.recompute = j->l->recompute;
    return ST_OK;
}

static status run_steps(rank_job *j, session *s, err *e) {
    layout_result *out = comm_world_rank(j->world) == 0 ? j->result : NULL;
    uint64_t initial;
    TRY(session_digest(s, &initial, e));
    if (out) out->initial = initial;
    for (int i = 0; i < j->steps; i++) {
        step_result r;
        TRY(trial_step(s, NULL, &r, e));
        if (!out) continue;
        out->steps[i] = (layout_step){r.nll_sum / (double)r.targets, r.norm, r.digest};
        out->seconds += (double)r.total_ns / 1e9;
        out->n_steps = i + 1;
    }
    j->peak_bytes = s->plan->peak_bytes;
    return ST_OK;
}

static void *run_rank(void *arg) {
    rank_job *j = arg;
    config *c = NULL;
    session s = {0};
    arena *a = arena_new("layout");
    j->st = own_config(&c, j, &j->why);
    if (j->st == ST_OK) j->st = trial_open(&s, a, c, j->world, &j->why);
    if (j->st == ST_OK) j->st = run_steps(j, &s, &j->why);
    if (j->st != ST_OK) comm_fail(j->world, &j->why);
    if (s.a)
        session_close(&s);
    else
        arena_free(a);
    config_free(c);
    comm_close(j->world);
    return NULL;
}

/* ---- all ranks ---- */

/* A rank that only waited for another says so with ST_RANK: the other's reason is the better one.
 */
static status first_failure(const rank_job *jobs, int n, err *e) {
    const rank_job *worst = NULL;
    for (int r = 0; r < n; r++) {
        if (jobs[r].st == ST_OK) continue;
        if (!worst || (worst->st == ST_RANK && jobs[r].st != ST_RANK)) worst = &jobs[r];
    }
    if (!worst) return ST_OK;
    if (e) *e = worst->why;
    return worst->st;
}

status layout_run(const config *c, const layout *l, int steps, layout_result *result, err *e) {
    int n = layout_ranks(l);
    comm_world **worlds = xcalloc((size_t)n, sizeof *worlds);
    rank_job *jobs = xcalloc((size_t)n, sizeof *jobs);
    result->ranks = n;
    comm_open_threads(n, worlds);
    for (int r = 0; r < n; r++) {
        jobs[r] = (rank_job){.c = c, .l = l, .world = worlds[r], .steps = steps, .result = result};
        CHECK(pthread_create(&jobs[r].thread, NULL, run_rank, &jobs[r]) == 0, "no more threads");
    }
    for (int r = 0; r < n; r++) {
        pthread_join(jobs[r].thread, NULL);
        if (jobs[r].peak_bytes > result->peak_bytes) result->peak_bytes = jobs[r].peak_bytes;
    }
    status st = first_failure(jobs, n, e);
    free(jobs);
    free(worlds);
    return st;
}
