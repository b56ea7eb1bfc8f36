/* The events of a step, of what happens between steps, of the run's start and end. */
#include "train/events.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint.h"
#include "io/where_runs.h"
#include "op/gemm.h"

json_t *events_new(const char *kind, int64_t step) {
    json_t *o = json_pack("{s:s}", "event", kind);
    if (step >= 0) json_object_set_new(o, "step", json_integer(step));
    return o;
}

status events_emit(session *s, json_t *event, err *e) {
    journal *j = &s->journal;
    status st = ST_OK;
    if (j->speaks) st = metrics_write(j->metrics, event, e);
    if (j->speaks && st == ST_OK && j->opt->on_event) j->opt->on_event(j->opt->ctx, event);
    json_decref(event);
    return st;
}

static json_t *text_json(const char *text) {
    return json_text(text, strlen(text));
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
    double micro =
        (double)s->stage.table.micro_batches; /* of this rank, as its programs and its peak */
    json_t *o = events_new("step", s->at.step);
    put_f32(o, "loss", execute_mean_loss(r));
    put_f32(o, "grad_norm", r->norm);
    put_f32(o, "lr", r->lr);
    json_object_set_new(o, "tokens", json_integer((json_int_t)s->at.tokens));
    put_f32(o, "tok_per_s", (double)(s->stage.batch * s->stage.T) / seconds);
    put_f32(o, "mfu", micro * plan_model_flops(s->setup.plan) / seconds / s->setup.peak_flops);
    put_f32(o, "hfu", micro * plan_hardware_flops(s->setup.plan) / seconds / s->setup.peak_flops);
    put_f32(o, "step_ms", seconds * 1e3);
    put_f32(o, "data_wait_ms", (double)r->wait_ns / 1e6);
    if (r->has_digest) json_object_set_new(o, "digest", digest_json(r->digest));
    if (r->verdict == WATCH_SKIP) json_object_set_new(o, "skipped", json_true());
    return events_emit(s, o, e);
}

/* ---- between steps ---- */

static json_t *source_json(const stage_source *k) {
    json_t *o = json_object();
    json_object_set_new(o, "path", text_json(k->path));
    json_object_set_new(o, "weight", json_f64(k->weight));
    json_object_set_new(o, "share", json_f64(k->share));
    json_object_set_new(o, "tokens", json_integer((json_int_t)k->tokens));
    json_object_set_new(o, "consumed", json_integer((json_int_t)k->consumed));
    return o;
}

status events_stage(session *s, err *e) {
    const stage *g = &s->stage;
    const course_stage *k = &s->setup.course->stage[g->number];
    json_t *o = events_new("stage", k->first_step), *sources = json_array();
    for (int i = 0; i < loader_n_sources(g->train); i++) {
        stage_source source = stage_data_source(&s->data, g->train, g->now, g->number, i);
        json_array_append_new(sources, source_json(&source));
    }
    json_object_set_new(o, "name", json_string(k->name));
    json_object_set_new(o, "last_step", json_integer(k->last_step));
    json_object_set_new(o, "seq_len", json_integer(g->T));
    json_object_set_new(o, "batch", json_integer(g->batch));
    json_object_set_new(o, "rope_theta", json_f64(s->setup.models[g->number].rope_theta));
    json_object_set_new(o, "lr", json_f64(k->schedule.lr));
    json_object_set_new(o, "sources", sources);
    return events_emit(s, o, e);
}

status events_valid(session *s, double bits_per_byte, int64_t targets, err *e) {
    json_t *o = events_new("valid", s->at.step);
    json_object_set_new(o, "val_loss", json_f64(s->at.val_loss));
    json_object_set_new(o, "val_bpb", json_f64(bits_per_byte));
    json_object_set_new(o, "targets", json_integer(targets));
    return events_emit(s, o, e);
}

status events_sample(session *s, const char *prompt, const strbuf *text, err *e) {
    json_t *o = events_new("sample", s->at.step);
    json_object_set_new(o, "prompt", json_string(prompt));
    json_object_set_new(o, "text", json_text(strbuf_cstr(text), text->len));
    return events_emit(s, o, e);
}

status events_checkpoint(session *s, const save_job *j, err *e) {
    json_t *o = events_new("checkpoint", j->step);
    json_object_set_new(o, "path", text_json(checkpoint_path(j->mem, j->run, j->step)));
    put_f32(o, "save_ms", (double)(clock_now_ns() - j->began_ns) / 1e6);
    return events_emit(s, o, e);
}

/* ---- the start ---- */

/* Results depend on the implementation in their last bits, so a run says which it has. */
static json_t *matrix_products_json(const session *s) {
    int by_onednn;
    switch (gemm_get_policy(s->setup.dev, &by_onednn)) {
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
    where_runs w = where_runs_of(&s->setup.models[0], s->setup.tok);
    json_object_set_new(o, "runs", where_runs_json(&w));
    if (where_runs_nowhere(&w))
        log_warn("no other program will load this model: %s (athanor plan says more)",
                 w.tool[WHERE_TRANSFORMERS].why);
}

static void put_ranks(const session *s, json_t *o) {
    const mesh *m = &s->setup.peers.m;
    if (peers_ranks(&s->setup.peers) == 1) return;
    json_object_set_new(o, "ranks", json_integer(peers_ranks(&s->setup.peers)));
    json_object_set_new(o, "rank_kind", json_string(comm_world_kind(m->world)));
    json_object_set_new(o, "layout",
                        json_pack("{s:i,s:i,s:i,s:i,s:b}", "dp", m->shape.dp, "dp_replicate",
                                  m->shape.dp_replicate, "zero", (int)s->setup.c->parallel.zero,
                                  "tp", m->shape.tp, "sp", (int)s->setup.c->parallel.sp));
}

status events_start(session *s, err *e) {
    json_t *o = events_new("start", s->at.step);
    json_object_set_new(o, "run", text_json(s->setup.c->run));
    json_object_set_new(o, "params", json_integer(param_store_sizes(s->setup.plan->store).elems));
    put_where(s, o);
    uint64_t digest;
    status st = setup_digest(&s->setup, &digest, e);
    if (st != ST_OK) {
        json_decref(o);
        return st;
    }
    json_object_set_new(o, "digest", digest_json(digest));
    put_ranks(s, o);
    json_object_set_new(o, "steps", json_integer(s->setup.course->total_steps));
    json_object_set_new(o, "precision", json_string(dtype_name(s->setup.plan->spec.compute)));
    json_object_set_new(o, "isa", json_string(cpu_isa_name(dev_isa(s->setup.dev))));
    json_object_set_new(o, "threads", json_integer(dev_threads(s->setup.dev)));
    json_object_set_new(o, "matrix_products", matrix_products_json(s));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->setup.plan->peak_bytes));
    json_object_set_new(o, "text_bytes",
                        json_integer((json_int_t)loader_totals(s->stage.train).text_bytes));
    put_packing(o, s->stage.train);
    put_f32(o, "peak_gflops", s->setup.peak_flops / 1e9);
    json_object_set_new(
        o, "flops_formula",
        json_string("every matrix product and attention product of forward and "
                    "backward, a multiply-add as two; causal attention counts half"));
    return events_emit(s, o, e);
}

/* ---- the end ---- */

void events_note_memory(journal *j) {
    int64_t now = (int64_t)dev_process_anon_bytes();
    if (now > j->peak_anon_bytes) j->peak_anon_bytes = now;
}

/* A number of each rank. */
static json_t *of_ranks(const session *s, int64_t x) {
    int n = peers_ranks(&s->setup.peers);
    int64_t *all = xcalloc((size_t)n, sizeof *all);
    all[peers_rank(&s->setup.peers)] = x;
    peers_share_count(&s->setup.peers, all);
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_integer(all[i]));
    free(all);
    return array;
}

/* By this rank since it began. */
static json_t *sent_json(const session *s) {
    comm_counts sent = comm_counted(s->setup.peers.m.world);
    return plan_traffic_json(&sent);
}

status events_end(session *s, err *e) {
    events_note_memory(&s->journal);
    json_t *o = events_new("end", -1);
    json_object_set_new(o, "run", text_json(s->setup.c->run));
    json_object_set_new(o, "steps", json_integer(s->at.step));
    json_object_set_new(o, "train_s", json_f64(s->at.seconds));
    json_object_set_new(o, "peak_rss_bytes", json_integer((json_int_t)dev_process_peak_bytes()));
    json_object_set_new(o, "peak_anon_bytes", json_integer(s->journal.peak_anon_bytes));
    json_object_set_new(o, "baseline_bytes", json_integer(plan_baseline_bytes(s->setup.plan)));
    json_object_set_new(o, "planned_peak_bytes", json_integer(s->setup.plan->peak_bytes));
    int64_t touched = plan_touched_bytes(s->setup.plan);
    json_object_set_new(o, "touched_peak_bytes", json_integer(touched));
    if (peers_ranks(&s->setup.peers) > 1) {
        json_object_set_new(o, "planned_by_rank", of_ranks(s, s->setup.plan->peak_bytes));
        json_object_set_new(o, "touched_by_rank", of_ranks(s, touched));
        json_object_set_new(o, "sent_bytes", sent_json(s));
    }
    return events_emit(s, o, e);
}
