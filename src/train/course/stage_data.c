/* Reading order: stage_data_open, source_of (what the record says), find_consumed (what earlier
 * stages took), enter (a new stage into the record). */
#include "train/course/stage_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "train/course/chat_source.h"
#include "train/course/resample.h"
#include "train/objective/objective.h"

/* ---- the record ---- */

static bool is_record(const json_t *record) {
    const json_t *stages = json_object_get(record, "stages");
    size_t i;
    json_t *stage;
    json_array_foreach((json_t *)stages, i,
                       stage) if (!json_is_array(json_object_get(stage, "sources"))) return false;
    return json_is_array(stages);
}

status stage_data_read(json_t **record, const char *run, err *e) {
    TRY(run_read_json(record, run, "data.json", e));
    if (!*record) *record = json_pack("{s:[]}", "stages");
    if (is_record(*record)) return ST_OK;
    json_decref(*record);
    *record = NULL;
    err_set(e, ST_FORMAT, "%s/data.json is not the record of a run's data", run);
    err_where(e, "%s/data.json", run);
    return err_hint(e, "bring it back from a copy, or start anew with --fresh");
}

int stage_data_begun(const json_t *record) {
    return (int)json_array_size(json_object_get(record, "stages"));
}

static uint64_t count_of(const json_t *o, const char *key) {
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

course_origin stage_data_origin(const json_t *record) {
    const json_t *o = json_object_get(record, "origin");
    return (course_origin){.step = (int64_t)count_of(o, "step"),
                           .stage = (int)count_of(o, "stage"),
                           .samples = count_of(o, "samples"),
                           .tokens = count_of(o, "tokens")};
}

void stage_data_set_origin(json_t *record, const course_origin *o) {
    json_t *v = json_pack("{s:I,s:i,s:I,s:I}", "step", (json_int_t)o->step, "stage", o->stage,
                          "samples", (json_int_t)o->samples, "tokens", (json_int_t)o->tokens);
    json_object_set_new(record, "origin", v);
}

static const json_t *stage_record(const stage_data *d, int stage) {
    return json_array_get(json_object_get(d->record, "stages"), (size_t)stage);
}

static const json_t *source_record(const stage_data *d, int stage, int i) {
    return json_array_get(json_object_get(stage_record(d, stage), "sources"), (size_t)i);
}

/* ---- opening ---- */

enum { MOST_SENTINELS = 1000 };

static int width_of(int kind) {
    return kind == CONFIG_TOKEN_DTYPE_U16 ? 2 : kind == CONFIG_TOKEN_DTYPE_U32 ? 4 : 0;
}

static loader_source source_of(const config_source *s, const char *path, const json_t *record) {
    return (loader_source){.path = path,
                           .weight = s->weight,
                           .format = (shards_format)s->format,
                           .width_bytes = width_of(s->dtype),
                           .max_tok = count_of(record, "tokens"),
                           .consumed = count_of(record, "consumed")};
}

int stage_source_len(const config *c, bool has_encoder) {
    if (!has_encoder) return 0;
    return (int)(c->train.source_len == CONFIG_AUTO ? c->train.seq_len : c->train.source_len);
}

/* The ids of <extra_id_0>, <extra_id_1>, ... as far as the tokenizer has them; returns how many. */
static int find_sentinels(const tok *t, int32_t ids[MOST_SENTINELS]) {
    int n = 0;
    for (char name[32]; n < MOST_SENTINELS; n++) {
        snprintf(name, sizeof name, "<extra_id_%d>", n);
        ids[n] = tok_id(t, name);
        if (ids[n] < 0) break;
    }
    return n;
}

static loader_config loader_config_of(const stage_data *d, const config *c,
                                      int32_t sentinels[MOST_SENTINELS]) {
    bool sources = d->has_encoder;
    return (loader_config){.seq_len = (int)c->train.seq_len,
                           .source_len = stage_source_len(c, sources),
                           .decoder_start = d->decoder_start,
                           .spans = {.density = c->data.span_corruption.density,
                                     .mean = c->data.span_corruption.mean_length,
                                     .sentinels = sentinels,
                                     .n_sentinels = sources ? find_sentinels(d->tok, sentinels) : 0,
                                     .end = tok_eos(d->tok)},
                           .document_mask = c->data.document_mask,
                           .cut_once = resample_cuts_once(c),
                           .sequences = objective_of(c)->sequences,
                           .labels = objective_of(c)->labels,
                           .values = objective_of(c)->values,
                           .packing = (loader_packing)c->data.packing,
                           .order = (loader_order)c->data.order,
                           .seed = (uint64_t)c->data.seed,
                           .tok_hash = tok_hash(d->tok),
                           .vocab_size = d->vocab_size,
                           .tok_vocab = tok_vocab_size(d->tok),
                           .eos = tok_eos(d->tok)};
}

/* Where an objective has targets of its own, the data must say which tokens they are. */
static status open_marked(const stage_data *d, const config *c, const loader_config *lc,
                          loader **out, err *e) {
    TRY(loader_open(out, lc, e));
    if (d->texts_alone && loader_get_packing(*out) == PACKING_BESTFIT) {
        loader_close(*out);
        *out = NULL;
        config_error(c, e, "data.packing",
                     "soft experts mix all texts of a row, and a row has several");
        return err_hint(e, "data.packing=none");
    }
    for (int i = 0; objective_of(c)->marks && i < lc->n_sources; i++) {
        const shards *s = loader_source_shards(*out, i);
        if (s->chat.marks) continue;
        config_error(c, e, "train.objective",
                     "%s holds texts, not conversations, from which train.objective=%s learns",
                     s->dir, objective_of(c)->name);
        loader_close(*out);
        *out = NULL;
        return err_hint(e, "train.objective=lm learns from texts");
    }
    return ST_OK;
}

/* How the sequences of a stage are dealt: for training, without shuffle, or each once as training cuts them. */
typedef enum dealing { DEAL_SHUFFLED, DEAL_IN_ORDER, DEAL_IN_TURN } dealing;

/* The sources of a config, from where the record of a stage says; stage -1: from their beginning. */
static status open_sources(const stage_data *d, const config *c, int stage, dealing how,
                           loader **out, err *e) {
    int32_t sentinels[MOST_SENTINELS];
    loader_config lc = loader_config_of(d, c, sentinels);
    loader_source *sources = xcalloc((size_t)c->data.train.n, sizeof *sources);
    arena *paths = arena_new("paths of data");
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < c->data.train.n; i++) {
        const config_source *s = &c->data.train.items[i];
        const json_t *record = stage < 0 ? NULL : source_record(d, stage, i);
        const char *path = s->path, *began = json_string_value(json_object_get(record, "path"));
        if (s->format == SHARDS_AUTO) st = chat_source_find(d, c, s->path, began, paths, &path, e);
        sources[i] = source_of(s, path, record);
    }
    lc.sources = sources;
    lc.n_sources = c->data.train.n;
    lc.shuffle = how != DEAL_IN_ORDER;
    lc.in_turn = how == DEAL_IN_TURN;
    if (!lc.shuffle) lc.order = ORDER_SHUFFLE;
    if (st == ST_OK) st = open_marked(d, c, &lc, out, e);
    free(sources);
    arena_free(paths);
    if (st == ST_OK) st = chat_source_check(c, *out, e);
    if (st == ST_OK && d->speaks && lc.shuffle) st = chat_source_warn(*out, e);
    return st;
}

static bool same_hash(const json_t *o, uint64_t hash) {
    uint64_t then;
    return hash_parse(json_string_value(json_object_get(o, "fingerprint")), &then) && then == hash;
}

/* The shards of a source that the record knows must have the same fingerprint as then. */
static status check_unchanged(const stage_data *d, const config *c, int stage, const loader *l,
                              err *e) {
    for (int i = 0; i < loader_n_sources(l); i++) {
        const json_t *then = source_record(d, stage, i);
        const shards *s = loader_source_shards(l, i);
        if (then && same_hash(then, s->fingerprint)) continue;
        err_set(e, ST_FORMAT, "the data in %s is not what this run has been training on", s->dir);
        err_where(e, "%s (data.train[%d])", config_where(c, "data.train"), i);
        return err_hint(e, "bring the old shards back, or go on with the new ones in another run: "
                           "--fork NEW");
    }
    return ST_OK;
}

/* ---- what earlier stages took ---- */

/* How many samples of each source an earlier stage had used by its end. The mixture of that stage
 * decides this, so its loader is opened. */
static status taken_by(const stage_data *d, int stage, uint64_t *taken, err *e) {
    const config *c = d->course->stage[stage].c;
    loader *l;
    bool is_new;
    TRY(stage_data_open(d, c, stage, &l, &is_new, e));
    uint64_t n = watch_move(d->watch, stage, course_stage_samples(d->course, stage));
    for (int i = 0; i < loader_n_sources(l); i++)
        taken[i] = count_of(source_record(d, stage, i), "consumed") + loader_samples_of(l, i, n);
    loader_close(l);
    return ST_OK;
}

/* With which sample a source begins that an earlier stage has used. If both stages cut it into
 * sequences in the same way: behind the samples that were used. If not, sequences would overlap:
 * with the next whole pass over the source. */
static uint64_t goes_on_at(const json_t *then, uint64_t taken, const json_t *now) {
    bool same = json_equal(json_object_get(then, "cut"), json_object_get(now, "cut"));
    uint64_t before = count_of(then, "sequences");
    if (same || taken == 0 || before == 0) return taken;
    return (taken + before - 1) / before * count_of(now, "sequences");
}

/* Passes over a source when `taken` of its samples have been used. Samples that were skipped
 * because the cut changed do not count. */
static double passes_of(const json_t *source, uint64_t taken) {
    uint64_t all = count_of(source, "sequences"), before = count_of(source, "consumed");
    double earlier = json_number_value(json_object_get(source, "passes"));
    return earlier + (all ? (double)(taken - before) / (double)all : 0);
}

/* Whether a stage used one of these sources, and it is not known yet how far. Only then its data
 * are opened: data of other stages may be gone. */
static bool is_asked(const json_t *then, const json_t *sources, const bool *known) {
    size_t i, j;
    json_t *source, *now;
    json_array_foreach(then, i, source) json_array_foreach(
        sources, j,
        now) if (!known[j] && json_equal(json_object_get(source, "fingerprint"),
                                         json_object_get(now, "fingerprint"))) return true;
    return false;
}

/* As taken_by. In a fork the config of earlier stages may differ from what was trained; then
 * nothing is known. */
static status taken_if_known(const stage_data *d, int stage, uint64_t *taken, bool *is_known,
                             err *e) {
    int64_t origin = stage_data_origin(d->record).step;
    bool is_past = origin > 0 && d->course->stage[stage].last_step <= origin;
    err why = {0};
    status st = taken_by(d, stage, taken, &why);
    *is_known = st == ST_OK;
    if (st == ST_OK) return ST_OK;
    if (!is_past) {
        if (e) *e = why;
        return st;
    }
    if (d->speaks)
        log_warn(
            "stage %s is not what was trained before the fork, so its data count as not read: %s",
            d->course->stage[stage].name, why.message);
    return ST_OK;
}

/* Fills "consumed" of the new stage's sources from the latest stage that used the same data. */
static status find_consumed(const stage_data *d, int stage, json_t *sources, bool *any, err *e) {
    uint64_t taken[LOADER_MAX_SOURCES];
    size_t n = json_array_size(sources);
    bool *known = xcalloc(n, sizeof *known);
    status st = ST_OK;
    *any = false;
    for (int k = stage - 1; k >= 0 && st == ST_OK; k--) {
        const json_t *list = json_object_get(stage_record(d, k), "sources");
        if (!is_asked(list, sources, known)) continue;
        bool is_known;
        st = taken_if_known(d, k, taken, &is_known, e);
        if (!is_known) continue;
        for (size_t i = 0; i < n && st == ST_OK; i++) {
            json_t *now = json_array_get(sources, i), *then;
            size_t j;
            json_array_foreach(list, j, then) {
                if (known[i] || !json_equal(json_object_get(then, "fingerprint"),
                                            json_object_get(now, "fingerprint")))
                    continue;
                known[i] = *any = true;
                json_object_set_new(now, "passes", json_f64(passes_of(then, taken[j])));
                json_object_set_new(now, "consumed",
                                    json_integer((json_int_t)goes_on_at(then, taken[j], now)));
            }
        }
    }
    free(known);
    return st;
}

/* ---- a new stage ---- */

static json_t *describe(const loader *l, const config *c, int i) {
    static const char *const packings[] = {LOADER_PACKINGS(LIST_WORD)};
    const shards *s = loader_source_shards(l, i);
    json_t *cut = json_pack("{s:I,s:s,s:o,s:I}", "seq_len", (json_int_t)c->train.seq_len, "packing",
                            packings[loader_get_packing(l)], "order",
                            config_get_json(c, "data.order"), "seed", (json_int_t)c->data.seed);
    if (resample_cuts_once(c)) json_object_set_new(cut, "once", json_true());
    return json_pack("{s:o,s:o,s:I,s:I,s:i,s:o,s:o}", "path", json_cstr(s->dir), "fingerprint",
                     json_hash(s->fingerprint), "tokens", (json_int_t)s->totals.tokens, "sequences",
                     (json_int_t)loader_source_sequences(l, i), "consumed", 0, "passes",
                     json_f64(0), "cut", cut);
}

static status enter(const stage_data *d, const config *c, int stage, const loader *l, bool *any,
                    err *e) {
    json_t *sources = json_array();
    for (int i = 0; i < loader_n_sources(l); i++) json_array_append_new(sources, describe(l, c, i));
    status st = ST_OK;
    if (stage > 0) st = find_consumed(d, stage, sources, any, e);
    if (st != ST_OK) {
        json_decref(sources);
        return st;
    }
    const char *name = d->course ? d->course->stage[stage].name : "";
    json_array_append_new(json_object_get(d->record, "stages"),
                          json_pack("{s:s,s:o}", "name", name, "sources", sources));
    return ST_OK;
}

static status need_sources(const config *c, err *e) {
    if (c->data.train.n > 0) return ST_OK;
    config_error(c, e, "data.train", "training needs 'data.train', and the config does not set it");
    return err_hint(e, "`athanor data build TEXT -o shards` makes shards");
}

uint64_t stage_data_drawn(const json_t *record, int stage) {
    const json_t *stages = json_object_get(record, "stages");
    uint64_t hash;
    const char *hex =
        json_string_value(json_object_get(json_array_get(stages, (size_t)stage), "drawn"));
    return hash_parse(hex, &hash) ? hash : 0;
}

/* A round of its own sequences. They are those with which it began. */
static status draw(const stage_data *d, const config *c, int stage, loader *l, bool is_new,
                   err *e) {
    uint64_t hash;
    TRY(resample_draw(d->run, c, stage, l, &hash, e));
    if (is_new && hash)
        json_object_set_new((json_t *)stage_record(d, stage), "drawn", json_hash(hash));
    if (hash == stage_data_drawn(d->record, stage)) return ST_OK;
    config_error(c, e, "data.resample.share",
                 "other sequences would be drawn than when this stage began: losses have changed");
    return err_hint(e, "bring the files of %s/losses back, or begin anew: --fork NEW",
                    c->data.resample.from ? c->data.resample.from : d->run);
}

status stage_data_open(const stage_data *d, const config *c, int stage, loader **out, bool *is_new,
                       err *e) {
    *out = NULL;
    *is_new = stage >= stage_data_begun(d->record);
    CHECK(stage <= stage_data_begun(d->record), "stage %d begins before the one before it", stage);
    TRY(need_sources(c, e));
    loader *l = NULL;
    bool again = false;
    status st = open_sources(d, c, stage, DEAL_SHUFFLED, &l, e);
    if (st == ST_OK && !*is_new) st = check_unchanged(d, c, stage, l, e);
    if (st == ST_OK && *is_new) st = enter(d, c, stage, l, &again, e);
    if (st == ST_OK && again) { /* the sources go on behind what earlier stages took */
        loader_close(l);
        st = open_sources(d, c, stage, DEAL_SHUFFLED, &l, e);
    }
    if (st == ST_OK) st = draw(d, c, stage, l, *is_new, e);
    if (st == ST_OK)
        *out = l;
    else
        loader_close(l);
    return st;
}

/* The stage if it has begun, else -1. */
static int record_of(const stage_data *d, int stage) {
    return stage < stage_data_begun(d->record) ? stage : -1;
}

status stage_data_open_in_order(const stage_data *d, const config *c, int stage, loader **out,
                                err *e) {
    return open_sources(d, c, record_of(d, stage), DEAL_IN_ORDER, out, e);
}

status stage_data_open_in_turn(const stage_data *d, const config *c, int stage, loader **out,
                               err *e) {
    return open_sources(d, c, record_of(d, stage), DEAL_IN_TURN, out, e);
}

status stage_data_count(const stage_data *d, const config *c, uint64_t *n, err *e) {
    *n = 0;
    if (c->train.epochs <= 0) return ST_OK;
    stage_data look = *d;
    look.record = json_deep_copy(d->record);
    loader *l = NULL;
    bool is_new;
    status st = stage_data_open(&look, c, 0, &l, &is_new, e);
    if (st == ST_OK) *n = loader_sequences(l);
    loader_close(l);
    json_decref(look.record);
    return st;
}

bool stage_data_makes(const stage_data *d, const config *c) {
    arena *paths = arena_new("sets that are there");
    stage_data look = *d;
    look.builds = false;
    const char *path;
    err unread;
    bool there = true;
    for (int i = 0; i < c->data.train.n && there; i++) {
        const config_source *s = &c->data.train.items[i];
        if (s->format == SHARDS_AUTO)
            there = chat_source_find(&look, c, s->path, NULL, paths, &path, &unread) == ST_OK;
    }
    if (c->data.valid && there)
        there = chat_source_find(&look, c, c->data.valid, NULL, paths, &path, &unread) == ST_OK;
    arena_free(paths);
    return !there;
}

status stage_data_open_valid(const stage_data *d, const config *c, loader **out, err *e) {
    *out = NULL;
    if (!c->data.valid) return ST_OK;
    loader_source source = {.path = c->data.valid, .weight = 1.0};
    int32_t sentinels[MOST_SENTINELS];
    loader_config lc = loader_config_of(d, c, sentinels);
    arena *paths = arena_new("path of data");
    status st = chat_source_find(d, c, c->data.valid, NULL, paths, &source.path, e);
    lc.order = ORDER_SHUFFLE;
    lc.sources = &source;
    lc.n_sources = 1;
    if (st == ST_OK) st = open_marked(d, c, &lc, out, e);
    arena_free(paths);
    return st;
}

/* ---- stages to come ---- */

static bool is_there(const char *path) {
    return strpbrk(path, "*?[") != NULL || file_exists(path);
}

status stage_data_probe(const stage_data *d, const config *c, err *e) {
    TRY(need_sources(c, e));
    bool all = true;
    for (int i = 0; i < c->data.train.n; i++) {
        const config_source *s = &c->data.train.items[i];
        if (is_there(s->path)) continue;
        all = false;
        if (d->speaks) log_warn("%s, the data of a later stage, does not exist yet", s->path);
    }
    loader *l = NULL;
    status st = all ? open_sources(d, c, -1, DEAL_SHUFFLED, &l, e) : ST_OK;
    loader_close(l);
    if (st == ST_OK && c->data.valid && is_there(c->data.valid)) {
        st = stage_data_open_valid(d, c, &l, e);
        loader_close(l);
    }
    return st;
}

/* ---- what people are told ---- */

static uint64_t consumed_by_end(const stage_data *d, const loader *l, int stage, int i) {
    uint64_t n = course_stage_samples(d->course, stage);
    return count_of(source_record(d, stage, i), "consumed") + loader_samples_of(l, i, n);
}

stage_source stage_data_source(const stage_data *d, const loader *l, const config *c, int stage,
                               int i) {
    const json_t *record = source_record(d, stage, i);
    const config_source *s = &c->data.train.items[i];
    return (stage_source){.path = s->path,
                          .weight = s->weight,
                          .share = loader_source_share(l, i),
                          .tokens = loader_source_shards(l, i)->totals.tokens,
                          .consumed = count_of(record, "consumed"),
                          .passes = passes_of(record, consumed_by_end(d, l, stage, i)),
                          .budget = s->epochs};
}
