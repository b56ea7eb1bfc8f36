/* Alarms: each function is one kind, with its sentence. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "run/record.h"
#include "train/events.h"

enum { NAMED_DOCUMENTS = 8 };

/* ---- how they are made ---- */

/* The members of every alarm; others follow. */
ATH_PRINTF(2, 3) static json_t *alarm_new(const char *kind, const char *fmt, ...) {
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return json_pack("{s:s,s:o}", "kind", kind, "message", json_cstr(message));
}

static status emit(session *s, json_t *alarm, err *e) {
    return events_emit(s, "alarm", s->at.step, alarm, e);
}

static const char *message_of(const json_t *alarm) {
    return json_string_value(json_object_get(alarm, "message"));
}

/* ---- data ---- */

static status tell_budget(session *s, const stage_source *k, err *e) {
    double passes = round(k->passes * 100) / 100;
    json_t *o =
        alarm_new("epochs", "%s will have been passed over %.4g times; its budget is %.4g epochs",
                  k->path, passes, k->budget);
    json_object_update_new(o, json_pack("{s:o,s:o,s:o}", "source", json_cstr(k->path), "passes",
                                        json_f64(passes), "budget", json_f64(k->budget)));
    return emit(s, o, e);
}

status events_budgets(session *s, err *e) {
    const stage *g = &s->stage;
    for (int i = 0; i < loader_n_sources(g->train); i++) {
        stage_source k = stage_data_source(&s->data, g->train, g->now, g->number, i);
        if (k.passes > k.budget * (1 + 1e-9)) TRY(tell_budget(s, &k, e));
    }
    return ST_OK;
}

/* ---- decay ---- */

static bool is_in(const json_t *texts, const char *text) {
    size_t i;
    json_t *item;
    json_array_foreach(texts, i, item) {
        if (strcmp(json_string_value(item), text) == 0) return true;
    }
    return false;
}

void events_patterns(const session *s) {
    const param_store *params = param_store_whole(s->setup.plan->store);
    const config_texts *patterns = &s->stage.now->optim.no_decay;
    json_t *usual = config_default("optim.no_decay");
    for (int k = 0; k < patterns->n; k++) {
        bool found = is_in(usual, patterns->items[k]);
        for (int i = 0; i < param_count(params) && !found; i++)
            found = optim_pattern_matches(patterns->items[k], param_at(params, i)->name);
        if (!found)
            log_warn("optim.no_decay (%s): no parameter matches '%s'",
                     config_where(s->stage.now, "optim.no_decay"), patterns->items[k]);
    }
    json_decref(usual);
}

/* ---- steps ---- */

status events_nonfinite(session *s, const char *what, err *e) {
    return events_emit(s, "alarm", s->at.step + 1, alarm_new("nonfinite", "%s", what), e);
}

static json_t *score_json(const step_result *r) {
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "loss", json_f32(execute_mean_loss(r)),
                     "loss_z", json_f32(r->score.loss_z), "loss_mean", json_f32(r->score.loss_mean),
                     "grad_norm", json_f32(r->norm), "norm_z", json_f32(r->score.norm_z),
                     "norm_mean", json_f32(r->score.norm_mean), "repeated", json_f32(r->repeated));
}

/* What a verdict does: as the event says it, and in its sentence. */
static const struct {
    const char *action, *sentence;
} verdicts[] = {[WATCH_FINE] = {"", ""},
                [WATCH_LOG] = {"log", ""},
                [WATCH_LOWER] = {"lower", "; the learning rate is lowered"},
                [WATCH_SKIP] = {"skip", "; its update was left out"},
                [WATCH_REWIND] = {"rewind", "; the run goes back to its last checkpoint"}};

status events_spike(session *s, const step_result *r, suspects *documents, err *e) {
    json_t *list = events_documents(documents, NAMED_DOCUMENTS);
    strbuf named = {0};
    if (json_array_size(list) > 0) {
        strbuf_puts(&named, "; most suspicious: ");
        record_put_document(&named, json_array_get(list, 0));
    }
    char repeated[64] = "";
    if (watch_is_repetitive(s->setup.c, r->repeated))
        snprintf(repeated, sizeof repeated, ", %.3g %% of its tokens repeat themselves",
                 100 * r->repeated);
    json_t *o = alarm_new("spike", "loss %.4g (z %.1f), gradient norm %.4g (z %.1f)%s%s%s",
                          execute_mean_loss(r), r->score.loss_z, r->norm, r->score.norm_z, repeated,
                          verdicts[r->verdict].sentence, strbuf_cstr(&named));
    strbuf_free(&named);
    json_object_set_new(o, "action", json_string(verdicts[r->verdict].action));
    json_object_update_new(o, score_json(r));
    json_object_set_new(o, "documents", list);
    return events_emit(s, "alarm", s->at.step + 1, o, e);
}

status events_rewind(session *s, const step_result *r, int64_t from, const watch_gap *left_out,
                     suspects *documents, err *e) {
    json_t *o = alarm_new("rewind",
                          "went back from step %" PRId64 " to step %" PRId64 "; its %" PRIu64
                          " samples are left out",
                          from, s->at.step, left_out->n);
    json_object_update_new(o, json_pack("{s:I,s:I,s:{s:i,s:I,s:I}}", "from_step", (json_int_t)from,
                                        "to_step", (json_int_t)s->at.step, "left_out", "stage",
                                        left_out->stage, "first", (json_int_t)left_out->first, "n",
                                        (json_int_t)left_out->n));
    json_object_update_new(o, score_json(r));
    json_object_set_new(o, "documents", events_documents(documents, NAMED_DOCUMENTS));
    return emit(s, o, e);
}

static status tell_fall(session *s, err *e) {
    double mean = rewards_mean_chosen(&s->watch.rewards);
    json_t *o = alarm_new("chosen_falls",
                          "chosen answers are only e^%.3g times as likely as by the reference: a "
                          "lower optim.lr or a larger train.beta holds them",
                          mean / s->stage.now->train.beta);
    json_object_set_new(o, "reward_chosen", json_f32(mean));
    return emit(s, o, e);
}

static status tell_margin(session *s, err *e) {
    double mean = rewards_mean_margin(&s->watch.rewards);
    json_t *o = alarm_new("margin",
                          "the margin between chosen and rejected answers is %.3g: these pairs "
                          "teach nothing any more",
                          mean);
    json_object_set_new(o, "margin", json_f32(mean));
    return emit(s, o, e);
}

status events_rewards(session *s, const step_result *r, err *e) {
    const objective *o = s->setup.objective;
    if (!o->reference || !r->finite) return ST_OK;
    double chosen = objective_average(r->sums[SUM_REWARD_CHOSEN], r->sums[SUM_CHOSEN]);
    double rejected = objective_average(r->sums[SUM_REWARD_REJECTED], r->sums[SUM_REJECTED]);
    rewards_alarm told = rewards_take(&s->watch.rewards, chosen, chosen - rejected);
    if (told == REWARDS_FALL) return o->lowers_chosen ? ST_OK : tell_fall(s, e);
    return told == REWARDS_MARGIN ? tell_margin(s, e) : ST_OK;
}

/* So many steps are seen before the first alarm: at the beginning routers are nearly random. */
enum { ROUTERS_FIRST = 8 };
static const double COLLAPSED = 0.8, RECOVERED = 0.6;

static status tell_collapse(session *s, int layer, err *e) {
    const routers *k = &s->routers;
    router_view v = routers_view(k, layer);
    double even = (double)k->k / k->E;
    json_t *o =
        alarm_new("router_collapse",
                  "layer %d: %d of %d experts get %.0f %% of the tokens' picks: a larger "
                  "model.router_aux_loss_coef, or train.router.balance=global, keeps the load even",
                  k->layer[layer], k->k, k->E, 100 * (even + v.collapse * (1 - even)));
    json_object_update_new(o, json_pack("{s:i,s:o,s:i}", "layer", k->layer[layer], "collapse",
                                        json_f32(v.collapse), "dead_experts", v.dead));
    return emit(s, o, e);
}

status events_routers(session *s, const step_result *r, err *e) {
    routers *k = &s->routers;
    if (k->n == 0 || !r->finite) return ST_OK;
    routers_watch(k);
    for (int i = 0; i < k->n && k->steps >= ROUTERS_FIRST; i++) {
        double collapse = routers_view(k, i).collapse;
        if (collapse < RECOVERED) k->told[i] = false;
        if (collapse < COLLAPSED || k->told[i]) continue;
        k->told[i] = true;
        TRY(tell_collapse(s, i, e));
    }
    return events_load(s, e);
}

status events_early_stop(session *s, err *e) {
    const early_stop *v = &s->watch.stop;
    json_t *o = alarm_new("early_stop",
                          "%ld validations without a loss below %.4f, that of step %ld: the run "
                          "ends here",
                          (long)v->without, v->best_loss, (long)v->best_step);
    log_info("%s", message_of(o));
    return emit(s, o, e);
}

/* ---- checkpoints ---- */

status events_save_failed(session *s, const save_job *j, const err *why, bool fatal, err *e) {
    json_t *o = alarm_new("save_failed", "%s%s", why->message,
                          fatal ? "" : "; the run goes on, the next save will try again");
    json_object_set_new(o, "saved_step", json_integer(j->step));
    return emit(s, o, e);
}

status events_prune_failed(session *s, const err *why, err *e) {
    return emit(s, alarm_new("prune_failed", "an old checkpoint was not deleted: %s", why->message),
                e);
}

status events_upload_failed(session *s, const upload_event *ev, err *e) {
    json_t *o = alarm_new("upload_failed", "%s", ev->why.message);
    json_object_set_new(o, "saved_step", json_integer(ev->step));
    json_object_set_new(o, "exit_status", json_integer(ev->exit_status));
    return emit(s, o, e);
}

void events_damaged(session *s, const char *dir, const err *why) {
    json_t *o = alarm_new("checkpoint_damaged", "%s is passed over: %s", dir, why->message);
    json_object_set_new(o, "path", json_cstr(dir));
    log_warn("%s", message_of(o));
    json_array_append_new(s->journal.late, o);
}

void events_restart(session *s) {
    json_t *o = s->opt->restart ? json_loads(s->opt->restart, 0, NULL) : NULL;
    if (!json_is_object(o)) {
        json_decref(o);
        return;
    }
    json_object_set_new(o, "kind", json_string("restart"));
    json_array_append_new(s->journal.late, o);
}

status events_late(session *s, err *e) {
    size_t i;
    json_t *o;
    json_array_foreach(s->journal.late, i, o) {
        TRY(emit(s, json_incref(o), e)); /* the step is known by now */
    }
    json_array_clear(s->journal.late);
    return ST_OK;
}

/* ---- documents ---- */

static json_t *text_or_null(const char *text) {
    return text && *text ? json_cstr(text) : json_null();
}

static json_t *number_or_null(bool known, uint64_t n) {
    return known ? json_integer((json_int_t)n) : json_null();
}

static json_t *document_json(const suspect *item) {
    const loader_span *span = &item->span;
    const shard_place *place = &span->place;
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:i,s:o,s:o}", "set",
                     text_or_null(span->set), "shard", text_or_null(span->shard), "document",
                     number_or_null(place->document != UINT64_MAX, place->document), "source",
                     text_or_null(place->source), "line",
                     number_or_null(place->line, (uint64_t)place->line), "id",
                     text_or_null(place->id), "first_tok", (json_int_t)span->first_tok, "end_tok",
                     (json_int_t)span->end_tok, "row", item->row, "loss", json_f32(item->loss),
                     "repeated", json_f32(item->repeated));
}

json_t *events_documents(suspects *s, int most) {
    int n;
    const suspect *ranked = suspects_ranked(s, &n);
    json_t *list = json_array();
    for (int i = 0; i < n && i < most; i++) json_array_append_new(list, document_json(&ranked[i]));
    return list;
}
