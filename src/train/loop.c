/* Steps: fill, forward, backward, norm, update; and what happens between them. The step path
 * allocates nothing but the event objects. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "train/session.h"

json_t *session_event(const char *kind, int64_t step) {
    json_t *o = json_pack("{s:s}", "event", kind);
    if (step >= 0) json_object_set_new(o, "step", json_integer(step));
    return o;
}

status session_emit(session *s, json_t *event, err *e) {
    status st = metrics_write(s->metrics, event, e);
    if (st == ST_OK && s->opt->on_event) s->opt->on_event(s->opt->ctx, event);
    json_decref(event);
    return st;
}

static void put_f32(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, json_f32((float)x));
}

static json_t *digest_json(const session *s) {
    char hex[17];
    hash_format(param_digest(s->plan->store), hex);
    return json_string(hex);
}

int64_t loop_fill(loader *l, const prog *p, uint64_t first_sample, int B, bool document_mask) {
    int32_t *start = document_mask ? prog_tensor(p, "start")->data : NULL;
    return loader_fill(l, first_sample, B, prog_tensor(p, "ids")->data,
                       prog_tensor(p, "targets")->data, start, prog_tensor(p, "pos")->data);
}

/* ---- one step ---- */

typedef struct step_result {
    double nll_sum;
    int64_t targets;
    double norm, lr;
    int64_t wait_ns, total_ns;
    bool finite;
} step_result;

double loop_sum_nll(const prog *p) {
    const tensor *t = prog_tensor(p, "nll");
    double sum = 0;
    for (int64_t i = 0; i < t->rows; i++) sum += ((const float *)t->data)[i];
    return sum;
}

op_run loop_run_of(const session *s, int micro_batch, float grad_scale) {
    return (op_run){.dev = s->dev,
                    .seed = (uint64_t)s->c->train.seed,
                    .step = (uint64_t)s->at.step + 1,
                    .micro_batch = (uint32_t)micro_batch,
                    .first_micro = micro_batch == 0,
                    .grad_scale = grad_scale};
}

static void update(session *s, step_result *r) {
    const config *c = s->c;
    r->norm = optim_grad_norm(s->dev, s->plan->store);
    r->lr = schedule_lr(&s->schedule, s->at.step + 1);
    r->finite = isfinite(r->nll_sum) && isfinite(r->norm);
    if (!r->finite) return;
    optim_hyper h = {.lr = r->lr,
                     .beta1 = c->optim.betas.items[0],
                     .beta2 = c->optim.betas.items[1],
                     .eps = c->optim.eps,
                     .weight_decay = c->optim.weight_decay,
                     .step = s->at.step + 1,
                     .grad_scale = (float)optim_clip_factor(r->norm, c->optim.clip_norm)};
    s->optim->update(s->dev, s->plan->store, s->decay, s->plan->optim_state, &h);
}

/* Gradients are divided by the unmasked targets of the whole step, known before its first
 * micro-batch. */
static float grad_scale_of(const session *s, uint64_t first_sample, int64_t *targets) {
    *targets = loader_count_targets(s->train, first_sample, (uint64_t)s->batch);
    return *targets > 0 ? (float)(1.0 / (double)*targets) : 0.0f;
}

static status run_step(session *s, step_result *r, err *e) {
    const prog *p = s->plan->prog[PLAN_TRAIN];
    int64_t began = clock_now_ns();
    *r = (step_result){0};
    float scale = grad_scale_of(s, s->at.samples, &r->targets);
    for (int i = 0; i < s->table.n; i++) {
        const step_entry *t = &s->table.entry[i];
        op_run run = loop_run_of(s, t->micro_batch, scale);
        if (t->action == STEP_OPTIMIZER) {
            update(s, r);
        } else if (t->action == STEP_FORWARD) {
            int64_t wait = clock_now_ns();
            uint64_t first = s->at.samples + (uint64_t)t->micro_batch * (uint64_t)s->B;
            loop_fill(s->train, p, first, s->B, s->c->data.document_mask);
            TRY(loader_error(s->train, e));
            r->wait_ns += clock_now_ns() - wait;
            prog_replay(p, PROG_F, &run);
            r->nll_sum += loop_sum_nll(p);
        } else {
            prog_replay(p, PROG_B | PROG_W, &run);
        }
    }
    r->total_ns = clock_now_ns() - began;
    if (r->finite) return ST_OK;
    return guard_explain(s, s->at.samples, scale, e);
}

static status emit_step(session *s, const step_result *r, err *e) {
    double seconds = (double)r->total_ns / 1e9;
    double micro = (double)s->table.micro_batches;
    json_t *o = session_event("step", s->at.step);
    put_f32(o, "loss", r->targets ? r->nll_sum / (double)r->targets : 0.0);
    put_f32(o, "grad_norm", r->norm);
    put_f32(o, "lr", r->lr);
    json_object_set_new(o, "tokens", json_integer((json_int_t)s->at.tokens));
    put_f32(o, "tok_per_s", (double)(s->batch * s->T) / seconds);
    put_f32(o, "mfu", micro * plan_model_flops(s->plan) / seconds / s->peak_flops);
    put_f32(o, "hfu", micro * plan_hardware_flops(s->plan) / seconds / s->peak_flops);
    put_f32(o, "step_ms", seconds * 1e3);
    put_f32(o, "data_wait_ms", (double)r->wait_ns / 1e6);
    int64_t every = s->c->train.digest_every;
    if (every > 0 && s->at.step % every == 0) json_object_set_new(o, "digest", digest_json(s));
    return session_emit(s, o, e);
}

/* ---- between steps ---- */

static bool due(int64_t every, const session *s) {
    return (every > 0 && s->at.step % every == 0) || s->at.step == s->total_steps;
}

static void note_memory(session *s) {
    int64_t now = (int64_t)dev_process_anon_bytes();
    if (now > s->peak_anon_bytes) s->peak_anon_bytes = now;
}

static status after_step(session *s, err *e) {
    const config *c = s->c;
    if (s->at.step == 1 || s->at.step == s->total_steps) note_memory(s);
    if (s->valid && due(c->eval.every, s)) TRY(validate(s, e));
    if (due(c->sample.every, s)) TRY(samples_write(s, e));
    if (due(c->checkpoint.every, s)) TRY(state_save(s, e));
    return ST_OK;
}

static status emit_start(session *s, err *e) {
    json_t *o = session_event("start", s->at.step);
    json_object_set_new(o, "run", json_string(s->c->run));
    json_object_set_new(o, "params", json_integer(param_store_sizes(s->plan->store).elems));
    json_object_set_new(o, "digest", digest_json(s));
    json_object_set_new(o, "steps", json_integer(s->total_steps));
    json_object_set_new(o, "precision", json_string(dtype_name(s->plan->spec.compute)));
    json_object_set_new(o, "isa", json_string(cpu_isa_name(dev_isa(s->dev))));
    json_object_set_new(o, "threads", json_integer(dev_threads(s->dev)));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->plan->peak_bytes));
    json_object_set_new(o, "text_bytes",
                        json_integer((json_int_t)loader_totals(s->train).text_bytes));
    put_f32(o, "peak_gflops", s->peak_flops / 1e9);
    json_object_set_new(
        o, "flops_formula",
        json_string("every matrix product and attention product of forward and "
                    "backward, a multiply-add as two; causal attention counts half"));
    return session_emit(s, o, e);
}

static status emit_end(session *s, err *e) {
    note_memory(s);
    json_t *o = session_event("end", -1);
    json_object_set_new(o, "run", json_string(s->c->run));
    json_object_set_new(o, "steps", json_integer(s->at.step));
    json_object_set_new(o, "train_s", json_f64(s->at.seconds));
    json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)dev_process_peak_bytes()));
    json_object_set_new(o, "peak_anon_bytes", json_integer(s->peak_anon_bytes));
    json_object_set_new(o, "baseline_bytes", json_integer(plan_baseline_bytes(s->plan)));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->plan->peak_bytes));
    size_t touched = dev_high_water_bytes(s->plan->base, (size_t)s->plan->peak_bytes);
    json_object_set_new(o, "touched_peak_bytes", json_integer((json_int_t)touched));
    return session_emit(s, o, e);
}

static status stop_now(session *s, err *e) {
    TRY(state_save(s, e));
    TRY(emit_end(s, e));
    err_set(e, ST_STOPPED, "stopped after step %ld, state saved", (long)s->at.step);
    return err_hint(e, "start the same command again to go on");
}

status loop_run(session *s, err *e) {
    TRY(emit_start(s, e));
    bool worked = s->at.step < s->total_steps;
    while (s->at.step < s->total_steps) {
        step_result r;
        TRY(run_step(s, &r, e));
        s->at.step++;
        s->at.samples += (uint64_t)s->batch;
        s->at.tokens += (uint64_t)(s->batch * s->T);
        s->at.seconds += (double)r.total_ns / 1e9;
        if (s->at.step % s->c->train.log_every == 0 || s->at.step == s->total_steps)
            TRY(emit_step(s, &r, e));
        TRY(after_step(s, e));
        if (s->opt->stop && *s->opt->stop && s->at.step < s->total_steps) return stop_now(s, e);
    }
    if (!worked) log_info("run %s already has its %ld steps", s->c->run, (long)s->total_steps);
    return emit_end(s, e);
}
