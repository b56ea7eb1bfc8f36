/* From stage to stage and part to part. A stage changes data, programs, masks and rates; a part of
 * a ramp only the number of micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "train/events.h"

uint64_t session_first_sample(const session *s, int64_t step) {
    const course_part *p = course_part_of(s->course, step);
    return watch_move(&s->watch, p->stage, course_first_sample(s->course, step));
}

uint64_t session_own_sample(const session *s, int64_t step) {
    const course_part *p = course_part_of(s->course, step);
    int64_t share = p->batch / s->peers.m.size[MESH_DP];
    return session_first_sample(s, step) + (uint64_t)(s->peers.m.rank[MESH_DP] * share);
}

void session_leave(session *s) {
    prefetch_free(s->ahead);
    loader_close(s->train);
    loader_close(s->valid);
    free(s->nll);
    s->ahead = NULL;
    s->train = s->valid = NULL;
    s->nll = NULL;
    s->stage = -1;
}

static void make_tables(session *s) {
    const plan *p = s->plan;
    arena *a = s->part_mem;
    int ranks = peers_ranks(&s->peers);
    arena_reset(a);
    s->parts = plan_step_parts(p, a, (int)(s->share / s->B), ranks > 1);
    s->table = step_build(a, &s->parts);
    CHECK(s->table.frames_in_flight <= plan_frames(p), "%d micro-batches under way in %d frames",
          s->table.frames_in_flight, plan_frames(p));
    if (ranks > 1) step_name_entries(a, &s->table, &s->parts);
    s->passes = ARENA_ARRAY(a, pass_table, p->n_programs);
    s->n_passes = 0;
    for (int i = 0; i < p->n_programs; i++) {
        const plan_program *g = &p->program[i];
        if (g->of.train || g->of.model > 0) continue;
        s->passes[s->n_passes++] = (pass_table){g->prog, step_build_pass(a, p->store, g->prog)};
    }
}

/* The ways of a micro-batch: its rows on the host, and the inputs of the programs. */
static void make_ways(session *s) {
    arena *a = s->part_mem;
    s->chunks = ARENA_ARRAY(a, batch_ports, s->parts.chunks);
    s->looks = ARENA_ARRAY(a, batch_ports, s->parts.looks);
    for (int c = 0; c < s->parts.chunks; c++) s->chunks[c] = batch_ports_of(s->parts.chunk[c]);
    for (int i = 0; i < s->parts.looks; i++) s->looks[i] = batch_ports_of(s->parts.look[i]);
    s->validation = batch_ports_of(plan_prog(s->plan, USE_VALID, 0));
    s->rows = batch_rows_new(a, s->B, s->T, s->now->data.document_mask);
}

/* Of a contribution to a gradient; micro-batches of all ranks. */
static float fixed_limit(const step_parts *parts, int64_t micro_batches) {
    return fixed_grad_limit(micro_batches * prog_count_contributions(parts->chunk, parts->chunks));
}

void session_enter_shape(session *s, int stage, int64_t batch) {
    const course_stage *k = &s->course->stage[stage];
    if (stage != s->stage) {
        dev_sync(s->dev); /* updates that are still to run read the mask */
        plan_select(s->plan, stage);
        s->stage = stage;
        s->now = k->c;
        s->model = s->models[stage];
        s->T = k->T;
        s->B = k->B;
        s->batch = 0;
        optim_decay_mask(s->plan->store, k->c->optim.no_decay.items, k->c->optim.no_decay.n,
                         s->decay);
    }
    if (batch == s->batch) return;
    s->batch = batch;
    s->share = batch / s->peers.m.size[MESH_DP];
    make_tables(s);
    s->fixed_limit = fixed_limit(&s->parts, batch / s->B);
    make_ways(s);
}

status session_open_data(session *s, int stage, err *e) {
    int begun = stage_data_begun(s->data.record);
    for (int i = begun < stage ? begun : stage; i <= stage; i++) {
        bool is_new;
        loader_close(s->train); /* a fork has not been through the earlier stages itself */
        TRY(stage_data_open(&s->data, s->course->stage[i].c, i, &s->train, &is_new, e));
        s->record_is_new |= is_new;
    }
    return stage_data_open_valid(&s->data, s->course->stage[stage].c, &s->valid, e);
}

/* The record is written before the first step on the data that it describes. */
static status write_record(session *s, err *e) {
    if (!s->record_is_new) return ST_OK;
    s->record_is_new = false;
    if (!session_leads(s)) return ST_OK;
    return run_write_json(s->folder, "data.json", s->data.record, e);
}

static status warn_of_budgets(session *s, err *e) {
    json_t *over = stage_data_over_budget(&s->data, s->train, s->now, s->stage), *o;
    status st = ST_OK;
    size_t i;
    json_array_foreach(over, i, o) {
        if (st != ST_OK) break;
        double passes = json_number_value(json_object_get(o, "passes"));
        double budget = json_number_value(json_object_get(o, "budget"));
        json_t *alarm = events_alarm(
            s, "epochs", "%s will have been passed over %.4g times; its budget is %.4g epochs",
            json_string_value(json_object_get(o, "path")), passes, budget);
        json_object_set(alarm, "source", json_object_get(o, "path"));
        json_object_set(alarm, "passes", json_object_get(o, "passes"));
        json_object_set(alarm, "budget", json_object_get(o, "budget"));
        st = events_emit(s, alarm, e);
    }
    json_decref(over);
    return st;
}

static status emit_stage(session *s, err *e) {
    const course_stage *k = &s->course->stage[s->stage];
    json_t *o = events_new("stage", k->first_step);
    json_object_set_new(o, "name", json_string(k->name));
    json_object_set_new(o, "last_step", json_integer(k->last_step));
    json_object_set_new(o, "seq_len", json_integer(s->T));
    json_object_set_new(o, "batch", json_integer(s->batch));
    json_object_set_new(o, "rope_theta", json_f64(s->model.rope_theta));
    json_object_set_new(o, "lr", json_f64(k->schedule.lr));
    json_object_set_new(o, "sources", stage_data_sources(&s->data, s->train, s->now, s->stage));
    return events_emit(s, o, e);
}

/* Whether validation losses of two stages are of one kind. */
static bool same_validation(const course_stage *a, const course_stage *b) {
    const char *x = a->c->data.valid, *y = b->c->data.valid;
    return x && y && strcmp(x, y) == 0 && a->T == b->T &&
           a->c->data.document_mask == b->c->data.document_mask;
}

/* Losses of the stage before are no measure for those of this one. */
static void forget_losses(session *s, const course_stage *k) {
    watch_forget(&s->watch);
    if (s->stage > 0 && !same_validation(k - 1, k)) early_stop_init(&s->watch.stop);
}

static bool is_in(const json_t *texts, const char *text) {
    size_t i;
    json_t *item;
    json_array_foreach(texts, i, item) {
        if (strcmp(json_string_value(item), text) == 0) return true;
    }
    return false;
}

/* A pattern without a parameter is likely a slip. The usual ones are for models of all kinds. */
static void warn_of_patterns(const session *s) {
    const param_store *params = s->plan->store;
    const config_texts *patterns = &s->now->optim.no_decay;
    json_t *usual = config_default("optim.no_decay");
    for (int k = 0; k < patterns->n; k++) {
        bool found = is_in(usual, patterns->items[k]);
        for (int i = 0; i < param_count(params) && !found; i++)
            found = optim_pattern_matches(patterns->items[k], param_at(params, i)->name);
        if (!found)
            log_warn("optim.no_decay (%s): no parameter matches '%s'",
                     config_where(s->now, "optim.no_decay"), patterns->items[k]);
    }
    json_decref(usual);
}

status session_begin(session *s, err *e) {
    const course_stage *k = &s->course->stage[s->stage];
    if (!s->begins) return ST_OK;
    s->begins = false;
    if (session_leads(s)) warn_of_patterns(s);
    if (s->at.step > 0) forget_losses(s, k);
    if (s->at.step > 0 && k->optim_base == s->at.step) state_clear_optimizer(s);
    if (s->c->stages.n) TRY(emit_stage(s, e));
    return warn_of_budgets(s, e);
}

static status enter_stage(session *s, const course_part *p, err *e) {
    const course_stage *k = &s->course->stage[p->stage];
    /* by those who looked whether it is there: they open the first one */
    bool is_open = s->stage < 0 && s->train && p->stage == 0;
    if (!is_open) session_leave(s);
    status st = is_open ? ST_OK : session_open_data(s, p->stage, e);
    if (st == ST_OK) st = write_record(s, e);
    if (st != ST_OK) {
        session_leave(s); /* nothing is half entered: what was trained can be saved */
        return s->c->stages.n ? err_context(e, "stage %s", k->name) : st;
    }
    session_enter_shape(s, p->stage, p->batch);
    s->ahead = prefetch_new(s->train, s->B, k->max_batch / s->peers.m.size[MESH_DP],
                            s->now->data.document_mask);
    s->nll = xcalloc((size_t)(k->max_batch * s->T), sizeof *s->nll);
    s->begins = s->at.step == k->first_step - 1;
    return ST_OK;
}

status session_enter(session *s, err *e) {
    const course_part *p = course_part_of(s->course, s->at.step + 1);
    if (p->stage != s->stage) TRY(enter_stage(s, p, e));
    session_enter_shape(s, p->stage, p->batch);
    return ST_OK;
}
