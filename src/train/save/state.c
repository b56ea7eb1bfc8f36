/* Checkpoints of a run: a Hugging Face folder with state/ beside the weights, and back.
 *
 * What is saved is fixed when saving begins: a save_job (save.h) holds the numbers and, with
 * checkpoint.async, weights and optimizer state are copied into the plan's snapshot; then a thread
 * writes while training goes on. The files are the same either way.
 *
 * All ranks take part in every save, and learn at the same step what has become of it.
 *
 * Reading order: state_save, state_poll, settle; then state_load_newest, load. */
#include "train/save/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint.h"
#include "io/hf/hf_load.h"
#include "io/hf/hf_part.h"
#include "train/events.h"
#include "train/save/origins.h"

/* ---- saving ---- */

uint64_t state_expected_bytes(const plan *p, const optim_class *optim) {
    int64_t elems = param_store_sizes(param_store_whole(p->store)).trained_elems;
    int64_t states = param_store_sizes(param_store_whole(p->states)).trained_elems;
    int64_t per = 4 + (p->spec.compute == DT_F32 ? 0 : 2);
    int64_t each = (int64_t)dtype_bytes(p->spec.state_dt);
    return (uint64_t)(elems * per + each * states * optim->n_states) + (1u << 20);
}

/* Samples of its stage that have been used after step `step`. */
static uint64_t samples_after(const setup *u, int64_t step) {
    if (step == 0) return 0;
    return course_first_sample(u->course, step) + (uint64_t)course_part_of(u->course, step)->batch;
}

static json_t *cursor_json(const session *s, uint64_t weights) {
    char digest[17];
    hash_format(weights, digest);
    uint64_t samples = samples_after(&s->setup, s->at.step);
    json_t *o = json_pack("{s:I,s:i,s:I,s:I,s:I,s:o,s:s,s:s}", "step", (json_int_t)s->at.step,
                          "stage", course_last_stage(s->setup.course, s->at.step), "samples",
                          (json_int_t)samples, "tokens", (json_int_t)s->at.tokens, "updates",
                          (json_int_t)s->at.updates, "seconds", json_f64(s->at.seconds),
                          "optimizer", s->setup.optim->name, "digest", digest);
    if (s->setup.objective->marks)
        json_object_set_new(o, "trained", json_integer((json_int_t)s->at.trained));
    if (s->setup.plan->spec.compute == DT_F16)
        json_object_set_new(o, "loss_scale", loss_scale_to_json(&s->scale));
    return o;
}

/* All that decides and warns. */
static json_t *guard_json(const session *s) {
    json_t *o = watch_to_json(&s->watch), *experts = routers_to_json(&s->routers);
    if (experts) json_object_set_new(o, "experts", experts);
    return o;
}

/* The model of the last finished step; between two stages that of the one that ended. */
static const model_config *trained_model(const session *s) {
    return &s->setup.models[course_last_stage(s->setup.course, s->at.step)];
}

static checkpoint_keep keep_of(const session *s) {
    return (checkpoint_keep){.newest = (int)s->setup.c->checkpoint.keep,
                             .every = s->setup.c->checkpoint.keep_every,
                             .best = (int)s->setup.c->checkpoint.keep_best,
                             .only_uploaded = s->saving.upload != NULL};
}

/* How long a rank waits for another one during a save. */
static const double PATIENCE_S = 600;

static bool world_has_failed(void *world) {
    return comm_check(world, NULL) != ST_OK;
}

static checkpoint_team team_of(const session *s) {
    const setup *u = &s->setup;
    return (checkpoint_team){.rank = comm_rank(u->peers.copy),
                             .ranks = comm_size(u->peers.copy),
                             .attempt = mix64(u->attempt + (uint64_t)s->saving.saves),
                             .limit_s = PATIENCE_S,
                             .failed = world_has_failed,
                             .ctx = u->peers.m.world};
}

/* What the stage says of conversations; the stage may end before the job does. */
static void keep_teaching(save_job *j, const teaching *t) {
    j->stop = t->stop;
    if (t->template) j->chat_template = arena_strdup(j->mem, t->template);
    j->end = (tok_ids){.id = ARENA_ARRAY(j->mem, int32_t, t->end.n + 1), .n = t->end.n};
    memcpy(j->end.id, t->end.id, sizeof *t->end.id * (size_t)t->end.n);
}

/* Of the optimizer, where it lies. */
static held_array state_array(const setup *u, int i) {
    held_array a = held_states(u->plan->states, u->plan->optim_state[i], u->plan->spec.state_dt);
    a.file = u->plan->spec.offload & OFFLOAD_OPTIMIZER ? u->offload : NULL;
    a.number = i;
    return a;
}

static save_job *job_new(session *s, uint64_t digest) {
    setup *u = &s->setup;
    arena *mem = arena_new("checkpoint");
    save_job *j = ARENA_NEW(mem, save_job);
    s->saving.saves++;
    *j = (save_job){.mem = mem,
                    .run = arena_strdup(mem, u->c->run),
                    .team = team_of(s),
                    .writes = u->peers.first_copy,
                    .store = u->plan->store,
                    .tok = u->tok,
                    .optim = u->optim,
                    .laid_out = u->plan->states,
                    .model = *trained_model(s),
                    .lora = u->lora.adapters.rank ? &u->lora : NULL,
                    .compute = u->plan->spec.compute,
                    .masters = held_masters(u->plan->store),
                    .step = s->at.step,
                    .val_loss = s->at.val_loss,
                    .need_bytes = state_expected_bytes(u->plan, u->optim),
                    .cursor = cursor_json(s, digest),
                    .guard = guard_json(s),
                    .ledger = setup_leads(u) ? origins_ledger(s) : NULL,
                    .keep = keep_of(s),
                    .began_ns = clock_now_ns()};
    keep_teaching(j, &s->stage.chat);
    for (int i = 0; i < u->optim->n_states; i++) j->states[i] = state_array(u, i);
    return j;
}

static void job_free(save_job *j) {
    save_abandon(j);
    json_decref(j->cursor);
    json_decref(j->guard);
    json_decref(j->ledger);
    arena_free(j->mem);
}

static void copy_block(void *to, const void *from, int64_t bytes, int threads) {
    enum { PIECE = 1 << 20 };
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t at = 0; at < bytes; at += PIECE)
        memcpy((char *)to + at, (const char *)from + at,
               (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
}

/* Copies an array from the device to host memory at `to`, and has it point there. In blocks, which
 * bounds the extra memory where the host cannot reach that of the device. */
static void copy_array(held_array *a, void *to, int64_t bytes) {
    enum { BLOCK = 64 << 20 };
    dev_room room = {0};
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BLOCK ? bytes - at : BLOCK;
        const void *host = dev_look(a->dev, (const char *)a->first + at, (size_t)n, &room);
        copy_block((char *)to + at, host, n, dev_threads(a->dev));
    }
    dev_room_free(&room);
    a->first = to;
    a->dev = NULL;
}

/* Copies weights and optimizer state, which the next steps will change, into the snapshot; the job
 * then reads that, without the device. */
static void take_snapshot(const setup *u, save_job *j) {
    int64_t masters = param_store_sizes(u->plan->store).trained_master_bytes;
    int64_t state = plan_state_array_bytes(u->plan);
    copy_array(&j->masters, u->plan->snapshot_params, masters);
    for (int i = 0; i < u->optim->n_states; i++)
        copy_array(&j->states[i], u->plan->snapshot_state[i], state);
}

/* One failed save is an alarm: the next may succeed, and what was saved before stands. A second one
 * in a row ends the run, as does the failure of one that was waited for. */
static status tell_failure(session *s, const save_job *j, bool waited, err *why, err *e) {
    bool fatal = waited || ++s->saving.failed_saves >= 2;
    TRY(events_save_failed(s, j, why, fatal, e));
    if (!fatal) return ST_OK;
    if (e) *e = *why;
    return why->code;
}

/* An old checkpoint that cannot be deleted is an alarm, not an error. */
static status tell_pruning(session *s, status st, const err *why, err *e) {
    return st == ST_OK ? ST_OK : events_prune_failed(s, why, e);
}

static status tell_success(session *s, const save_job *j, err *e) {
    s->saving.failed_saves = 0;
    s->saving.saved = j->step;
    s->watch.rewinds = 0;
    if (s->saving.upload) upload_add(s->saving.upload, j->step);
    TRY(events_checkpoint(s, j, e));
    return tell_pruning(s, j->pruned, &j->why_not_pruned, e);
}

static status tell_end(session *s, save_job *j, status st, bool waited, err *why, err *e) {
    st = st == ST_OK ? tell_success(s, j, e) : tell_failure(s, j, waited, why, e);
    job_free(j);
    return st;
}

/* Not while a save in the background may do the same: one of the two would find gone what it deletes. */
static status prune_uploaded(session *s, err *e) {
    if (!s->saving.prunes || s->saving.job) return ST_OK;
    s->saving.prunes = false;
    checkpoint_keep keep = keep_of(s);
    err why = {0};
    status st = checkpoint_prune(s->setup.c->run, &keep, -1, &why);
    return tell_pruning(s, st, &why, e);
}

static status poll_uploads(session *s, bool wait, err *e) {
    upload_event ev;
    while (s->saving.upload && (wait ? upload_wait(s->saving.upload, &ev, s->opt->stop)
                                     : upload_poll(s->saving.upload, &ev))) {
        s->saving.prunes |= ev.ok;
        if (!ev.ok) TRY(events_upload_failed(s, &ev, e));
    }
    return prune_uploaded(s, e);
}

/* Waits for the save in the background. When the part of one rank failed, the save has failed on
 * all. */
static status settle(session *s, bool must, err *e) {
    err why = {0};
    status st;
    save_job *j = saving_take(&s->saving, &st, &why);
    return tell_end(s, j, peers_agree(&s->setup.peers, st, &why), must, &why, e);
}

status state_settle(session *s, bool must, err *e) {
    return s->saving.job ? settle(s, must, e) : ST_OK;
}

status state_poll(session *s, bool wait, err *e) {
    /* all ranks look at the same step, so that they agree on the result of the save */
    if (s->saving.job && (wait || !peers_any(&s->setup.peers, !saving_is_done(&s->saving))))
        TRY(settle(s, wait, e));
    return poll_uploads(s, wait, e);
}

void state_abandon(saving *v) {
    status unused;
    if (v->job) job_free(saving_take(v, &unused, NULL));
}

status state_save(session *s, bool wait, err *e) {
    setup *u = &s->setup;
    uint64_t digest;
    TRY(setup_digest(u, &digest, e));
    const save_job *under_way = s->saving.job;
    bool enough = under_way && under_way->step == s->at.step;
    TRY(state_settle(s, enough && wait, e)); /* saves may take longer than the steps between them */
    if (s->saving.saved == s->at.step) return ST_OK;
    save_job *j = job_new(s, digest);
    s->saving.saved_ns = j->began_ns;
    err why = {0};
    status st = peers_agree(&u->peers, save_begin(j, &why), &why);
    if (st != ST_OK) return tell_end(s, j, st, wait, &why, e);
    if (setup_saves_on_the_way(u) && !wait) {
        if (j->writes) take_snapshot(u, j);
        saving_start(&s->saving, j);
        return ST_OK;
    }
    st = save_write(j, &why);
    return tell_end(s, j, peers_agree(&u->peers, st, &why), wait, &why, e);
}

/* ---- loading ---- */

static status read_object(arena *a, const char *dir, const char *name, json_t **out, err *e) {
    return json_read_file(out, path_join(a, dir, name), JSON_FILE_MAX_BYTES, e);
}

typedef struct stored_cursor {
    cursor at;
    loss_scale scale;
    int64_t skipped; /* of a checkpoint without "updates", which has those left out instead */
    int stage;
    uint64_t samples;
    char optimizer[32], digest[17];
} stored_cursor;

static status read_cursor(arena *a, const char *dir, stored_cursor *out, err *e) {
    json_t *o, *scale = NULL;
    TRY(read_object(a, dir, "state/cursor.json", &o, e));
    json_int_t step = -1, samples = -1, tokens = -1, trained = 0, updates = -1, skipped = 0;
    const char *optimizer = "", *hex = "";
    *out = (stored_cursor){0};
    int bad = json_unpack(o, "{s:I,s?i,s:I,s:I,s?I,s?I,s:F,s:s,s:s,s?o}", "step", &step, "stage",
                          &out->stage, "samples", &samples, "tokens", &tokens, "updates", &updates,
                          "trained", &trained, "seconds", &out->at.seconds, "optimizer", &optimizer,
                          "digest", &hex, "loss_scale", &scale);
    bad |= step < 0 || samples < 0 || tokens < 0 || trained < 0 || out->stage < 0 ||
           updates > step || strlen(hex) != 16 || strlen(optimizer) >= sizeof out->optimizer;
    if (!bad) {
        out->at.step = step;
        out->at.tokens = (uint64_t)tokens;
        out->at.trained = (uint64_t)trained;
        out->samples = (uint64_t)samples;
        memcpy(out->digest, hex, 17);
        strcpy(out->optimizer, optimizer);
        bad |= !loss_scale_from_json(&out->scale, scale);
        if (scale) bad |= json_unpack(scale, "{s?I}", "skipped", &skipped) != 0;
        out->at.updates = updates;
        out->skipped = skipped;
    }
    json_decref(o);
    if (!bad) return ST_OK;
    err_set(e, ST_FORMAT, "%s/state/cursor.json is not a cursor", dir);
    return err_where(e, "%s/state/cursor.json", dir);
}

status state_read_origin(const char *dir, course_origin *out, err *e) {
    arena *a = arena_new("cursor");
    stored_cursor c;
    status st = read_cursor(a, dir, &c, e);
    if (st == ST_OK)
        *out = (course_origin){
            .step = c.at.step, .stage = c.stage, .samples = c.samples, .tokens = c.at.tokens};
    arena_free(a);
    return st;
}

static status read_guard(session *s, const char *dir, err *e) {
    json_t *o;
    TRY(read_object(s->setup.a, dir, "state/guard.json", &o, e));
    status st = watch_from_json(&s->watch, o, e);
    if (st == ST_OK) st = routers_from_json(&s->routers, json_object_get(o, "experts"), e);
    json_decref(o);
    if (st != ST_OK) {
        err_context(e, "%s/state/guard.json", dir);
        err_where(e, "%s/state/guard.json", dir);
    }
    return st;
}

static status read_states(session *s, const char *dir, err *e) {
    setup *u = &s->setup;
    st_reader *r;
    TRY(st_open(&r, path_join(u->a, dir, "state/optimizer.safetensors"), e));
    status st = ST_OK;
    for (int k = 0; k < u->optim->n_states && st == ST_OK; k++) {
        char *prefix = arena_printf(u->a, "%s.", u->optim->state_names[k]);
        held_array state = state_array(u, k);
        st = hf_read_array(&state, r, prefix, HF_MEMORY, e);
    }
    st_close(r);
    return st;
}

/* A run in fp32 has its masters in the model's own file. A fork may have another format than the run whose
 * checkpoint this is. */
static status read_masters(setup *u, const char *dir, err *e) {
    if (u->lora.adapters.rank) return lora_resume(&u->lora, u->a, u->plan->store, dir, e);
    const char *file = path_join(u->a, dir, "state/master.safetensors");
    if (!file_exists(file)) return hf_load_weights(u->plan->store, dir, e);
    st_reader *r;
    TRY(st_open(&r, file, e));
    held_array masters = held_masters(u->plan->store);
    status st = hf_read_array(&masters, r, "", HF_MEMORY, e);
    st_close(r);
    if (st == ST_OK) param_refresh_work(u->plan->store);
    return st;
}

static status check_digest(session *s, const char *dir, const char *want, err *e) {
    char got[17];
    uint64_t digest;
    TRY(setup_digest(&s->setup, &digest, e));
    hash_format(digest, got);
    if (strcmp(want, got) == 0) return ST_OK;
    err_at(e, ST_FORMAT, dir, "the weights of %s have digest %s, its cursor says %s", dir, got,
           want);
    return err_hint(
        e, "the checkpoint was changed after it was written; use another or start with --fresh");
}

/* The samples that were used follow from the config; they must agree with the checkpoint. At the
 * origin of a fork they need not: its past is another course. */
static status check_position(const session *s, const char *dir, const stored_cursor *c, err *e) {
    bool is_fork = c->at.step == stage_data_origin(s->data.record).step;
    if (c->at.step == 0 || c->at.step > s->setup.course->total_steps || is_fork ||
        samples_after(&s->setup, c->at.step) == c->samples)
        return ST_OK;
    err_set(e, ST_FORMAT,
            "by its config the run has taken %" PRIu64 " samples of its stage after step %" PRId64
            ", its checkpoint says %" PRIu64,
            samples_after(&s->setup, c->at.step), c->at.step, c->samples);
    err_where(e, "%s/state/cursor.json", dir);
    return err_hint(e, "bring back the keys that it was trained with, or go on with --fork NEW");
}

/* Of a checkpoint that does not say it. */
static int64_t updates_of(const setup *u, const stored_cursor *c) {
    if (c->at.step == 0) return 0;
    return c->at.step - c->skipped - course_stage_of(u->course, c->at.step)->optim_base;
}

/* RUN/checkpoints/step-N. */
static status load(session *s, const char *dir, err *e) {
    setup *u = &s->setup;
    stored_cursor c;
    TRY(read_cursor(u->a, dir, &c, e));
    TRY(check_position(s, dir, &c, e));
    if (strcmp(c.optimizer, u->optim->name) != 0) {
        err_set(e, ST_FORMAT, "the checkpoint was made by optimizer %s, not %s", c.optimizer,
                u->optim->name);
        return err_where(e, "%s/state/cursor.json", dir);
    }
    TRY(read_masters(u, dir, e));
    TRY(read_states(s, dir, e));
    TRY(read_guard(s, dir, e));
    TRY(check_digest(s, dir, c.digest, e));
    s->at = c.at;
    s->at.val_loss = NAN;
    if (c.at.updates < 0) s->at.updates = updates_of(u, &c);
    loss_scale_resume(&s->scale, u->c, &c.scale);
    return ST_OK;
}

static void note_skipped(void *ctx, const char *dir, const err *why) {
    events_damaged(ctx, dir, why);
}

static status clear_state(session *s, err *e) {
    s->at = cursor_start();
    return setup_clear_optimizer(&s->setup, e);
}

/* The newest good checkpoint, as rank 0 finds it. NULL: there is none. */
static status find_newest(session *s, char **newest, err *e) {
    setup *u = &s->setup;
    int64_t step = -1;
    status st = ST_OK;
    *newest = NULL;
    if (setup_leads(u))
        st = checkpoint_find_newest(u->a, u->c->run, newest, &step, note_skipped, s, e);
    TRY(peers_agree(&u->peers, st, e));
    step = peers_first(&u->peers, step);
    if (step >= 0) *newest = checkpoint_path(u->a, u->c->run, step);
    return ST_OK;
}

/* Where this rank reads it: a spare's copy, which was compared with it, when it is of the same step. */
static const char *nearest(const session *s, const char *newest) {
    if (!s->opt->copy) return newest;
    const char *under = path_join(s->setup.a, s->opt->copy, "checkpoints");
    const char *copy = path_join(s->setup.a, under, path_base(newest));
    return file_is_dir(copy) ? copy : newest;
}

status state_load_newest(session *s, err *e) {
    char *newest;
    s->saving.saved = -1;
    TRY(find_newest(s, &newest, e));
    if (newest) return load(s, nearest(s, newest), e);
    if (s->at.step > 0) TRY(clear_state(s, e)); /* gone back to the beginning */
    watch_restart(&s->watch);
    TRY(routers_from_json(&s->routers, NULL, e));
    loss_scale_init(&s->scale, s->setup.c);
    return setup_make_weights(&s->setup, s->setup.plan->store, &s->setup.models[0], e);
}
