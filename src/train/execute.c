/* Fill, forward, backward, norm, update. Nothing here allocates. */
#include "train/execute.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "train/guard/suspects.h"

double execute_sum_nll(const prog *p) {
    const tensor *t = prog_tensor(p, "nll");
    double sum = 0;
    for (int64_t i = 0; i < t->rows; i++) sum += ((const float *)t->data)[i];
    return sum;
}

int64_t execute_fill(const session *s, loader *l, const prog *p, uint64_t first_sample) {
    int32_t *start = s->now->data.document_mask ? prog_tensor(p, "start")->data : NULL;
    return loader_fill(l, first_sample, s->B, prog_tensor(p, "ids")->data,
                       prog_tensor(p, "targets")->data, start, prog_tensor(p, "pos")->data);
}

op_run execute_run_of(session *s, int micro_batch, float grad_scale) {
    return (op_run){.dev = s->dev,
                    .seed = (uint64_t)s->c->train.seed,
                    .step = (uint64_t)s->at.step + 1,
                    .micro_batch = (uint32_t)(s->peers.m.rank[MESH_DP] * s->share / s->B) +
                                   (uint32_t)micro_batch,
                    /* in slots every micro-batch's gradients are new */
                    .first_micro = micro_batch == 0 || param_grads_in_slots(s->plan->store),
                    .grad_scale = grad_scale,
                    .mesh = &s->peers.m,
                    .fixed_limit = s->fixed_limit,
                    .fixed_overflow = &s->fixed_overflow};
}

/* Before the update, so that a step can be left out. */
static void judge(session *s, step_result *r) {
    double loss = r->targets > 0 ? r->nll_sum / (double)r->targets : 0.0;
    r->finite = isfinite(r->nll_sum) && isfinite(r->norm);
    r->verdict = WATCH_FINE;
    watch_step w = {s->at.step + 1, loss, r->norm, r->repeated};
    if (s->watches) r->verdict = watch_judge(&s->watch, s->c, &w, &r->score);
}

static optim_hyper hyper_of(const session *s, const step_result *r) {
    const config *c = s->now;
    return (optim_hyper){.lr = r->lr,
                         .beta1 = c->optim.betas.items[0],
                         .beta2 = c->optim.betas.items[1],
                         .eps = c->optim.eps,
                         .weight_decay = c->optim.weight_decay,
                         .step = s->at.step + 1 -
                                 course_stage_of(s->course, s->at.step + 1)->optim_base,
                         .grad_scale = (float)optim_clip_factor(r->norm, c->optim.clip_norm)};
}

/* What this rank owns; where others need it, it goes to them while the next unit is updated. */
static void update_units(session *s, step_result *r) {
    optim_hyper h = hyper_of(s, r);
    bool sends = !param_weights_in_slots(s->plan->store);
    int n = param_units(s->plan->store);
    for (int u = 0; u < n; u++) {
        uint64_t digest = 0;
        s->optim->update(s->dev, s->plan->store, u, s->decay, s->plan->optim_state, &h,
                         r->has_digest ? &digest : NULL);
        r->digest += digest;
        if (sends) peers_gather(&s->peers, u);
    }
    int64_t sent = trace_now(s->trace);
    for (int u = 0; u < n && sends; u++) peers_gathered(&s->peers, u);
    if (sends) trace_span(s->trace, sent, "wait for", "updated weights");
}

/* Deterministic mode: what does not fit into the sums is told as a norm that is not finite. */
static double grad_norm(session *s) {
    if (!s->c->train.deterministic)
        return sqrt(peers_sum_copy(&s->peers, optim_grad_squares(s->dev, s->plan->store)));
    int64_t limb[VEC_LIMBS];
    optim_grad_limbs(s->dev, s->plan->store, limb);
    peers_sum_limbs(&s->peers, limb);
    bool overflow = peers_any(&s->peers, s->fixed_overflow);
    return overflow ? (double)INFINITY : sqrt(vec_limbs_value(limb));
}

static void sum_over_ranks(session *s, step_result *r) {
    if (s->c->train.deterministic) {
        r->nll_fixed = peers_sum_count(&s->peers, r->nll_fixed, "the loss");
        r->nll_sum = ldexp((double)r->nll_fixed, -FIXED_NLL_BITS);
    } else
        r->nll_sum = peers_sum_samples(&s->peers, r->nll_sum);
    if (s->watches && s->c->guard.repeated > 0)
        r->repeated_tokens = peers_sum_count(&s->peers, r->repeated_tokens, "repeated tokens");
    r->repeated = (double)r->repeated_tokens / (double)(s->batch * s->T);
    r->norm = grad_norm(s);
}

static status update(session *s, step_times *times, step_result *r, err *e) {
    int64_t began = clock_now_ns(), step = s->at.step + 1, every = s->now->train.digest_every;
    sum_over_ranks(s, r);
    trace_span(s->trace, began, "norm of gradients", NULL);
    int64_t normed = clock_now_ns();
    judge(s, r);
    r->lr = course_lr(s->course, step) * watch_rate(&s->watch, s->c, step);
    r->has_digest = every > 0 && step % every == 0;
    bool skips = r->verdict == WATCH_SKIP || r->verdict == WATCH_REWIND;
    if (r->finite && !skips)
        update_units(s, r);
    else if (r->has_digest)
        r->digest = param_digest(s->plan->store);
    trace_span(s->trace, normed, "optimizer", NULL);
    if (times) {
        times->norm_ns += normed - began;
        times->update_ns += clock_now_ns() - normed;
    }
    if (r->has_digest) TRY(peers_digest(&s->peers, &r->digest, e));
    return comm_check(s->peers.m.world, e);
}

/* Tokens of this micro-batch that repeat themselves. A stretch shorter than LEAST_REPEATED is a
 * ruler or a table, not a document. */
static int64_t count_repeated(const session *s) {
    enum { LEAST_REPEATED = 64 };
    const int32_t *ids = prog_tensor(s->plan->prog[PLAN_TRAIN], "ids")->data;
    int64_t sum = 0, least = s->T < LEAST_REPEATED ? s->T : LEAST_REPEATED;
    for (int b = 0; b < s->B; b++) {
        int64_t n = suspects_count_repeated(ids + (int64_t)b * s->T, s->T);
        if (n >= least) sum += n;
    }
    return sum;
}

static void keep_nll(const session *s, int micro_batch) {
    const tensor *t = prog_tensor(s->plan->prog[PLAN_TRAIN], "nll");
    if (s->nll)
        memcpy(s->nll + s->peers.m.rank[MESH_DP] * s->share * s->T + (int64_t)micro_batch * t->rows,
               t->data, (size_t)t->rows * sizeof *s->nll);
}

static status fill(session *s, const step_source *from, int micro_batch, step_times *times,
                   step_result *r, err *e) {
    int64_t began = clock_now_ns();
    TRY(from->fill(s, micro_batch, e));
    int64_t waited = clock_now_ns() - began;
    trace_span(s->trace, began, "wait for", "data");
    r->wait_ns += waited;
    if (times) times->fill_ns += waited;
    return ST_OK;
}

/* Adds a micro-batch's sum as an integer, so that the order of micro-batches does not matter. */
static void add_fixed_nll(session *s, double sum, step_result *r) {
    double x = ldexp(sum, FIXED_NLL_BITS), limit = 0x1p62 / (double)(s->batch / s->B);
    if (fabs(x) <= limit)
        r->nll_fixed += llrint(x);
    else
        s->fixed_overflow = true;
    r->nll_sum = ldexp((double)r->nll_fixed, -FIXED_NLL_BITS);
}

static void take_loss(session *s, int micro_batch, step_result *r) {
    double sum = execute_sum_nll(s->plan->prog[PLAN_TRAIN]);
    if (s->c->train.deterministic)
        add_fixed_nll(s, sum, r);
    else
        r->nll_sum += sum;
    keep_nll(s, micro_batch);
    if (s->watches && s->c->guard.repeated > 0) r->repeated_tokens += count_repeated(s);
}

/* In one go, or where it is traced, part by part of the model. */
static void replay(session *s, const step_entry *t, const op_run *run, step_times *times) {
    for (int first = t->first, end; first < t->end; first = end) {
        end = trace_stretch(s->trace, first, t->end);
        int64_t began = trace_now(s->trace);
        prog_replay_range(s->plan->prog[PLAN_TRAIN], first, end, run, times ? times->op_ns : NULL);
        trace_ops(s->trace, began, first);
    }
}

static void wait_for(session *s, const step_entry *t) {
    const peers_unit *u = &s->peers.unit[t->unit];
    bool weights = t->action == STEP_GATHERED;
    int64_t began = trace_now(s->trace);
    if (weights)
        peers_gathered(&s->peers, t->unit);
    else
        peers_reduced(&s->peers, t->unit);
    trace_span(s->trace, began, "wait for", weights ? u->weights : u->grads);
}

status execute_step(session *s, const step_source *from, step_times *times, step_result *r,
                    err *e) {
    trace_step_begin(s->trace, s->at.step + 1, s->plan->prog[PLAN_TRAIN]);
    int64_t began = clock_now_ns();
    *r = (step_result){.targets = peers_sum_count(&s->peers, from->count_targets(s), "targets")};
    s->fixed_overflow = false;
    r->wait_ns = clock_now_ns() - began;
    r->grad_scale = r->targets > 0 ? (float)(1.0 / (double)r->targets) : 0.0f;
    for (int i = 0; i < s->table.n; i++) {
        const step_entry *t = &s->table.entry[i];
        op_run run = execute_run_of(s, t->micro_batch, r->grad_scale);
        if (t->name) comm_at(s->peers.m.world, t->name, s->at.step + 1);
        switch (t->action) {
            case STEP_FILL:
                trace_micro_batch(s->trace, t->micro_batch);
                TRY(fill(s, from, t->micro_batch, times, r, e));
                break;
            case STEP_FORWARD:
            case STEP_BACKWARD: replay(s, t, &run, times); break;
            case STEP_LOSS: take_loss(s, t->micro_batch, r); break;
            case STEP_GATHER: peers_gather(&s->peers, t->unit); break;
            case STEP_REDUCE: peers_reduce(&s->peers, t); break;
            case STEP_GATHERED:
            case STEP_REDUCED: wait_for(s, t); break;
            case STEP_OPTIMIZER:
                trace_micro_batch(s->trace, -1);
                if (from->reduced) from->reduced(s, from->ctx);
                TRY(update(s, times, r, e));
                break;
        }
    }
    r->total_ns = clock_now_ns() - began;
    trace_step_end(s->trace);
    return ST_OK;
}

void execute_pass(session *s, plan_prog which, const op_run *run) {
    for (int i = 0; i < s->pass[which].n; i++) {
        const step_entry *t = &s->pass[which].entry[i];
        switch (t->action) {
            case STEP_FORWARD:
                prog_replay_range(s->plan->prog[which], t->first, t->end, run, NULL);
                break;
            case STEP_GATHER: peers_gather(&s->peers, t->unit); break;
            case STEP_GATHERED: peers_gathered(&s->peers, t->unit); break;
            default: break;
        }
    }
}

void execute_advance(session *s, const step_result *r) {
    s->at.step++;
    s->at.tokens += (uint64_t)(s->batch * s->T);
    s->at.seconds += (double)r->total_ns / 1e9;
}
