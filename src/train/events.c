/* The events of a step, of what happens between steps, of the run's start and end. */
#include "train/events.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "dev/cuda.h"
#include "io/checkpoint/checkpoint.h"
#include "interchange/where_runs.h"
#include "op/gemm.h"
#include "plan/clock/clock.h"
#include "run/config/config_device.h"

status events_emit(session *s, const char *kind, int64_t step, json_t *members, err *e) {
    journal *j = &s->journal;
    json_t *o = json_pack("{s:s}", "event", kind);
    status st = ST_OK;
    if (step >= 0) json_object_set_new(o, "step", json_integer(step));
    json_object_update_new(o, members);
    if (j->speaks) st = metrics_write(j->metrics, o, e);
    if (j->speaks && st == ST_OK && j->opt->on_event) j->opt->on_event(j->opt->ctx, o);
    json_decref(o);
    return st;
}

/* ---- a step ---- */

/* What the answers of a preference set were worth to an objective (docs/teaching.md). */
static void put_rewards(json_t *o, const session *s, const int64_t sums[SUM_COUNT]) {
    const objective *k = s->setup.objective;
    double chosen = objective_average(sums[SUM_REWARD_CHOSEN], sums[SUM_CHOSEN]);
    double rejected = objective_average(sums[SUM_REWARD_REJECTED], sums[SUM_REJECTED]);
    json_object_set_new(o, "reward_chosen", json_f32(chosen));
    json_object_set_new(o, "reward_rejected", json_f32(rejected));
    json_object_set_new(o, "margin", json_f32(chosen - rejected));
    if (k->learned == 2)
        json_object_set_new(o, "accuracy",
                            json_f32((double)sums[SUM_WINS] / (double)sums[SUM_CHOSEN]));
    if (k->head) return;
    json_object_set_new(o, "logp_chosen",
                        json_f32(objective_average(sums[SUM_LOGP_CHOSEN], sums[SUM_CHOSEN])));
    json_object_set_new(o, "logp_rejected",
                        json_f32(objective_average(sums[SUM_LOGP_REJECTED], sums[SUM_REJECTED])));
    if (k->kl) json_object_set_new(o, "kl", json_f32(s->stage.kl));
}

/* Of classes; the loss of a number is its squared error. */
static void put_accuracy(json_t *o, const session *s, const int64_t sums[SUM_COUNT]) {
    if (model_problem(&s->setup.models[0]) == PROBLEM_REGRESSION) return;
    json_object_set_new(o, "accuracy", json_f32((double)sums[SUM_WINS] / (double)sums[SUM_CHOSEN]));
}

/* Targets of the step, their share of its tokens with padding, and all so far. */
static void put_trained(json_t *o, const session *s, const step_result *r) {
    int64_t targets = execute_trained(s, r);
    double all = (double)(s->stage.batch * s->stage.T);
    json_object_update_new(o, json_pack("{s:I,s:o,s:I}", "targets", (json_int_t)targets,
                                        "target_share", json_f32((double)targets / all),
                                        "trained_tokens", (json_int_t)s->at.trained));
}

/* What routers of experts did: of each layer, and the worst of all layers. */
static void put_experts(json_t *o, const session *s) {
    const routers *k = &s->routers;
    json_t *load = json_array(), *entropy = json_array(), *balance = json_array();
    json_t *dropped = json_array(), *rounds = json_array();
    double most = 0, mean = 0;
    int dead = 0;
    for (int i = 0; i < k->n; i++) {
        router_view v = routers_view(k, i);
        json_array_append_new(load, json_f32(v.load));
        json_array_append_new(entropy, json_f32(v.entropy));
        json_array_append_new(balance, json_f32(v.balance));
        json_array_append_new(dropped, json_f32(v.dropped));
        json_array_append_new(rounds, json_f32(v.rounds));
        most = fmax(most, v.load), mean += v.entropy / k->n, dead += v.dead;
    }
    json_object_update_new(o, json_pack("{s:o,s:o,s:i,s:{s:o,s:o,s:o}}", "expert_load",
                                        json_f32(most), "router_entropy", json_f32(mean),
                                        "dead_experts", dead, "experts", "load", load, "entropy",
                                        entropy, "balance", balance));
    if (s->stage.now->train.router.capacity_factor > 0)
        json_object_set(json_object_get(o, "experts"), "dropped", dropped);
    if (s->setup.c->parallel.ep > 1)
        json_object_set(json_object_get(o, "experts"), "rounds", rounds);
    json_decref(dropped);
    json_decref(rounds);
}

status events_step(session *s, const step_result *r, err *e) {
    const setup *u = &s->setup;
    const stage *g = &s->stage;
    double seconds = (double)r->total_ns / 1e9;
    /* micro-batches, programs and peak FLOP/s are those of this rank */
    double share = (double)g->table.micro_batches / seconds / u->peak_flops;
    json_t *o = json_pack(
        "{s:o,s:o,s:o,s:I,s:o,s:o,s:o,s:o,s:o}", "loss", json_f32(execute_mean_loss(r)),
        "grad_norm", json_f32(r->norm), "lr", json_f32(r->lr), "tokens", (json_int_t)s->at.tokens,
        "tok_per_s", json_f32((double)(g->batch * g->T) / seconds), "mfu",
        json_f32(share * plan_model_flops(u->plan)), "hfu",
        json_f32(share * plan_hardware_flops(u->plan)), "step_ms", json_f32(seconds * 1e3),
        "data_wait_ms", json_f32((double)r->wait_ns / 1e6));
    for (int k = 0; k < execute_modules(s); k++) {
        char name[24];
        snprintf(name, sizeof name, "mtp_loss_%d", k + 1);
        json_object_set_new(o, name, json_f32(execute_mean_ahead(r, k)));
    }
    if (u->objective->marks) put_trained(o, s, r);
    if (u->objective->values)
        put_accuracy(o, s, r->sums);
    else if (u->objective->loss)
        put_rewards(o, s, r->sums);
    if (s->routers.n) put_experts(o, s);
    if (r->has_digest) json_object_set_new(o, "digest", json_hash(r->digest));
    if (u->plan->spec.compute == DT_F16)
        json_object_set_new(o, "loss_scale", json_f32(r->loss_scale));
    if (r->verdict == WATCH_SKIP || r->overflow) json_object_set_new(o, "skipped", json_true());
    return events_emit(s, "step", s->at.step, o, e);
}

/* Told so many times in a run: large models have thousands of experts. */
enum { LOADS_TOLD = 64 };

status events_load(session *s, err *e) {
    const routers *k = &s->routers;
    int64_t steps = s->setup.course->total_steps, every = (steps + LOADS_TOLD - 1) / LOADS_TOLD;
    if (s->at.step % every != 0 && s->at.step != steps) return ST_OK;
    json_t *layers = json_array(), *loads = json_array();
    for (int i = 0; i < k->n; i++) {
        json_t *load = json_array();
        for (int x = 0; x < k->E; x++)
            json_array_append_new(load, json_integer(llrint(100 * routers_load(k, i, x))));
        json_array_append_new(layers, json_integer(k->layer[i]));
        json_array_append_new(loads, load);
    }
    json_t *o = json_pack("{s:o,s:o}", "layers", layers, "load", loads);
    return events_emit(s, "experts", s->at.step, o, e);
}

/* ---- between steps ---- */

static json_t *sources_json(const session *s) {
    const stage *g = &s->stage;
    json_t *list = json_array();
    for (int i = 0; i < loader_n_sources(g->train); i++) {
        stage_source k = stage_data_source(&s->data, g->train, g->now, g->number, i);
        json_array_append_new(list, json_pack("{s:o,s:o,s:o,s:I,s:I}", "path", json_cstr(k.path),
                                              "weight", json_f64(k.weight), "share",
                                              json_f64(k.share), "tokens", (json_int_t)k.tokens,
                                              "consumed", (json_int_t)k.consumed));
    }
    return list;
}

status events_stage(session *s, err *e) {
    const stage *g = &s->stage;
    const course_stage *k = &s->setup.course->stage[g->number];
    json_t *o = json_pack("{s:s,s:I,s:i,s:I,s:o,s:o,s:o}", "name", k->name, "last_step",
                          (json_int_t)k->last_step, "seq_len", g->T, "batch", (json_int_t)g->batch,
                          "rope_theta", json_f64(s->setup.models[g->number].rope_theta), "lr",
                          json_f64(k->schedule.lr), "sources", sources_json(s));
    return events_emit(s, "stage", k->first_step, o, e);
}

status events_valid(session *s, double bits_per_byte, int64_t targets, err *e) {
    json_t *o = json_pack("{s:o,s:o,s:I}", "val_loss", json_f64(s->at.val_loss), "val_bpb",
                          json_f64(bits_per_byte), "targets", (json_int_t)targets);
    return events_emit(s, "valid", s->at.step, o, e);
}

status events_valid_rewards(session *s, const int64_t sums[SUM_COUNT], err *e) {
    json_t *o = json_pack("{s:o,s:I}", "val_loss", json_f64(s->at.val_loss), "targets",
                          (json_int_t)sums[SUM_TARGETS]);
    put_rewards(o, s, sums);
    return events_emit(s, "valid", s->at.step, o, e);
}

status events_valid_labels(session *s, const label_tally *t, err *e) {
    json_t *o = json_pack("{s:o,s:I}", "val_loss", json_f64(s->at.val_loss), "texts",
                          (json_int_t)label_tally_texts(t));
    json_object_update_new(o, label_tally_json(t));
    return events_emit(s, "valid", s->at.step, o, e);
}

status events_eval(session *s, const char *task, json_t *metrics, const char *precision,
                   double seconds, err *e) {
    json_t *o = json_pack("{s:o,s:s,s:O,s:o}", "task", json_cstr(task), "precision", precision,
                          "metrics", metrics, "seconds", json_f32(seconds));
    return events_emit(s, "eval", s->at.step, o, e);
}

status events_sample(session *s, const char *prompt, const strbuf *text, err *e) {
    json_t *o = json_pack("{s:o,s:o}", "prompt", json_cstr(prompt), "text",
                          json_text(strbuf_cstr(text), text->len));
    return events_emit(s, "sample", s->at.step, o, e);
}

status events_checkpoint(session *s, const save_job *j, err *e) {
    const char *path = checkpoint_path(j->mem, j->run, j->step);
    json_t *o = json_pack("{s:o,s:o}", "path", json_cstr(path), "save_ms",
                          json_f32((double)(clock_now_ns() - j->began_ns) / 1e6));
    return events_emit(s, "checkpoint", j->step, o, e);
}

/* ---- the start ---- */

/* Results depend on the implementation in their last bits, so a run says which it has. */
static json_t *matrix_products_json(const setup *u) {
    char rule[128];
    if (dev_get_kind(u->dev) == DEV_CUDA) return json_string("cublaslt");
    gemm_setting s = gemm_get_setting(u->dev);
    if (s.policy == GEMM_ALL_ONEDNN) return json_string("onednn");
    machine_describe_rule(&s.rule, u->plan->spec.compute == DT_BF16, rule);
    if (s.by_onednn > 0) return json_sprintf("%s, %d shapes by onednn", rule, s.by_onednn);
    return json_string(rule);
}

/* The machine, and what was chosen for it. */
static void put_machine(const setup *u, json_t *o) {
    char name[DEV_NAME_MAX], why[256];
    const choice *k = &u->choice;
    json_object_set_new(o, "device", json_string(dev_kind_name(dev_get_kind(u->dev))));
    if (dev_get_kind(u->dev) == DEV_CUDA) {
        cuda_name(u->dev, name);
        json_object_set_new(o, "gpu", json_cstr(name));
    }
    dev_machine_name(name);
    machine_describe(&k->made, why);
    int arithmetic = u->c->train.precision.arithmetic;
    bool widens = dev_get_kind(u->dev) != DEV_CUDA && dev_isa(u->dev) < ISA_AVX512_BF16;
    if (widens) arithmetic = CONFIG_ARITHMETIC_FP32;
    json_object_update_new(
        o, json_pack("{s:o,s:s,s:s,s:s,s:i,s:o}", "machine", json_cstr(name), "isa",
                     cpu_isa_name(dev_isa(u->dev)), "precision", dtype_name(u->plan->spec.compute),
                     "arithmetic", config_arithmetic_name(arithmetic), "threads",
                     dev_threads(u->dev), "matrix_products", matrix_products_json(u)));
    if (!k->goes_on) json_object_set_new(o, "chosen", json_string(why));
    if (k->probe_s > 0) json_object_set_new(o, "probe_s", json_f32(k->probe_s));
    if (k->began_on[0])
        json_object_set_new(o, "began_on",
                            json_sprintf("%s: the last bits may differ from there", k->began_on));
    if (!k->otherwise[0]) return;
    json_object_set_new(o, "otherwise", json_cstr(k->otherwise));
    log_warn("%s", k->otherwise);
}

/* Packing makes steps fewer and larger; batch and rate that were found without it may not fit then. */
static void warn_of_large_steps(const session *s, const packing_totals *t) {
    enum { TELLING = 2 };
    int64_t rows = s->stage.now->train.global_batch_size;
    double a_row = (double)t->documents / (double)t->sequences;
    bool packs = loader_get_packing(s->stage.train) == PACKING_BESTFIT;
    if (!s->journal.speaks || !packs || a_row < TELLING) return;
    log_info(
        "packing: a row has %.1f conversations or texts, so a step of %" PRId64
        " rows has %.0f tokens of them; one a row (data.packing=none) would be %.0f. Fewer, larger "
        "steps: look at train.global_batch_size and optim.lr",
        a_row, rows, (double)rows * (double)t->tokens / (double)t->sequences,
        (double)rows * (double)t->tokens / (double)t->documents);
}

/* How documents are packed into sequences; nothing for data.packing=concat. */
static void put_packing(const session *s, json_t *o) {
    const loader *l = s->stage.train;
    packing_totals t = loader_packing_totals(l);
    if (t.sequences == 0) return;
    double room = (double)t.sequences * loader_seq_len(l);
    warn_of_large_steps(s, &t);
    json_object_set_new(o, "packing",
                        json_pack("{s:I, s:I, s:I, s:f, s:f}", "sequences", (json_int_t)t.sequences,
                                  "documents", (json_int_t)t.documents, "documents_cut",
                                  (json_int_t)t.documents_cut, "documents_per_row",
                                  (double)t.documents / (double)t.sequences, "padding_share",
                                  1 - (double)t.tokens / room));
}

/* Which programs can load the model; when none can, a warning comes before the first step. */
static void put_where(const session *s, json_t *o) {
    where_runs w = where_runs_of(&s->setup.models[0], s->setup.tok);
    json_object_set_new(o, "runs", where_runs_json(&w));
    if (s->journal.speaks && where_runs_nowhere(&w))
        log_warn("no other program will load this model: %s (athanor plan says more)",
                 w.tool[WHERE_TRANSFORMERS].why);
}

static void put_ranks(const session *s, json_t *o) {
    const mesh *m = &s->setup.peers.m;
    if (peers_ranks(&s->setup.peers) == 1) return;
    json_object_set_new(o, "ranks", json_integer(peers_ranks(&s->setup.peers)));
    json_object_set_new(o, "rank_kind", json_string(comm_world_kind(m->world)));
    json_object_set_new(o, "transport", json_string(comm_transport(m->world)));
    json_object_set_new(o, "layout",
                        json_pack("{s:i,s:i,s:i,s:i,s:b,s:i,s:i,s:i}", "dp", m->shape.dp,
                                  "dp_replicate", m->shape.dp_replicate, "zero",
                                  (int)s->setup.c->parallel.zero, "tp", m->shape.tp, "sp",
                                  (int)s->setup.c->parallel.sp, "cp", m->size[MESH_CP], "ep",
                                  m->size[MESH_EP], "pp", m->size[MESH_PP]));
}

/* What was looked up for it: the tokenizer, and the weights that training starts from. */
static void put_files(const setup *u, json_t *o) {
    const char *tokenizer = u->c->tokenizer, *from = u->models[0].from;
    if (tokenizer) json_object_set_new(o, "tokenizer", json_cstr(tokenizer));
    if (from) json_object_set_new(o, "from", json_cstr(from));
}

/* What the planner's clock says of a step, to be compared with what it takes. */
static void put_prediction(session *s, json_t *o) {
    cluster on;
    const setup *u = &s->setup;
    int ranks = peers_ranks(&u->peers);
    if (!s->journal.speaks || !config_find_cluster(u->c, ranks, dev_get_kind(u->dev), &on)) return;
    clock_time t = clock_step(u->plan, &on);
    s->journal.predicted_step_s = t.step_s;
    json_object_set_new(o, "predicted",
                        json_pack("{s:o,s:f,s:f}", "cluster", json_cstr(on.name), "step_ms",
                                  t.step_s * 1e3, "tok_per_s", t.tokens / t.step_s));
}

status events_start(session *s, err *e) {
    const setup *u = &s->setup;
    json_t *o = json_pack("{s:o,s:I}", "run", json_cstr(u->c->run), "params",
                          (json_int_t)param_store_sizes(param_store_whole(u->plan->store)).elems);
    put_files(u, o);
    put_where(s, o);
    uint64_t digest;
    status st = setup_digest(&s->setup, &digest, e);
    if (st != ST_OK) {
        json_decref(o);
        return st;
    }
    json_object_set_new(o, "digest", json_hash(digest));
    put_ranks(s, o);
    json_object_update_new(o, json_pack("{s:I,s:I,s:I}", "steps",
                                        (json_int_t)u->course->total_steps, "planned_peak_bytes",
                                        (json_int_t)u->plan->peak_bytes, "text_bytes",
                                        (json_int_t)loader_totals(s->stage.train).text_bytes));
    put_machine(u, o);
    put_packing(s, o);
    put_prediction(s, o);
    json_object_set_new(o, "peak_gflops", json_f32(u->peak_flops / 1e9));
    json_object_set_new(
        o, "flops_formula",
        json_string("every matrix product and attention product of forward and "
                    "backward, a multiply-add as two; causal attention counts half"));
    return events_emit(s, "start", s->at.step, o, e);
}

/* ---- the end ---- */

void events_note_memory(journal *j) {
    int64_t now = (int64_t)dev_process_anon_bytes();
    if (now > j->peak_anon_bytes) j->peak_anon_bytes = now;
}

/* A number of each rank. */
static json_t *of_ranks(const setup *u, int64_t x) {
    int n = peers_ranks(&u->peers);
    int64_t *all = xcalloc((size_t)n, sizeof *all);
    all[peers_rank(&u->peers)] = x;
    peers_share_count(&u->peers, all);
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_integer(all[i]));
    free(all);
    return array;
}

/* Bytes that this rank has sent since it began. */
static json_t *sent_json(const setup *u) {
    comm_counts sent = comm_counted(u->peers.m.world);
    return plan_traffic_json(&sent);
}

status events_end(session *s, err *e) {
    const plan *p = s->setup.plan;
    int64_t touched = plan_touched_bytes(p);
    events_note_memory(&s->journal);
    json_t *o = json_pack("{s:o,s:I,s:o,s:I,s:I,s:I,s:I,s:I}", "run", json_cstr(s->setup.c->run),
                          "steps", (json_int_t)s->at.step, "train_s", json_f64(s->at.seconds),
                          "peak_rss_bytes", (json_int_t)dev_process_peak_bytes(), "peak_anon_bytes",
                          (json_int_t)s->journal.peak_anon_bytes, "baseline_bytes",
                          (json_int_t)plan_baseline_bytes(p), "planned_peak_bytes",
                          (json_int_t)p->peak_bytes, "touched_peak_bytes", (json_int_t)touched);
    if (s->journal.predicted_step_s > 0 && s->at.step > 0)
        json_object_update_new(o, json_pack("{s:f,s:f}", "predicted_step_ms",
                                            s->journal.predicted_step_s * 1e3, "mean_step_ms",
                                            s->at.seconds * 1e3 / (double)s->at.step));
    if (peers_ranks(&s->setup.peers) > 1) {
        json_object_set_new(o, "planned_by_rank", of_ranks(&s->setup, p->peak_bytes));
        json_object_set_new(o, "touched_by_rank", of_ranks(&s->setup, touched));
        json_object_set_new(o, "sent_bytes", sent_json(&s->setup));
    }
    return events_emit(s, "end", -1, o, e);
}
