/* See build.h. Reading order: the sides (training and validation), the sink of the pipeline,
 * beginning or going on, the end, data_build. */
#include "data/build/build.h"

#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_fault.h"
#include "base/json.h"
#include "base/log.h"
#include "data/build/pipeline.h"
#include "data/build/place.h"
#include "data/build/state.h"

enum { FEW_FILES = 32, PART_BYTES = 1 << 20, SAVE_BYTES = 64 << 20 };
static const double PROGRESS_EVERY_S = 0.25, SAVE_EVERY_S = 5;
/* Saving may take this share of the time at most, however slow the disk and long the state. */
static const double SAVE_SHARE = 0.05;

typedef struct side {
    const char *dir;   /* where the set belongs */
    const char *stage; /* where it is written; `dir` itself when appending */
    shard_writer *w;
} side;

typedef struct build {
    const data_build_options *opt;
    const char *const *inputs;
    int n_inputs;
    const tok *tok;
    const char *out_dir, *work_dir, *state_path;
    job_rules rules;
    side side[2]; /* training or all; validation */
    int n_sides;
    json_t *made_with;
    reader *reader;
    bool can_resume; /* not from standard input, which has passed by */
    int lock_fd;
    bool made_out_dir, resumed;
    reader_report report;
    build_place place;    /* where this build began, then where it could go on */
    uint64_t n_docs;      /* begun */
    uint64_t n_scored;    /* of those that this attempt wrote */
    uint64_t n_named;     /* of the same */
    uint64_t open_tokens; /* of a document that is not yet complete */
    uint64_t unsaved_bytes;
    uint64_t bytes_begun, bytes_done;
    double seconds_before, save_s;
    int64_t start_ns, saved_ns, shown_ns;
    arena *mem;
} build;

/* ---- sides ---- */

static void plan_sides(build *b) {
    static const char *const NAMES[] = {"train", "valid"};
    bool split = b->opt->valid_fraction > 0;
    b->n_sides = split ? 2 : 1;
    for (int i = 0; i < b->n_sides; i++) {
        side *s = &b->side[i];
        s->dir = split ? path_join(b->mem, b->out_dir, NAMES[i]) : b->out_dir;
        s->stage = path_join(b->mem, b->work_dir, split ? NAMES[i] : "set");
        if (b->opt->append) s->stage = s->dir;
    }
}

static shard_writer_options writer_options(const build *b) {
    return (shard_writer_options){.tok_hash = tok_hash(b->tok),
                                  .vocab_size = tok_vocab_size(b->tok),
                                  .eos = b->opt->no_eos ? -1 : tok_eos(b->tok),
                                  .shard_tokens = b->opt->shard_tokens,
                                  .ids = b->opt->reader.id != NULL,
                                  .scores = b->opt->reader.score || b->opt->labels.are_wanted,
                                  .append = b->opt->append};
}

static status check_appended(const build *b, err *e) {
    for (int i = 0; b->opt->append && i < b->n_sides; i++) {
        const char *dir = b->side[i].dir;
        if (file_exists(path_join(b->mem, dir, "manifest.json"))) continue;
        err_at(e, ST_USAGE, "append", "%s holds no shard set to append to", dir);
        return err_hint(e,
                        "leave append out to build the first set; valid= must be as it was then");
    }
    return ST_OK;
}

/* ---- what is being built ---- */

/* The manifests that new shards are appended to; what is read here is checked by the writers. */
static uint64_t hash_appended(const build *b) {
    uint64_t all[2] = {0, 0};
    for (int i = 0; b->opt->append && i < b->n_sides; i++)
        if (hash_file(path_join(b->mem, b->side[i].dir, "manifest.json"), &all[i], NULL) != ST_OK)
            all[i] = 0;
    return hash_bytes(all, sizeof all);
}

/* null, the number of classes, or their names. */
static json_t *labels_json(const text_labels *l) {
    if (!l->are_wanted) return json_null();
    if (!l->names) return json_integer(l->classes);
    json_t *list = json_array();
    for (int64_t i = 0; i < l->classes; i++) json_array_append_new(list, json_cstr(l->names[i]));
    return list;
}

/* Everything that decides the bytes of the result. */
static json_t *describe(const build *b) {
    const data_build_options *opt = b->opt;
    json_t *o = json_object();
    json_object_set_new(o, "inputs", json_hash(reader_fingerprint(b->reader)));
    json_object_set_new(o, "tokenizer", json_hash(tok_hash(b->tok)));
    json_object_set_new(o, "field", json_cstr(opt->reader.field));
    json_object_set_new(o, "template", json_cstr(opt->reader.template));
    json_object_set_new(o, "id", json_cstr(opt->reader.id));
    json_object_set_new(o, "score", json_cstr(opt->reader.score));
    json_object_set_new(o, "label", json_cstr(opt->reader.label));
    json_object_set_new(o, "labels", labels_json(&opt->labels));
    json_object_set_new(o, "charset", json_cstr(opt->reader.charset));
    json_object_set_new(o, "format", json_integer(opt->reader.format));
    json_object_set_new(o, "valid", json_f64(opt->valid_fraction));
    json_object_set_new(o, "split", json_string(data_split_name(b->rules.split)));
    json_object_set_new(o, "seed", json_hash(opt->seed));
    json_object_set_new(o, "shard_tokens", json_hash(opt->shard_tokens));
    json_object_set_new(o, "eos", json_boolean(!opt->no_eos));
    json_object_set_new(o, "append", json_boolean(opt->append));
    json_object_set_new(o, "append_to", json_hash(hash_appended(b)));
    return o;
}

/* ---- the sink ---- */

/* A set that is complete in its stage needs no writer any more. */
static bool is_closed(const build *b, bool complete) {
    return complete && !b->opt->append;
}

static status save(build *b, bool complete, err *e) {
    int64_t began = clock_now_ns();
    build_state s = {.made_with = b->made_with,
                     .complete = complete,
                     .place = b->place,
                     .documents = b->n_docs,
                     .seconds = b->seconds_before + clock_since_s(b->start_ns),
                     .report = b->report};
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->n_sides; i++) {
        s.writer[i] = json_object();
        if (!is_closed(b, complete)) st = shard_writer_sync(b->side[i].w, s.writer[i], e);
    }
    if (st == ST_OK) st = build_state_save(b->state_path, &s, e);
    for (int i = 0; i < 2; i++) json_decref(s.writer[i]);
    b->unsaved_bytes = 0;
    b->saved_ns = clock_now_ns();
    b->save_s = (double)(b->saved_ns - began) * 1e-9;
    return st;
}

static bool save_is_due(const build *b) {
    if (!b->can_resume) return false;
    if (b->opt->save_bytes > 0) return b->unsaved_bytes >= b->opt->save_bytes;
    double since_s = clock_since_s(b->saved_ns);
    if (since_s * SAVE_SHARE < b->save_s) return false;
    return b->unsaved_bytes >= SAVE_BYTES || since_s >= SAVE_EVERY_S;
}

static void show_progress(build *b, bool last) {
    if (!b->opt->progress) return;
    if (!last && clock_since_s(b->shown_ns) < PROGRESS_EVERY_S) return;
    b->shown_ns = clock_now_ns();
    shard_totals t = shard_writer_totals(b->side[0].w), v = {0};
    if (b->n_sides > 1) v = shard_writer_totals(b->side[1].w);
    data_progress p = {.bytes_begun = b->bytes_begun,
                       .bytes_done = b->bytes_done,
                       .bytes_total = reader_bytes_total(b->reader),
                       .tokens = t.tokens + v.tokens + b->open_tokens,
                       .documents = t.documents + v.documents,
                       .seconds = clock_since_s(b->start_ns)};
    b->opt->progress(&p);
}

static void look(void *ctx, const reader *r, uint64_t ahead) {
    build *b = ctx;
    uint64_t read = reader_bytes_done(r);
    /* Of packed files less was read than the text is long: then it lags behind a little. */
    if (read > ahead && read - ahead > b->bytes_done) b->bytes_done = read - ahead;
    b->report = *reader_get_report(r);
}

static shard_writer *writer_of(const build *b, job_side s) {
    bool valid = s == JOB_VALID;
    if (s == JOB_BY_NUMBER)
        valid = data_split_is_valid(b->opt->seed, b->n_docs - 1, b->opt->valid_fraction);
    return b->side[valid].w;
}

static status write_job(void *ctx, const job *j, const build_place *place, err *e) {
    build *b = ctx;
    const int32_t *ids = j->ids.id;
    for (int64_t i = 0; i < j->n_pieces; i++) {
        shard_record r = j->piece[i].record;
        r.ids = ids;
        ids += r.n;
        b->n_docs += j->piece[i].begins;
        b->n_scored += !r.more && !isnan(r.score);
        b->n_named += !r.more && r.id && *r.id;
        b->open_tokens = r.more ? b->open_tokens + (uint64_t)r.n : 0;
        TRY(shard_writer_add(writer_of(b, j->piece[i].side), &r, e));
    }
    b->unsaved_bytes += j->text_bytes;
    show_progress(b, false);
    if (!place) return ST_OK;
    b->place = *place;
    return save_is_due(b) ? save(b, false, e) : ST_OK;
}

/* ---- beginning and going on ---- */

static status begin(build *b, err *e) {
    shard_writer_options wo = writer_options(b);
    TRY(file_remove_tree(b->work_dir, e));
    TRY(file_make_dirs(b->work_dir, e));
    for (int i = 0; i < b->n_sides; i++)
        TRY(shard_writer_open(&b->side[i].w, b->side[i].stage, &wo, e));
    return ST_OK;
}

/* Opens the writers where the interrupted build has left them, and the reader. */
static status go_on(build *b, const build_state *s, err *e) {
    shard_writer_options wo = writer_options(b);
    for (int i = 0; i < b->n_sides; i++)
        TRY(shard_writer_resume(&b->side[i].w, b->side[i].stage, &wo, s->writer[i], e));
    TRY(reader_seek(b->reader, &s->place.at, &s->report, e));
    b->bytes_begun = b->bytes_done = reader_bytes_done(b->reader) + s->place.document_bytes;
    log_info("going on with a build that was interrupted after %.1f MB",
             (double)b->bytes_begun * 1e-6);
    return ST_OK;
}

static void close_writers(build *b) {
    for (int i = 0; i < b->n_sides; i++) {
        shard_writer_free(b->side[i].w);
        b->side[i].w = NULL;
    }
}

/* A complete set is in its stage or, when it was interrupted late, already in its place. */
static bool is_there(const build *b) {
    for (int i = 0; i < b->n_sides; i++)
        if (!file_exists(path_join(b->mem, b->side[i].stage, "manifest.json")) &&
            !file_exists(path_join(b->mem, b->side[i].dir, "manifest.json")))
            return false;
    return true;
}

/* Whether the state is one that this build can go on from; says why not. */
static bool fits(const build *b, const build_state *s) {
    const char *key = build_state_difference(s, b->made_with);
    if (key)
        log_info("an interrupted build in %s had another value of %s: beginning anew", b->out_dir,
                 key);
    return !key && s->writer[0] && (s->writer[1] != NULL) == (b->n_sides > 1) &&
           (!s->complete || is_there(b));
}

static void take_over(build *b, const build_state *s) {
    b->resumed = true;
    b->seconds_before = s->seconds;
    b->n_docs = s->documents;
    b->place = s->place;
    b->report = s->report;
}

/* Back to where a build begins that has nothing to go on from. */
static status forget(build *b, const err *why, err *e) {
    log_warn("the interrupted build in %s cannot be gone on with: %s", b->out_dir, why->message);
    close_writers(b);
    take_over(b, &(build_state){0});
    b->resumed = false;
    b->bytes_begun = b->bytes_done = 0;
    reader_close(b->reader);
    b->reader = NULL;
    return reader_open(&b->reader, b->inputs, b->n_inputs, &b->opt->reader, e);
}

/* New shards may be in the set by now: appending them again would double them. */
static status half_appended(const build *b, err *e) {
    err_context(e, "%s may be half appended", b->out_dir);
    err_hint(e, "check the set with `athanor data show`, remove %s, append again what is missing",
             b->work_dir);
    return e->code;
}

/* After this the writers are open and the reader stands where they do; with *complete all text is
 * in the sets. */
static status begin_or_go_on(build *b, bool *complete, err *e) {
    build_state s;
    err why = {0};
    *complete = false;
    if (!b->can_resume || !build_state_load(b->state_path, &s)) return begin(b, e);
    if (!fits(b, &s)) {
        build_state_free(&s);
        return begin(b, e);
    }
    take_over(b, &s);
    *complete = s.complete;
    status st = is_closed(b, s.complete) ? ST_OK : go_on(b, &s, &why);
    build_state_free(&s);
    if (st == ST_OK) return ST_OK;
    if (*complete) {
        *e = why;
        return half_appended(b, e);
    }
    TRY(forget(b, &why, e));
    return begin(b, e);
}

/* ---- the end ---- */

static status check_sides(const build *b, err *e) {
    for (int i = 0; b->n_sides == 2 && i < 2; i++) {
        if (shard_writer_totals(b->side[i].w).tokens > 0) continue;
        err_at(
            e, ST_USAGE, "valid", "valid=%g leaves no text for %s: the corpus has %llu documents",
            b->opt->valid_fraction, i ? "validation" : "training", (unsigned long long)b->n_docs);
        return err_hint(e, "use split=lines to cut inside documents, or another fraction");
    }
    return ST_OK;
}

static status finish_sets(build *b, err *e) {
    for (int i = b->n_sides - 1; i >= 0; i--) {
        const side *s = &b->side[i];
        if (!b->opt->append)
            TRY(tok_save_file(b->tok, path_join(b->mem, s->stage, "tokenizer.json"), e));
        TRY(shard_writer_finish(s->w, e));
    }
    return ST_OK;
}

/* The exchange. A folder holds either one set or a split; the other kind would mislead. */
static status put_in_place(build *b, err *e) {
    for (int i = b->n_sides - 1; i >= 0; i--) TRY(place_set(b->side[i].stage, b->side[i].dir, e));
    if (b->n_sides == 2) return shards_remove(b->out_dir, e);
    TRY(shards_remove(path_join(b->mem, b->out_dir, "train"), e));
    return shards_remove(path_join(b->mem, b->out_dir, "valid"), e);
}

static status read_totals(const build *b, data_build_result *result, err *e) {
    for (int i = 0; i < b->n_sides; i++) {
        shards *s;
        TRY(shards_open(&s, &(shards_spec){.path = b->side[i].dir, .eos = -1}, e));
        *(i ? &result->valid : &result->train) = s->totals;
        shards_close(s);
    }
    return ST_OK;
}

/* First the state: what is left without it counts for nothing. */
static bool remove_work(const build *b) {
    err e;
    status st = file_remove_tree(b->state_path, &e);
    if (st == ST_OK) st = file_remove_tree(b->work_dir, &e);
    if (st != ST_OK) log_warn("%s, which no one needs any more, stays: %s", b->work_dir, e.message);
    return st == ST_OK;
}

static status append_sets(build *b, err *e) {
    TRY(finish_sets(b, e));
    for (int i = 0; i < b->n_sides; i++) TRY(place_remove_strays(b->side[i].dir, e));
    return ST_OK;
}

static status end(build *b, bool complete, data_build_result *result, err *e) {
    if (!complete && !b->opt->append) TRY(finish_sets(b, e));
    if (!complete && b->can_resume) TRY(save(b, true, e));
    status st = b->opt->append ? append_sets(b, e) : put_in_place(b, e);
    if (st != ST_OK && b->can_resume)
        err_hint(e, "the new set is complete: the same command puts it in its place");
    TRY(st);
    TRY(read_totals(b, result, e));
    result->seconds = b->seconds_before + clock_since_s(b->start_ns);
    result->scored = b->n_scored;
    result->named = b->n_named;
    result->resumed = b->resumed;
    result->report = b->report;
    remove_work(b);
    return ST_OK;
}

/* ---- the whole ---- */

static status read_text(build *b, err *e) {
    int threads = b->opt->threads > 0 ? b->opt->threads : omp_get_max_threads();
    pipeline_options po = {.rules = b->rules,
                           .threads = threads,
                           .part_bytes = b->opt->part_bytes ? b->opt->part_bytes : PART_BYTES,
                           .begin = b->place,
                           .write = write_job,
                           .look = look,
                           .ctx = b};
    TRY(pipeline_run(b->reader, &po, e));
    TRY(reader_finish(b->reader, e));
    look(b, b->reader, 0);
    show_progress(b, true);
    return check_sides(b, e);
}

/* Two builds in one folder would write the same files. */
static status lock_out_dir(build *b, err *e) {
    b->made_out_dir = !file_exists(b->out_dir);
    return place_lock(b->out_dir, false, &b->lock_fd, e);
}

static void resolve_split(build *b) {
    b->rules.split = b->opt->split;
    if (b->rules.split != DATA_SPLIT_AUTO) return;
    bool few = reader_is_text_only(b->reader) && reader_n_files(b->reader) <= FEW_FILES;
    b->rules.split = few ? DATA_SPLIT_LINES : DATA_SPLIT_DOCUMENTS;
}

/* Fields that are asked of text without any. An id may be asked for all the same, so that records
 * with ids can be appended later; that no score was found is said at the end. */
static status check_records(const build *b, err *e) {
    const reader_options *o = &b->opt->reader;
    const char *key = o->field ? "field" : o->template ? "template" : NULL;
    if (!reader_is_text_only(b->reader)) return ST_OK;
    if (o->id) log_warn("id= finds nothing: plain text has no fields");
    if (!key) return ST_OK;
    err_at(e, ST_USAGE, key, "%s= does nothing: %s is read as plain text, which has no fields", key,
           reader_file(b->reader, 0));
    return err_hint(e, "leave it out, or say what the records are: format=jsonl, csv or tsv");
}

static status run(build *b, data_build_result *result, err *e) {
    bool complete;
    TRY(reader_open(&b->reader, b->inputs, b->n_inputs, &b->opt->reader, e));
    TRY(check_records(b, e));
    b->can_resume = reader_fingerprint(b->reader) != 0;
    resolve_split(b);
    if (b->opt->seed && b->opt->valid_fraction > 0 && b->rules.split != DATA_SPLIT_DOCUMENTS)
        log_warn("seed= does nothing: split=%s has no chance in it",
                 data_split_name(b->rules.split));
    plan_sides(b);
    TRY(check_appended(b, e));
    TRY(lock_out_dir(b, e));
    b->made_with = describe(b);
    TRY(begin_or_go_on(b, &complete, e));
    if (!complete) TRY(read_text(b, e));
    return end(b, complete, result, e);
}

/* After an error: what cannot be gone on with is removed. */
static void clean_up(build *b) {
    if (b->lock_fd < 0 || file_exists(b->state_path)) return;
    bool ok = remove_work(b);
    for (int i = 0; b->opt->append && i < b->n_sides; i++)
        ok = place_remove_strays(b->side[i].dir, NULL) == ST_OK && ok;
    if (b->made_out_dir && ok) file_sys_unlinkat(AT_FDCWD, b->out_dir, AT_REMOVEDIR);
}

static status check_options(const data_build_options *opt, err *e) {
    if (opt->valid_fraction >= 0 && opt->valid_fraction < 1) return ST_OK;
    err_at(e, ST_USAGE, "valid", "valid is %g, it must be a fraction from 0 to below 1",
           opt->valid_fraction);
    return err_hint(e, "0.1 keeps a tenth of the text for validation");
}

status data_build(const char *const *inputs, int n_inputs, const char *out_dir, const tok *t,
                  const data_build_options *opt, data_build_result *result, err *e) {
    *result = (data_build_result){0};
    TRY(check_options(opt, e));
    build b = {.opt = opt,
               .inputs = inputs,
               .n_inputs = n_inputs,
               .tok = t,
               .out_dir = out_dir,
               .rules = {.tok = t, .labels = opt->labels, .valid_fraction = opt->valid_fraction},
               .lock_fd = -1,
               .mem = arena_new("data build")};
    b.work_dir = path_join(b.mem, out_dir, ".build");
    b.state_path = path_join(b.mem, b.work_dir, "state.json");
    b.start_ns = b.saved_ns = b.shown_ns = clock_now_ns();
    status st = run(&b, result, e);
    close_writers(&b);
    if (st != ST_OK) clean_up(&b);
    if (b.lock_fd >= 0) close(b.lock_fd);
    reader_close(b.reader);
    json_decref(b.made_with);
    arena_free(b.mem);
    return st;
}
