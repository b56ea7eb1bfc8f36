/* manifest.json of a shard folder: written from and parsed into a `shards` without files. The state
 * of an unfinished writer is the same object with what has been closed so far.
 *
 * The text is untrusted: every number is range-checked and the totals must be the sums over the
 * shards. File names are not taken from it but must be the ones we would have written. */
#include "data/shard/shard_format.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define FORMAT_NAME "athanor-shards"

void shards_hint_rebuild(err *e) {
    err_hint(e, "rebuild the folder with `athanor data build`");
}

void shard_file_name(char out[32], int number, shard_kind kind) {
    static const char *const SUFFIX[SHARD_KINDS] = {"bin", "idx", "ids", "mrk"};
    snprintf(out, 32, "shard-%05d.%s", number, SUFFIX[kind]);
}

/* A manifest being read: every helper reports the key through it. */
typedef struct manifest_in {
    const char *dir;
    bool unfinished; /* a writer's state: there may be nothing yet */
    err *e;
} manifest_in;

static status manifest_error(manifest_in *in, const char *key, const char *what) {
    err_set(in->e, ST_FORMAT, "%s/manifest.json: \"%s\" %s", in->dir, key, what);
    err_where(in->e, "%s/manifest.json: %s", in->dir, key);
    shards_hint_rebuild(in->e);
    return ST_FORMAT;
}

bool manifest_get_count(const json_t *o, const char *key, uint64_t max, uint64_t *out) {
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 0 || (uint64_t)n > max) return false;
    *out = (uint64_t)n;
    return true;
}

bool manifest_get_hash(const json_t *o, const char *key, uint64_t *out) {
    return hash_parse(json_string_value(json_object_get(o, key)), out);
}

static status get_count(manifest_in *in, const json_t *o, const char *key, uint64_t min,
                        uint64_t max, uint64_t *out) {
    if (!json_is_integer(json_object_get(o, key)))
        return manifest_error(in, key, "is missing or not a whole number");
    if (!manifest_get_count(o, key, max, out) || *out < min)
        return manifest_error(in, key, "is out of range");
    return ST_OK;
}

static status get_hash(manifest_in *in, const json_t *o, const char *key, uint64_t *out) {
    if (manifest_get_hash(o, key, out)) return ST_OK;
    return manifest_error(in, key, "is not a hash of 16 hex digits");
}

static status get_flag(manifest_in *in, const json_t *o, const char *key, bool *out) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_boolean(v)) return manifest_error(in, key, "is not true or false");
    *out = json_is_true(v);
    return ST_OK;
}

static status get_totals(manifest_in *in, const json_t *o, uint64_t min, shard_totals *t) {
    TRY(get_count(in, o, "tokens", min, SHARD_MAX_TOKENS, &t->tokens));
    TRY(get_count(in, o, "documents", min, t->tokens, &t->documents));
    return get_count(in, o, "text_bytes", 0, SHARD_MAX_TEXT_BYTES, &t->text_bytes);
}

static status parse_sources(manifest_in *in, const json_t *root, shards *s) {
    const json_t *list = json_object_get(root, "sources");
    size_t n = json_array_size(list);
    if ((n == 0 && !in->unfinished) || n > INT32_MAX)
        return manifest_error(in, "sources", "is not a list of paths");
    s->source = xcalloc(n, sizeof *s->source);
    for (size_t i = 0; i < n; i++) {
        const char *path = json_string_value(json_array_get(list, i));
        if (!path) return manifest_error(in, "sources", "is not a list of paths");
        s->source[s->n_sources++] = xstrdup(path);
    }
    return ST_OK;
}

static status parse_shard(manifest_in *in, const shards *s, const json_t *o, int number,
                          shard *sh) {
    char expected[32];
    shard_file_name(expected, number, SHARD_TOKENS);
    const char *file = json_string_value(json_object_get(o, "file"));
    if (!file || strcmp(file, expected) != 0)
        return manifest_error(in, "shards.file", "is not the next shard's name");
    sh->file = xstrdup(expected);
    sh->data_offset = SHARD_HEADER_BYTES;
    sh->item = s->width_bytes == 2 ? ITEM_U16 : ITEM_U32;
    TRY(get_totals(in, o, 1, &sh->totals));
    TRY(get_hash(in, o, "xxh3", &sh->bin_hash));
    TRY(get_hash(in, o, "index_xxh3", &sh->idx_hash));
    if (s->chat.marks) TRY(get_hash(in, o, "marks_xxh3", &sh->mrk_hash));
    if (!s->has_ids) return ST_OK;
    TRY(get_count(in, o, "id_bytes", 0, SHARD_MAX_TEXT_BYTES, &sh->id_bytes));
    return get_hash(in, o, "ids_xxh3", &sh->ids_hash);
}

static status parse_shards(manifest_in *in, const json_t *root, shards *s) {
    const json_t *list = json_object_get(root, "shards");
    size_t n = json_array_size(list);
    if ((n == 0 && !in->unfinished) || n > 1000000)
        return manifest_error(in, "shards", "is not a list of shards");
    s->shard = xcalloc(n, sizeof *s->shard);
    shard_totals sum = {0};
    for (size_t i = 0; i < n; i++) {
        shard *sh = &s->shard[s->n_shards++];
        TRY(parse_shard(in, s, json_array_get(list, i), (int)i, sh));
        sh->first_tok = sum.tokens;
        sh->first_doc = sum.documents;
        sum.tokens += sh->totals.tokens;
        if (sum.tokens > SHARD_MAX_TOKENS) return manifest_error(in, "shards", "is too large");
        sum.documents += sh->totals.documents;
        sum.text_bytes += sh->totals.text_bytes;
        if (sum.text_bytes > SHARD_MAX_TEXT_BYTES)
            return manifest_error(in, "shards", "is too large");
    }
    if (sum.tokens != s->totals.tokens)
        return manifest_error(in, "tokens", "is not the sum over the shards");
    if (sum.documents != s->totals.documents)
        return manifest_error(in, "documents", "is not the sum over the shards");
    if (sum.text_bytes != s->totals.text_bytes)
        return manifest_error(in, "text_bytes", "is not the sum over the shards");
    return ST_OK;
}

/* "chat" stands in the manifests of sets with marks, and only there. */
static status parse_chat(manifest_in *in, const json_t *root, uint64_t version, shards *s) {
    const json_t *o = json_object_get(root, "chat");
    uint64_t sequences;
    if (version != SHARD_VERSION_MARKS)
        return o ? manifest_error(in, "version", "is not that of a set with marks") : ST_OK;
    if (!json_is_object(o)) return manifest_error(in, "chat", "is missing or not an object");
    s->chat.marks = true;
    TRY(get_count(in, o, "sequences", 1, 2, &sequences));
    s->chat.sequences = (int)sequences;
    TRY(get_flag(in, o, "labels", &s->chat.labels));
    TRY(get_hash(in, o, "template_hash", &s->chat.template_hash));
    return get_hash(in, o, "variables_hash", &s->chat.variables_hash);
}

static status parse_head(manifest_in *in, const json_t *root, shards *s) {
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, FORMAT_NAME) != 0)
        return manifest_error(in, "format", "is not \"" FORMAT_NAME "\"");
    uint64_t version, vocab;
    TRY(get_count(in, root, "version", 0, INT32_MAX, &version));
    if (version < SHARD_VERSION)
        return manifest_error(in, "version", "says that it was built by an earlier version");
    if (version > SHARD_VERSION_MARKS)
        return manifest_error(in, "version", "is not one this program reads (2 or 3)");
    TRY(parse_chat(in, root, version, s));
    TRY(get_hash(in, root, "tokenizer_hash", &s->tok_hash));
    TRY(get_count(in, root, "vocab_size", 1, INT32_MAX, &vocab));
    s->vocab_size = (int32_t)vocab;
    const char *dtype = json_string_value(json_object_get(root, "dtype"));
    if (dtype && strcmp(dtype, "u16") == 0) s->width_bytes = 2;
    if (dtype && strcmp(dtype, "u32") == 0) s->width_bytes = 4;
    if (s->width_bytes == 0) return manifest_error(in, "dtype", "is not \"u16\" or \"u32\"");
    const json_t *eos = json_object_get(root, "end_of_text");
    json_int_t id = json_integer_value(eos);
    if (!json_is_null(eos) && (!json_is_integer(eos) || id < 0 || id >= s->vocab_size))
        return manifest_error(in, "end_of_text", "is not null or an id of the vocabulary");
    s->eos = json_is_null(eos) ? -1 : (int32_t)id;
    TRY(get_flag(in, root, "has_ids", &s->has_ids));
    TRY(get_flag(in, root, "has_scores", &s->has_scores));
    return get_totals(in, root, in->unfinished ? 0 : 1, &s->totals);
}

static status parse_root(manifest_in *in, const json_t *root, shards *s) {
    TRY(parse_head(in, root, s));
    TRY(parse_sources(in, root, s));
    return parse_shards(in, root, s);
}

status manifest_from_json(shards **out, const char *dir, const json_t *root, bool unfinished,
                          err *e) {
    shards *s = shards_new(dir, SHARDS_OWN);
    s->has_index = true;
    manifest_in in = {dir, unfinished, e};
    status st = parse_root(&in, root, s);
    *out = st == ST_OK ? s : NULL;
    if (st != ST_OK) shards_close(s);
    return st;
}

status shards_parse_manifest(shards **out, const char *dir, const char *json, size_t len, err *e) {
    *out = NULL;
    json_error_t je;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        err_set(e, ST_FORMAT, "%s/manifest.json is not JSON: %s", dir, je.text);
        err_where(e, "%s/manifest.json:%d", dir, je.line);
        shards_hint_rebuild(e);
        return ST_FORMAT;
    }
    status st = manifest_from_json(out, dir, root, false, e);
    json_decref(root);
    return st;
}

void manifest_put_totals(json_t *o, const shard_totals *t) {
    json_object_update_new(o, json_pack("{s:I,s:I,s:I}", "tokens", (json_int_t)t->tokens,
                                        "documents", (json_int_t)t->documents, "text_bytes",
                                        (json_int_t)t->text_bytes));
}

static json_t *shard_to_json(const shards *s, const shard *sh) {
    json_t *o = json_pack("{s:s}", "file", sh->file);
    manifest_put_totals(o, &sh->totals);
    json_object_set_new(o, "xxh3", json_hash(sh->bin_hash));
    json_object_set_new(o, "index_xxh3", json_hash(sh->idx_hash));
    if (s->chat.marks) json_object_set_new(o, "marks_xxh3", json_hash(sh->mrk_hash));
    if (s->has_ids)
        json_object_update_new(o, json_pack("{s:I,s:o}", "id_bytes", (json_int_t)sh->id_bytes,
                                            "ids_xxh3", json_hash(sh->ids_hash)));
    return o;
}

json_t *manifest_to_json(const shards *s) {
    json_t *root = json_pack("{s:s,s:i,s:o,s:i,s:s,s:o,s:b,s:b}", "format", FORMAT_NAME, "version",
                             s->chat.marks ? SHARD_VERSION_MARKS : SHARD_VERSION, "tokenizer_hash",
                             json_hash(s->tok_hash), "vocab_size", s->vocab_size, "dtype",
                             s->width_bytes == 2 ? "u16" : "u32", "end_of_text",
                             s->eos < 0 ? json_null() : json_integer(s->eos), "has_ids", s->has_ids,
                             "has_scores", s->has_scores);
    if (s->chat.marks)
        json_object_set_new(root, "chat",
                            json_pack("{s:i,s:b,s:o,s:o}", "sequences", s->chat.sequences, "labels",
                                      s->chat.labels, "template_hash",
                                      json_hash(s->chat.template_hash), "variables_hash",
                                      json_hash(s->chat.variables_hash)));
    manifest_put_totals(root, &s->totals);
    json_t *sources = json_array(), *list = json_array();
    for (int i = 0; i < s->n_sources; i++) json_array_append_new(sources, json_cstr(s->source[i]));
    for (int i = 0; i < s->n_shards; i++)
        json_array_append_new(list, shard_to_json(s, &s->shard[i]));
    json_object_set_new(root, "sources", sources);
    json_object_set_new(root, "shards", list);
    return root;
}

status manifest_write(const shards *s, const char *path, err *e) {
    json_t *root = manifest_to_json(s);
    char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    CHECK(text, "a manifest that jansson cannot print");
    status st = file_write_atomic(path, text, strlen(text), e);
    free(text);
    return st;
}
