#include "train/course/chat_source.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "data/build/place.h"
#include "data/chat/chat.h"

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
    TRY(read_variables(c, variables, e));
    opt->variables = *variables;
    return ST_OK;
}

/* ---- building ---- */

static status not_built(const char *path, err *e) {
    err_at(e, ST_USAGE, path, "the conversations of %s are not yet token shards", path);
    return err_hint(e, "training makes them at its start; athanor data build makes them now");
}

static status build(const stage_data *d, const config *c, const char *path, const char *dir,
                    const chat_build_options *opt, err *e) {
    chat_build_result r;
    TRY(chat_build(&path, 1, dir, c->tokenizer, d->tok, opt, &r, e));
    log_info("%s: %" PRIu64 " conversations, %" PRIu64 " tokens, as shards in %s", path,
             r.train.documents, r.train.tokens, dir);
    json_decref(r.report);
    return ST_OK;
}

/* Whoever comes first builds; who waited finds the set. */
static status build_once(const stage_data *d, const config *c, const char *path, const char *root,
                         const char *dir, const char *manifest, const chat_build_options *opt,
                         err *e) {
    int lock;
    TRY(place_lock(root, true, &lock, e));
    status st = file_exists(manifest) ? ST_OK : build(d, c, path, dir, opt, e);
    close(lock);
    return st;
}

static status find(const stage_data *d, const config *c, const char *path,
                   const chat_build_options *opt, arena *a, const char **out, err *e) {
    uint64_t rules, files = chat_inputs_fingerprint(&path, 1);
    TRY(chat_build_digest(c->tokenizer, d->tok, opt, &rules, e));
    const uint64_t all[] = {rules, files};
    char digest[17];
    hash_format(hash_bytes(all, sizeof all), digest);
    const char *root = path_join(a, d->run ? d->run : "", "data"),
               *dir = path_join(a, root, digest);
    const char *manifest = path_join(a, dir, "manifest.json");
    *out = dir;
    if (d->run && file_exists(manifest)) return ST_OK;
    if (!d->run || !d->builds) return not_built(path, e);
    return build_once(d, c, path, root, dir, manifest, opt, e);
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
    if (!chat_may_be(&path, 1)) return ST_OK;
    status st = read_options(c, &opt, &variables, e);
    if (st == ST_OK) st = find(d, c, path, &opt, a, out, e);
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
