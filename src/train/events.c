/* What a run says of itself, in RUN/metrics.jsonl and to its caller: the events of a step, of the
 * run's start and end, and alarms. */
#include "train/events.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "io/where_runs.h"
#include "op/gemm.h"

json_t *events_new(const char *kind, int64_t step) {
    json_t *o = json_pack("{s:s}", "event", kind);
    if (step >= 0) json_object_set_new(o, "step", json_integer(step));
    return o;
}

status events_emit(session *s, json_t *event, err *e) {
    if (!session_leads(s)) {
        json_decref(event);
        return ST_OK;
    }
    status st = metrics_write(s->metrics, event, e);
    if (st == ST_OK && s->opt->on_event) s->opt->on_event(s->opt->ctx, event);
    json_decref(event);
    return st;
}

json_t *events_alarm(const session *s, const char *kind, const char *fmt, ...) {
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    json_t *o = events_new("alarm", s->at.step);
    json_object_set_new(o, "kind", json_string(kind));
    json_object_set_new(o, "message", json_text(message, strlen(message)));
    return o;
}

status events_late_alarms(session *s, err *e) {
    size_t i;
    json_t *o;
    json_array_foreach(s->late_alarms, i, o) {
        json_object_set_new(o, "step", json_integer(s->at.step)); /* known by now */
        TRY(events_emit(s, json_incref(o), e));
    }
    json_array_clear(s->late_alarms);
    return ST_OK;
}

/* ---- a step ---- */

static void put_f32(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, json_f32((float)x));
}

static json_t *digest_json(uint64_t digest) {
    char hex[17];
    hash_format(digest, hex);
    return json_string(hex);
}

status events_step(session *s, const step_result *r, err *e) {
    double seconds = (double)r->total_ns / 1e9;
    double micro = (double)s->table.micro_batches; /* of this rank, as its programs and its peak */
    json_t *o = events_new("step", s->at.step);
    put_f32(o, "loss", execute_mean_loss(r));
    put_f32(o, "grad_norm", r->norm);
    put_f32(o, "lr", r->lr);
    json_object_set_new(o, "tokens", json_integer((json_int_t)s->at.tokens));
    put_f32(o, "tok_per_s", (double)(s->batch * s->T) / seconds);
    put_f32(o, "mfu", micro * plan_model_flops(s->plan) / seconds / s->peak_flops);
    put_f32(o, "hfu", micro * plan_hardware_flops(s->plan) / seconds / s->peak_flops);
    put_f32(o, "step_ms", seconds * 1e3);
    put_f32(o, "data_wait_ms", (double)r->wait_ns / 1e6);
    if (r->has_digest) json_object_set_new(o, "digest", digest_json(r->digest));
    if (r->verdict == WATCH_SKIP) json_object_set_new(o, "skipped", json_true());
    return events_emit(s, o, e);
}

/* ---- the start ---- */

/* Results depend on the implementation in their last bits, so a run says which it has. */
static json_t *matrix_products_json(const session *s) {
    int by_onednn;
    switch (gemm_get_policy(s->dev, &by_onednn)) {
        case GEMM_ALL_OWN: break;
        case GEMM_ALL_ONEDNN: return json_string("onednn");
        case GEMM_REMEMBERED:
            if (by_onednn > 0) return json_sprintf("own, %d shapes by onednn", by_onednn);
    }
    return json_string("own");
}

/* What the packing makes of the documents; nothing for concat, which has no pieces. */
static void put_packing(json_t *o, const loader *l) {
    packing_totals t = loader_packing_totals(l);
    if (t.sequences == 0) return;
    double room = (double)t.sequences * loader_seq_len(l);
    json_object_set_new(o, "packing",
                        json_pack("{s:I, s:I, s:I, s:f}", "sequences", (json_int_t)t.sequences,
                                  "documents", (json_int_t)t.documents, "documents_cut",
                                  (json_int_t)t.documents_cut, "padding_share",
                                  1 - (double)t.tokens / room));
}

/* Which programs will load what is trained: what none has is told before the first step. */
static void put_where(const session *s, json_t *o) {
    where_runs w = where_runs_of(&s->models[0], s->tok);
    json_object_set_new(o, "runs", where_runs_json(&w));
    if (where_runs_nowhere(&w))
        log_warn("no other program will load this model: %s (athanor plan says more)",
                 w.tool[WHERE_TRANSFORMERS].why);
}

static void put_ranks(const session *s, json_t *o) {
    const mesh *m = &s->peers.m;
    if (peers_ranks(&s->peers) == 1) return;
    json_object_set_new(o, "ranks", json_integer(peers_ranks(&s->peers)));
    json_object_set_new(o, "rank_kind", json_string(comm_world_kind(m->world)));
    json_object_set_new(o, "layout",
                        json_pack("{s:i,s:i,s:i,s:i,s:b}", "dp", m->shape.dp, "dp_replicate",
                                  m->shape.dp_replicate, "zero", (int)s->c->parallel.zero, "tp",
                                  m->shape.tp, "sp", (int)s->c->parallel.sp));
}

/* What was looked up for it: the tokenizer, and the weights that training starts from. */
static void put_files(const session *s, json_t *o) {
    const char *tokenizer = s->c->tokenizer, *from = s->models[0].from;
    if (tokenizer) json_object_set_new(o, "tokenizer", json_text(tokenizer, strlen(tokenizer)));
    if (from) json_object_set_new(o, "from", json_text(from, strlen(from)));
}

status events_start(session *s, err *e) {
    json_t *o = events_new("start", s->at.step);
    json_object_set_new(o, "run", json_string(s->c->run));
    json_object_set_new(o, "params", json_integer(param_store_sizes(s->plan->store).elems));
    put_files(s, o);
    put_where(s, o);
    uint64_t digest;
    status st = session_digest(s, &digest, e);
    if (st != ST_OK) {
        json_decref(o);
        return st;
    }
    json_object_set_new(o, "digest", digest_json(digest));
    put_ranks(s, o);
    json_object_set_new(o, "steps", json_integer(s->course->total_steps));
    json_object_set_new(o, "precision", json_string(dtype_name(s->plan->spec.compute)));
    json_object_set_new(o, "isa", json_string(cpu_isa_name(dev_isa(s->dev))));
    json_object_set_new(o, "threads", json_integer(dev_threads(s->dev)));
    json_object_set_new(o, "matrix_products", matrix_products_json(s));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->plan->peak_bytes));
    json_object_set_new(o, "text_bytes",
                        json_integer((json_int_t)loader_totals(s->train).text_bytes));
    put_packing(o, s->train);
    put_f32(o, "peak_gflops", s->peak_flops / 1e9);
    json_object_set_new(
        o, "flops_formula",
        json_string("every matrix product and attention product of forward and "
                    "backward, a multiply-add as two; causal attention counts half"));
    return events_emit(s, o, e);
}

/* ---- the end ---- */

void events_note_memory(session *s) {
    int64_t now = (int64_t)dev_process_anon_bytes();
    if (now > s->peak_anon_bytes) s->peak_anon_bytes = now;
}

/* A number of each rank. */
static json_t *of_ranks(const session *s, int64_t x) {
    int n = peers_ranks(&s->peers);
    int64_t *all = xcalloc((size_t)n, sizeof *all);
    all[peers_rank(&s->peers)] = x;
    peers_share_count(&s->peers, all);
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_integer(all[i]));
    free(all);
    return array;
}

/* By this rank since it began. */
static json_t *sent_json(const session *s) {
    comm_counts sent = comm_counted(s->peers.m.world);
    return plan_traffic_json(&sent);
}

status events_end(session *s, err *e) {
    events_note_memory(s);
    json_t *o = events_new("end", -1);
    json_object_set_new(o, "run", json_string(s->c->run));
    json_object_set_new(o, "steps", json_integer(s->at.step));
    json_object_set_new(o, "train_s", json_f64(s->at.seconds));
    json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)dev_process_peak_bytes()));
    json_object_set_new(o, "peak_anon_bytes", json_integer(s->peak_anon_bytes));
    json_object_set_new(o, "baseline_bytes", json_integer(plan_baseline_bytes(s->plan)));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->plan->peak_bytes));
    int64_t touched = plan_touched_bytes(s->plan);
    json_object_set_new(o, "touched_peak_bytes", json_integer(touched));
    if (peers_ranks(&s->peers) > 1) {
        json_object_set_new(o, "planned_by_rank", of_ranks(s, s->plan->peak_bytes));
        json_object_set_new(o, "touched_by_rank", of_ranks(s, touched));
        json_object_set_new(o, "sent_bytes", sent_json(s));
    }
    return events_emit(s, o, e);
}
