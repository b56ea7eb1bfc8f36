/* The walk over the step table: fill, forward, backward, norm, update. See execute.h. */
#include "train/execute.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "op/clip.h"
#include "optim/offload.h"
#include "step/pipeline.h"
#include "train/distill.h"
#include "train/losses.h"

void execute_complete(const stage *g, const loader *l, uint64_t first_sample) {
    const objective *o = objective_of(g->now);
    const reference_set *known = l && l == g->valid ? g->valid_reference : g->train_reference;
    for (int b = 0; l && known && b < g->B; b++)
        g->rows.ref_logp[b] = reference_logp(known, l, first_sample + (uint64_t)b);
    if (l && l == g->train && g->lessons)
        lessons_take(g->lessons, l, first_sample, &g->rows, g->vocab);
    if (o->learned < o->sequences) batch_sort_rows(&g->rows, o->sequences);
    if (o->head) batch_find_last(&g->rows);
    context_take(&g->context, &g->rows, &g->own);
}

loader_rows execute_rows(const batch_rows *r) {
    return (loader_rows){.ids = r->ids,
                         .targets = r->targets,
                         .start = r->start,
                         .pos = r->pos,
                         .info = r->info,
                         .source = r->source,
                         .source_pos = r->source_pos,
                         .source_start = r->source_start,
                         .source_end = r->source_end,
                         .seen_start = r->seen_start,
                         .seen_end = r->seen_end};
}

int64_t execute_fill(const stage *g, loader *l, uint64_t first_sample) {
    loader_rows rows = execute_rows(&g->rows);
    int64_t n = loader_fill_rows(l, first_sample, g->B, &rows);
    execute_complete(g, l, first_sample);
    return n;
}

double execute_mean_loss(const step_result *r) {
    return r->count > 0 ? r->loss_sum / (double)r->count : 0.0;
}

int execute_modules(const session *s) {
    return (int)s->setup.models[s->stage.number].num_nextn_predict_layers;
}

double execute_mean_ahead(const step_result *r, int module) {
    return r->count > 0 ? r->ahead_sum[module] / (double)r->count : 0.0;
}

op_run execute_run_of(session *s, int micro_batch, float grad_scale) {
    setup *u = &s->setup;
    return (op_run){.dev = u->dev,
                    .seed = (uint64_t)u->c->train.seed,
                    .step = (uint64_t)s->at.step + 1,
                    .micro_batch =
                        (uint32_t)(u->peers.m.rank[MESH_DP] * s->stage.share / s->stage.B) +
                        (uint32_t)micro_batch,
                    .first_micro = micro_batch == 0,
                    .grad_scale = grad_scale,
                    .mesh = &u->peers.m,
                    .fixed_unscale = (float)(1.0 / s->scale.scale),
                    .fixed_limit = s->stage.fixed_limit,
                    .fixed_overflow = dev_flag(u->dev)};
}

double execute_grads_scale(const session *s) {
    return s->setup.c->train.deterministic ? 1.0 : s->scale.scale;
}

/* Before the update, unless that may go ahead: it can be left out then. */
static void judge(session *s, step_result *r) {
    r->finite = isfinite(r->loss_sum) && isfinite(r->norm);
    r->overflow = !r->finite && loss_scale_may_shrink(&s->scale, s->setup.c);
    r->verdict = WATCH_FINE;
    loss_scale_step(&s->scale, s->setup.c, r->overflow);
    if (r->overflow) return; /* it says nothing of the data or the model */
    watch_step w = {s->at.step + 1, execute_mean_loss(r), r->norm, r->repeated};
    if (s->watches) r->verdict = watch_judge(&s->watch, s->setup.c, &w, &r->score);
}

/* Whether the update may be given before the host knows losses and norm. Then nothing leaves it out
 * but one of these that is not finite, which the device sees itself. */
static bool may_go_ahead(const session *s, const step_result *r) {
    const config *c = s->setup.c;
    bool moves = routers_have_bias(&s->setup.models[0]); /* by the host, where there is an update */
    return !moves && c->guard.action == CONFIG_GUARD_LOG && !c->train.deterministic &&
           !r->has_digest && isfinite(r->loss_sum) && comm_world_size(s->setup.peers.m.world) == 1;
}

/* ahead: where the device has the factor, or NULL. */
static optim_hyper hyper_of(const session *s, const step_result *r, const float *ahead) {
    const config *c = s->stage.now;
    return (optim_hyper){
        .lr = r->lr,
        .beta1 = course_beta1(s->setup.course, s->at.step + 1),
        .beta2 = c->optim.betas.items[1],
        .eps = c->optim.eps,
        .weight_decay = c->optim.weight_decay,
        .step = s->at.updates + 1,
        .grad_scale = (float)(clip_factor(r->norm, c->optim.clip_norm) / r->grads_scale),
        .grad_scale_at = ahead,
        .factored = {.eps = c->optim.adafactor.eps.items[0],
                     .eps_scale = c->optim.adafactor.eps.items[1],
                     .clip = c->optim.adafactor.clip_threshold,
                     .decay_rate = c->optim.adafactor.decay_rate,
                     .scale_parameter = c->optim.adafactor.scale_parameter},
        .states = s->setup.plan->states,
        .state_dt = s->setup.plan->spec.state_dt,
        .draws = narrow_draws((uint64_t)s->setup.c->train.seed, (uint64_t)s->at.step + 1)};
}

static status update_unit(session *s, int unit, const optim_hyper *h, uint64_t *digest, err *e) {
    const setup *u = &s->setup;
    if (u->offload) return offload_update(u->offload, unit, s->stage.decay, h, digest, e);
    optim_update(u->optim, u->dev, u->plan->store, unit, s->stage.decay, u->plan->optim_state, h,
                 digest);
    return ST_OK;
}

/* Updates the shards that this rank owns, unit by unit. Where other ranks need the weights, a unit
 * is gathered while the next one is updated. */
static status update_units(session *s, step_result *r, const float *ahead, err *e) {
    optim_hyper h = hyper_of(s, r, ahead);
    bool sends = !param_weights_in_slots(s->setup.plan->store);
    int n = param_units(s->setup.plan->store);
    for (int u = 0; u < n; u++) {
        uint64_t digest = 0;
        if (param_unit_at(s->setup.plan->store, u)->frozen) continue;
        TRY(update_unit(s, u, &h, r->has_digest ? &digest : NULL, e));
        r->digest += digest;
        if (sends) peers_gather(&s->setup.peers, u);
    }
    int64_t sent = trace_now(s->trace);
    for (int u = 0; u < n && sends; u++) peers_gathered(&s->setup.peers, u);
    if (sends) trace_span(s->trace, sent, "wait for", "updated weights");
    return ST_OK;
}

/* Waits for the device before a clock is read, so that the time is that of the work. */
static void end_timed(const session *s, const step_times *times) {
    if (times || trace_now(s->trace)) dev_sync(s->setup.dev);
}

/* Squares of this rank's gradients as they are, multiplied by grads_scale. */
typedef struct grad_squares {
    double sum;
    int64_t limb[VEC_LIMBS]; /* replace it in the deterministic mode */
} grad_squares;

/* The device has done the step when this returns. */
static grad_squares square_gradients(session *s, bool ahead) {
    dev *d = s->setup.dev;
    const param_store *store = s->setup.plan->store;
    grad_squares q = {0};
    if (!s->setup.c->train.deterministic) {
        q.sum = ahead ? vec_norm_squares(d) : optim_grad_squares(d, store);
        return q;
    }
    optim_grad_limbs(d, store, q.limb); /* waits for all that kernels do, who set the flag */
    return q;
}

/* Over all ranks. In the deterministic mode a number that does not fit into the fixed-point sums
 * makes it infinite. */
static double norm_of(const setup *u, grad_squares *q) {
    if (!u->c->train.deterministic) return sqrt(peers_sum_copy(&u->peers, q->sum));
    peers_sum_limbs(&u->peers, q->limb);
    bool overflow = peers_any(&u->peers, *dev_flag(u->dev));
    return overflow ? (double)INFINITY : sqrt(vec_limbs_value(q->limb));
}

/* They were counted where losses are taken. */
static void sum_repeated(const peers *p, step_result *r) {
    r->repeated_tokens = peers_sum_count(p, r->repeated_tokens, "repeated tokens");
    peers_tell_stages(p, &r->repeated_tokens, sizeof r->repeated_tokens);
}

static void sum_over_ranks(session *s, step_result *r) {
    setup *u = &s->setup;
    if (u->c->train.deterministic) {
        peers_sum_tokens(&u->peers, &r->loss_fixed, 1, "the loss");
        peers_tell_stages(&u->peers, &r->loss_fixed, sizeof r->loss_fixed);
        r->loss_sum = ldexp((double)r->loss_fixed, -FIXED_NLL_BITS);
    } else {
        r->loss_sum = peers_sum_loss(&u->peers, r->loss_sum);
        peers_tell_stages(&u->peers, &r->loss_sum, sizeof r->loss_sum);
    }
    for (int k = 0; k < execute_modules(s); k++)
        r->ahead_sum[k] = peers_sum_loss(&u->peers, r->ahead_sum[k]);
    if (execute_modules(s)) peers_tell_stages(&u->peers, r->ahead_sum, sizeof r->ahead_sum);
    if (u->objective->loss) {
        peers_sum_counts(&u->peers, r->sums, SUM_COUNT, "rewards");
        peers_tell_stages(&u->peers, r->sums, sizeof r->sums);
    }
    if (s->watches && u->c->guard.repeated > 0) sum_repeated(&u->peers, r);
    r->repeated = (double)r->repeated_tokens / (double)(s->stage.batch * s->stage.T);
}

/* Returns how long this rank waited for others to come here. */
static int64_t measure_and_judge(session *s, step_result *r, bool ahead) {
    grad_squares q = square_gradients(s, ahead);
    losses_settle(s, r);
    int64_t came = clock_now_ns();
    sum_over_ranks(s, r);
    int64_t met = clock_now_ns();
    r->norm = norm_of(&s->setup, &q) / r->grads_scale;
    judge(s, r);
    return met - came;
}

static status update(session *s, step_times *times, step_result *r, err *e) {
    setup *u = &s->setup;
    int64_t began = clock_now_ns(), waited = 0, step = s->at.step + 1;
    int64_t every = s->stage.now->train.digest_every;
    const float *ahead = NULL;
    r->has_digest = every > 0 && step % every == 0;
    if (may_go_ahead(s, r))
        ahead = optim_norm(u->dev, u->plan->store, s->stage.now->optim.clip_norm, r->grads_scale);
    if (!ahead) waited = measure_and_judge(s, r, false);
    end_timed(s, times);
    trace_span(s->trace, began, "norm of gradients", NULL);
    int64_t normed = clock_now_ns();
    r->lr = course_lr(u->course, step) * watch_rate(&s->watch, u->c, step);
    bool skips = r->verdict == WATCH_SKIP || r->verdict == WATCH_REWIND;
    if (r->finite && !skips) /* before the update, which sums the digest */
        routers_move_bias(&s->routers, u->plan->store, s->stage.now->train.router.bias_rate);
    if (ahead || (r->finite && !skips))
        TRY(update_units(s, r, ahead, e));
    else if (r->has_digest)
        r->digest = param_digest(u->plan->store);
    if (ahead) measure_and_judge(s, r, true);
    end_timed(s, times);
    trace_span(s->trace, normed, "optimizer", NULL);
    if (times) {
        times->meet_ns += waited;
        times->norm_ns += normed - began - waited;
        times->update_ns += clock_now_ns() - normed;
    }
    TRY(dev_check(u->dev, e));
    TRY(offload_check(u->offload, e)); /* the digest is of what was read */
    if (r->has_digest) TRY(peers_digest(&u->peers, &r->digest, e));
    return comm_check(u->peers.m.world, e);
}

/* ---- inputs, and losses of a micro-batch ---- */

static status read_rows(session *s, const step_source *from, const step_entry *t, step_times *times,
                        step_result *r, err *e) {
    int64_t began = clock_now_ns();
    bool again = t->counting || (s->stage.parts.pipe && t->chunk >= plan_stages(s->setup.plan));
    TRY((again && from->peek ? from->peek : from->fill)(s, t->micro_batch, e));
    int64_t waited = clock_now_ns() - began;
    trace_span(s->trace, began, "wait for", "data");
    r->wait_ns += waited;
    if (times) times->fill_ns += waited;
    return ST_OK;
}

const batch_ports *execute_ports_of(const stage *g, const step_entry *t) {
    return t->model ? &g->looks[t->model - 1] : &g->chunks[t->chunk];
}

void execute_put(dev *d, const stage *g, const step_entry *t) {
    const batch_ports *io = execute_ports_of(g, t);
    batch_put(io, t->frame, &g->own);
    context_put(&g->context, io, t->frame);
    if (!io->tokens.bytes)
        distill_give(d, g->looks, io, t->frame, g->now->distill.top_k, g->heap, g->best);
}

/* The first program of a micro-batch has its samples read; the others get the same rows. Between the chunks of a stage of a
 * pipeline come other micro-batches, so each has them read. */
static status fill(session *s, const step_source *from, const step_entry *t, step_times *times,
                   step_result *r, err *e) {
    trace_micro_batch(s->trace, t->micro_batch);
    bool first = t->chunk == 0 && (t->counting || t->model == (s->stage.parts.looks > 0));
    if (first || s->stage.parts.pipe) TRY(read_rows(s, from, t, times, r, e));
    execute_put(s->setup.dev, &s->stage, t);
    if (t->model == 0) routers_give(&s->routers, &s->stage.routing, t->chunk, t->frame);
    return ST_OK;
}

int execute_pass_rows(const stage *g) {
    const objective *o = objective_of(g->now);
    return g->B / o->sequences * o->learned;
}

/* The first n sequences, after their forward passes. */
static void sum_rows(const stage *g, const batch_rows *r, int n, objective_row *out) {
    for (int b = 0; b < n; b++) {
        out[b] = (objective_row){.desirable = r->info[b].label != 0,
                                 .labels = r->labels,
                                 .problem = r->problem,
                                 .label = r->info[b].label,
                                 .score = r->score + (int64_t)b * r->labels,
                                 .d_score = r->d_score + (int64_t)b * r->labels};
        for (int64_t i = (int64_t)b * r->T; i < (int64_t)(b + 1) * r->T; i++)
            out[b].targets += r->targets[i] >= 0;
        if (!r->labels) out[b].logp = batch_row_logp(r, r->nll, b);
        if (objective_of(g->now)->reference)
            out[b].ref_logp = g->parts.looks ? batch_row_logp(r, r->ref_nll, b) : r->ref_logp[b];
    }
}

static void spread_gradients(const batch_rows *r, int n, const double *d_logp, float scale) {
    for (int64_t i = 0; i < (int64_t)n * r->T; i++)
        r->d_nll[i] = r->targets[i] >= 0 ? (float)(-d_logp[i / r->T] * (double)scale) : 0.0f;
}

/* Of a head of labels, after its forward pass. */
static double labels_loss(const objective *o, const stage *g, const batch_ports *last, int frame,
                          float scale, int64_t sums[SUM_COUNT]) {
    const batch_rows *r = &g->rows;
    int n = execute_pass_rows(g);
    batch_take_scores(last, frame, r);
    sum_rows(g, r, n, g->learned);
    double sum = objective_loss(o, g->now, g->learned, n / o->learned, 0, g->d_logp, sums);
    for (int i = 0; i < n * r->labels; i++) r->d_score[i] *= scale;
    batch_put_score_grads(last, frame, r);
    memset(r->nll, 0, sizeof *r->nll * (size_t)(r->B * r->T)); /* no token has a loss */
    return sum;
}

double execute_loss(const objective *o, const stage *g, const step_entry *t, float scale,
                    int64_t sums[SUM_COUNT]) {
    const batch_ports *last = execute_ports_of(g, t);
    if (o->head) return labels_loss(o, g, last, t->frame, scale, sums);
    double sum = batch_take_nll(last, t->frame, &g->own);
    context_spread(&g->context, &g->own, &g->rows);
    if (!o->loss) return sum;
    int n = execute_pass_rows(g);
    if (g->parts.looks) prog_get(g->looks[0].p, 0, g->looks[0].nll, g->rows.ref_nll);
    sum_rows(g, &g->rows, n, g->learned);
    sum = objective_loss(o, g->now, g->learned, n / o->learned, g->kl, g->d_logp, sums);
    spread_gradients(&g->rows, n, g->d_logp, scale);
    prog_put(last->p, t->frame, last->d_nll, g->rows.d_nll);
    return sum;
}

/* ---- programs ---- */

void execute_pass_on(dev *d, const stage *g, const step_entry *t) {
    const batch_ports *chunk = &g->chunks[t->chunk];
    if (t->action == STEP_PASS_ON)
        batch_pass_on(d, chunk, t->frame, chunk + 1, t->next_frame);
    else
        batch_pass_back(d, chunk, t->frame, chunk + 1, t->next_frame);
}

void execute_transfer(setup *u, const stage *g, const step_entry *t) {
    const batch_ports *io = &g->chunks[t->chunk];
    if (t->action == STEP_SENT) {
        comm_wait(u->peers.m.world, g->transfer[t->begun]);
        return;
    }
    prog_port port = t->action == STEP_SEND ? (t->back ? io->d_x : io->y)
                     : t->back              ? io->d_y
                                            : io->x;
    void *at = prog_port_at(io->p, t->frame, port);
    peers_parcel parcel = {.stage = t->stage,
                           .sends = t->action == STEP_SEND,
                           .dev = u->dev,
                           .data = at,
                           .bytes = port.bytes,
                           .what = t->what};
    if (t->action != STEP_SEND) parcel.data = plan_box(u->plan, t->chunk, t->back, t->box);
    if (t->action != STEP_RECEIVED) {
        g->transfer[t - g->table.entry] = peers_pass(&u->peers, &parcel);
        return;
    }
    comm_wait(u->peers.m.world, g->transfer[t->begun]);
    dev_copy(u->dev, at, parcel.data, (size_t)port.bytes);
}

/* Runs the ops of an entry: all at once, or, while a trace is taken, layer by layer. */
static void replay(session *s, const step_entry *t, const op_run *run, step_times *times) {
    const prog *p = execute_ports_of(&s->stage, t)->p;
    int64_t *op_ns = times && t->model == 0 ? times->op_ns[t->chunk] : NULL;
    for (int first = t->first, end; first < t->end; first = end) {
        end = trace_stretch(s->trace, p, first, t->end);
        int64_t began = trace_now(s->trace);
        prog_replay_range(p, first, end, run, op_ns);
        end_timed(s, times);
        trace_ops(s->trace, p, began, first);
    }
}

static void wait_for(session *s, const step_entry *t) {
    const peers_unit *u = &s->setup.peers.unit[t->unit];
    bool weights = t->action == STEP_GATHERED;
    int64_t began = trace_now(s->trace);
    if (weights)
        peers_gathered(&s->setup.peers, t->unit);
    else
        peers_reduced(&s->setup.peers, t->unit);
    trace_span(s->trace, began, "wait for", weights ? u->weights : u->grads);
}

static void await_transfer(session *s, const step_entry *t) {
    int64_t began = trace_now(s->trace);
    execute_transfer(&s->setup, &s->stage, t);
    trace_span(s->trace, began, "wait for", t->what);
}

/* ---- objectives that look at the whole step first ---- */

/* An estimate of KL(model, reference): the mean log ratio of the sequences that are not learned,
 * and not below 0. */
static status estimate_kl(session *s, const step_source *from, err *e) {
    stage *g = &s->stage;
    int n = execute_pass_rows(g);
    int64_t sum = 0;
    for (int m = 0; m < g->share / g->B; m++) {
        TRY((from->peek ? from->peek : from->fill)(s, m, e));
        execute_look(&s->setup, g, n, g->learned);
        for (int i = 0; i < n && execute_knows_losses(g); i++)
            sum += objective_fixed(objective_ratio(&g->learned[i]));
    }
    sum = peers_sum_count(&s->setup.peers, sum, "the divergence");
    peers_tell_stages(&s->setup.peers, &sum, sizeof sum);
    g->kl = fmax(0, objective_average(sum, g->batch / s->setup.objective->sequences));
    return ST_OK;
}

/* How many targets or samples the step's loss is a mean over. */
static int64_t count_of(const session *s, int64_t targets) {
    return s->setup.objective->loss ? s->stage.batch / s->setup.objective->sequences : targets;
}

static status run_entry(session *s, const step_source *from, const step_entry *t, step_times *times,
                        step_result *r, err *e) {
    op_run run = execute_run_of(s, t->micro_batch, r->grad_scale);
    run.frame = t->frame;
    const routing_ports *io = &s->stage.routing;
    switch (t->action) {
        case STEP_FETCH: offload_fetch(s->setup.offload); break;
        case STEP_FILL: return fill(s, from, t, times, r, e);
        case STEP_FORWARD: replay(s, t, &run, times); break;
        case STEP_BACKWARD:
            routers_give(&s->routers, io, t->chunk, t->frame);
            replay(s, t, &run, times);
            break;
        case STEP_TALLY: routers_take(&s->routers, &s->stage.routing, t); break;
        case STEP_COUNTED:
            routers_settle(&s->routers, &s->stage.routing);
            routers_sum(&s->routers, &s->setup.peers);
            break;
        case STEP_PASS_ON:
        case STEP_PASS_BACK: execute_pass_on(s->setup.dev, &s->stage, t); break;
        case STEP_RECEIVE:
        case STEP_SEND: execute_transfer(&s->setup, &s->stage, t); break;
        case STEP_SENT:
        case STEP_RECEIVED: await_transfer(s, t); break;
        case STEP_TIED: peers_tie(&s->setup.peers, t->unit); break;
        case STEP_LOSS: losses_take(s, t, r); break;
        case STEP_GATHER: peers_gather(&s->setup.peers, t->unit); break;
        case STEP_REDUCE: peers_reduce(&s->setup.peers, t); break;
        case STEP_GATHERED:
        case STEP_REDUCED: wait_for(s, t); return offload_check(s->setup.offload, e);
        case STEP_OPTIMIZER:
            trace_micro_batch(s->trace, -1);
            if (from->reduced) from->reduced(s, from->ctx);
            return update(s, times, r, e);
    }
    return ST_OK;
}

status execute_step(session *s, const step_source *from, step_times *times, step_result *r,
                    err *e) {
    trace_step_begin(s->trace, s->at.step + 1);
    int64_t began = clock_now_ns();
    *r = (step_result){.targets =
                           peers_sum_count(&s->setup.peers, from->count_targets(s), "targets")};
    r->count = count_of(s, r->targets);
    *dev_flag(s->setup.dev) = false; /* the step before was waited for */
    routers_begin_step(&s->routers);
    if (s->setup.objective->kl) TRY(estimate_kl(s, from, e));
    r->wait_ns = clock_now_ns() - began;
    r->loss_scale = s->scale.scale;
    r->grads_scale = execute_grads_scale(s);
    r->grad_scale = r->count > 0 ? (float)(r->loss_scale / (double)r->count) : 0.0f;
    for (int i = 0; i < s->stage.table.n; i++) {
        const step_entry *t = &s->stage.table.entry[i];
        if (t->name) comm_at(s->setup.peers.m.world, t->name, s->at.step + 1);
        TRY(run_entry(s, from, t, times, r, e));
    }
    r->total_ns = clock_now_ns() - began;
    trace_step_end(s->trace);
    return ST_OK;
}

static const step_table *table_of(const stage *g, const prog *p) {
    for (int i = 0; i < g->n_passes; i++)
        if (g->passes[i].p == p) return &g->passes[i].table;
    CHECK(false, "a program that is not in the plan");
    return NULL;
}

void execute_pass(setup *u, const stage *g, const prog *p, const op_run *run) {
    const step_table *table = table_of(g, p);
    for (int i = 0; i < table->n; i++) {
        const step_entry *t = &table->entry[i];
        switch (t->action) {
            case STEP_FORWARD: prog_replay_range(p, t->first, t->end, run, NULL); break;
            case STEP_GATHER: peers_gather(&u->peers, t->unit); break;
            case STEP_GATHERED: peers_gathered(&u->peers, t->unit); break;
            default: break;
        }
    }
}

/* Activations between chunk `c` and the next one, which another stage has. */
static void pass_between(setup *u, const execute_chunks *k, int c, bool sends) {
    const batch_ports *io = &k->chunk[c + !sends];
    prog_port port = sends ? io->y : io->x;
    peers_parcel parcel = {.stage = pipeline_stage_of(k->plan->spec.pp_schedule,
                                                      plan_stages(k->plan), sends ? c + 1 : c),
                           .sends = sends,
                           .dev = u->dev,
                           .data = prog_port_at(io->p, 0, port),
                           .bytes = port.bytes,
                           .what = "activations of a pass without backward"};
    comm_wait(u->peers.m.world, peers_pass(&u->peers, &parcel));
}

void execute_forward(setup *u, const execute_chunks *k, const batch_rows *rows) {
    op_run run = {.dev = u->dev, .mesh = &u->peers.m, .first_micro = true};
    for (int c = 0; c < k->n; c++) {
        const batch_ports *io = &k->chunk[c];
        if (!io->p) continue; /* another stage has it */
        if (rows) batch_put(io, 0, rows);
        if (rows && k->tables) context_put(&k->tables->context, io, 0);
        if (c > 0 && io[-1].p)
            batch_pass_on(u->dev, io - 1, 0, io, 0);
        else if (c > 0)
            pass_between(u, k, c - 1, false);
        if (k->tables)
            execute_pass(u, k->tables, io->p, &run);
        else
            prog_replay(io->p, PROG_ALL, &run);
        if (c < k->n - 1 && !io[1].p) pass_between(u, k, c, true);
    }
}

bool execute_knows_losses(const stage *g) {
    return g->parts.chunk[g->parts.chunks - 1] != NULL;
}

static execute_chunks validation_of(const setup *u, const stage *g) {
    return (execute_chunks){.plan = u->plan,
                            .tables = g,
                            .chunk = g->validations,
                            .n = g->parts.pipe ? g->parts.chunks : 1};
}

double execute_validation(setup *u, const stage *g, bool rows) {
    execute_chunks k = validation_of(u, g);
    execute_forward(u, &k, rows ? &g->own : NULL);
    const batch_ports *last = &g->validations[k.n - 1];
    return rows && last->p ? batch_take_nll(last, 0, &g->own) : 0;
}

void execute_look(setup *u, const stage *g, int first, objective_row *rows) {
    op_run run = {.dev = u->dev, .mesh = &u->peers.m, .first_micro = true};
    batch_rows part = batch_rows_from(&g->rows, first);
    execute_chunks k = validation_of(u, g);
    execute_forward(u, &k, rows ? &part : NULL);
    const batch_ports *last = &g->validations[k.n - 1];
    if (!rows || !last->p) return;
    if (part.labels)
        batch_take_scores(last, 0, &part);
    else
        batch_take_nll(last, 0, &part);
    if (g->parts.looks) {
        batch_put(&g->looks[0], 0, &part);
        prog_replay(g->looks[0].p, PROG_ALL, &run);
        prog_get(g->looks[0].p, 0, g->looks[0].nll, part.ref_nll);
    }
    sum_rows(g, &part, execute_pass_rows(g), rows);
}

void execute_replay(void *ctx, const prog *p, const op_run *run) {
    session *s = ctx;
    op_run ranks = *run;
    ranks.mesh = &s->setup.peers.m;
    execute_pass(&s->setup, &s->stage, p, &ranks);
}

bool execute_needs_all(const setup *u) {
    return param_weights_in_slots(u->plan->store) || u->peers.m.size[MESH_TP] > 1;
}

int64_t execute_trained(const session *s, const step_result *r) {
    return s->setup.objective->loss ? r->sums[SUM_TARGETS] : r->targets;
}

void execute_advance(session *s, const step_result *r) {
    if (s->setup.objective->marks) s->at.trained += (uint64_t)execute_trained(s, r);
    s->at.step++;
    s->at.updates += r->finite && r->verdict != WATCH_SKIP;
    s->at.tokens += (uint64_t)(s->stage.batch * s->stage.T);
    s->at.seconds += (double)r->total_ns / 1e9;
}
