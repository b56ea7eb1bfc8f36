/* See chat_source.h. Reading order: what the config says, building, chat_source_find; then the check of lengths. */
#include "train/course/chat_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/build/build.h"
#include "data/build/place.h"
#include "data/chat/chat.h"
#include "train/objective/objective.h"

/* ---- what the config says of conversations ---- */

static status read_variables(const config *c, json_t **out, err *e) {
    const char *text = c->data.variables;
    *out = text ? json_loads(text, 0, NULL) : NULL;
    if (!text || json_is_object(*out)) return ST_OK;
    config_error(c, e, "data.variables", "data.variables is not an object of JSON: %s", text);
    return err_hint(e, "such as '{\"enable_thinking\": false}'");
}

static status read_options(const config *c, chat_build_options *opt, json_t **variables, err *e) {
    *opt = (chat_build_options){.template_file = c->data.template,
                                .train = (chat_train)c->data.train_on};
    status st = chat_checks_parse(c->data.allow.items, c->data.allow.n, &opt->allowed, e);
    if (st != ST_OK) {
        config_locate(c, "data.allow", e);
        return st;
    }
    opt->allowed &= ~(1u << CHECK_TRUNCATED); /* of rows, not of the set */
    TRY(read_variables(c, variables, e));
    opt->variables = *variables;
    return ST_OK;
}

/* ---- building ---- */

/* A set that is to be made of a file: what decides it, but the file, and how. */
typedef struct making {
    const stage_data *d;
    const config *c;
    const char *path;
    uint64_t rules;
    const chat_build_options *chat; /* NULL: labelled texts */
    const data_build_options *texts;
} making;

static status not_built(const char *path, err *e) {
    err_at(e, ST_USAGE, path, "%s is not yet made into token shards", path);
    return err_hint(e, "training makes them at its start; athanor data build makes them now");
}

static status build_chat(const making *m, const char *dir, err *e) {
    chat_build_result r;
    TRY(chat_build(&m->path, 1, dir, m->c->tokenizer, m->d->tok, m->chat, &r, e));
    /* A pair is one, though its answers are two documents. */
    json_int_t n = json_integer_value(json_object_get(r.report, "samples"));
    log_info("%s: %" JSON_INTEGER_FORMAT " conversation%s, %" PRIu64 " tokens, as shards in %s",
             m->path, n, text_s(n), r.train.tokens, dir);
    json_decref(r.report);
    return ST_OK;
}

static status build_texts(const making *m, const char *dir, err *e) {
    data_build_result r;
    TRY(data_build(&m->path, 1, dir, m->d->tok, m->texts, &r, e));
    log_info("%s: %" PRIu64 " text%s with a label, %" PRIu64 " tokens, as shards in %s", m->path,
             r.train.documents, text_s(r.train.documents), r.train.tokens, dir);
    return ST_OK;
}

/* Whoever comes first builds; who waited finds the set. */
static status build_once(const making *m, const char *root, const char *dir, const char *manifest,
                         err *e) {
    int lock;
    TRY(place_lock(root, true, &lock, e));
    status st = ST_OK;
    if (!file_exists(manifest)) st = (m->chat ? build_chat : build_texts)(m, dir, e);
    close(lock);
    return st;
}

static status find(const making *m, arena *a, const char **out, err *e) {
    const stage_data *d = m->d;
    const uint64_t all[] = {m->rules, chat_inputs_fingerprint(&m->path, 1)};
    char digest[17];
    hash_format(hash_bytes(all, sizeof all), digest);
    const char *root = path_join(a, d->run ? d->run : "", "data"),
               *dir = path_join(a, root, digest);
    const char *manifest = path_join(a, dir, "manifest.json");
    *out = dir;
    if (d->run && file_exists(manifest)) return ST_OK;
    if (!d->run || !d->builds) return not_built(m->path, e);
    return build_once(m, root, dir, manifest, e);
}

/* ---- labelled texts ---- */

static uint64_t hash_text(uint64_t before, const char *text) {
    const uint64_t all[] = {before, text ? hash_bytes(text, strlen(text)) : 0};
    return hash_bytes(all, sizeof all);
}

static status find_texts(const stage_data *d, const config *c, const char *path, arena *a,
                         const char **out, err *e) {
    const char *text = c->data.text;
    bool joined = strchr(text, '{') != NULL;
    data_build_options opt = {.reader = {.field = joined ? NULL : text,
                                         .template = joined ? text : NULL,
                                         .label = c->data.label,
                                         .max_bad = 0},
                              .no_eos = true,
                              .labels = d->labels};
    uint64_t rules = hash_text(hash_text(tok_hash(d->tok), text), c->data.label);
    rules = mix64(rules ^ (uint64_t)d->labels.classes);
    for (int64_t i = 0; d->labels.names && i < d->labels.classes; i++)
        rules = hash_text(rules, d->labels.names[i]);
    making m = {.d = d, .c = c, .path = path, .rules = rules, .texts = &opt};
    return find(&m, a, out, e);
}

/* The set that the stage began with, in the folder that the run is in now. */
static bool is_there_still(const stage_data *d, const char *path, const char *began, arena *a,
                           const char **out) {
    if (!began || !d->run || strcmp(began, path) == 0) return false;
    *out = path_join(a, path_join(a, d->run, "data"), path_base(began));
    return file_exists(path_join(a, *out, "manifest.json"));
}

status chat_source_find(const stage_data *d, const config *c, const char *path, const char *began,
                        arena *a, const char **out, err *e) {
    chat_build_options opt;
    json_t *variables = NULL;
    if (is_there_still(d, path, began, a, out)) return ST_OK;
    *out = path;
    if (d->labels.are_wanted && objective_of(c)->values)
        return file_is_dir(path) ? ST_OK : find_texts(d, c, path, a, out, e);
    if (!chat_may_be(&path, 1)) return ST_OK;
    making m = {.d = d, .c = c, .path = path, .chat = &opt};
    status st = read_options(c, &opt, &variables, e);
    if (st == ST_OK) st = chat_build_digest(c->tokenizer, d->tok, &opt, &m.rules, e);
    if (st == ST_OK) st = find(&m, a, out, e);
    json_decref(variables);
    return st;
}

/* ---- conversations longer than a sequence ---- */

static status find_cut(const shards *s, int T, arena *a, shard_place *out, err *e) {
    uint64_t first = 0, end;
    for (uint64_t doc = 0; doc < s->totals.documents; doc++, first = end) {
        TRY(shards_bounds(s, doc, 1, &end, NULL, e));
        if (end - first > (uint64_t)T + 1) return shards_locate(s, first, a, out, e);
    }
    CHECK(false, "%s has no long document", s->dir);
    return ST_FAILED;
}

static status too_many_cut(const config *c, const loader *l, int i, arena *a, err *e) {
    packing_totals t = loader_source_packing_totals(l, i);
    const shards *s = loader_source_shards(l, i);
    shard_place first = {0};
    TRY(find_cut(s, loader_seq_len(l), a, &first, e));
    const char *detail = arena_printf(
        a,
        "%" PRIu64 " of %" PRIu64 " have more than the %d tokens of train.seq_len and one, "
        "data.max_truncated allows %g of them",
        t.documents_cut, t.documents, loader_seq_len(l), c->data.max_truncated);
    status st = chat_check_error(CHECK_TRUNCATED, detail, e);
    err_context(e, "%s:%u", first.source, (unsigned)first.line);
    err_where(e, "%s:%u", first.source, (unsigned)first.line);
    return st;
}

status chat_source_check(const config *c, const loader *l, err *e) {
    uint32_t allowed = 0;
    status st = chat_checks_parse(c->data.allow.items, c->data.allow.n, &allowed, e);
    if (st != ST_OK || allowed & 1u << CHECK_TRUNCATED) return st;
    arena *a = arena_new("long conversations");
    for (int i = 0; st == ST_OK && i < loader_n_sources(l); i++) {
        packing_totals t = loader_source_packing_totals(l, i);
        if (!loader_source_shards(l, i)->chat.marks || t.documents == 0) continue;
        double share = (double)t.documents_cut / (double)t.documents;
        if (share > c->data.max_truncated) st = too_many_cut(c, l, i, a, e);
    }
    arena_free(a);
    return st;
}

/* Conversations that have more than the T + 1 tokens of a row, and none of these is trained. */
static status count_untaught(const shards *s, int T, uint64_t *n, err *e) {
    uint8_t *marks = xmalloc((size_t)T + 1);
    uint64_t first = 0, end = 0;
    status st = ST_OK;
    for (uint64_t doc = 0; st == ST_OK && doc < s->totals.documents; doc++, first = end) {
        st = shards_bounds(s, doc, 1, &end, NULL, e);
        if (st != ST_OK || end - first <= (uint64_t)T + 1) continue;
        st = shards_copy_marks(s, first, T + 1, marks, e);
        bool taught = false;
        for (int i = 0; st == ST_OK && i <= T && !taught; i++) taught = marks[i] & MARK_TRAINED;
        *n += st == ST_OK && !taught;
    }
    free(marks);
    return st;
}

status chat_source_warn(const loader *l, err *e) {
    if (loader_source_len(l)) return ST_OK; /* sources are cut by themselves */
    for (int i = 0; i < loader_n_sources(l); i++) {
        packing_totals t = loader_source_packing_totals(l, i);
        const shards *s = loader_source_shards(l, i);
        uint64_t n = 0;
        if (!s->chat.marks || t.documents_cut == 0) continue;
        TRY(count_untaught(s, loader_seq_len(l), &n, e));
        if (n)
            log_warn("%s: %" PRIu64 " of %" PRIu64
                     " conversations and answers are cut before their first "
                     "trained token, and teach nothing: raise train.seq_len, or leave them out",
                     s->dir, n, t.documents);
    }
    return ST_OK;
}
