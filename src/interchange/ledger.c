/* See ledger.h. */
#include "interchange/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "revision.h"

enum { LEDGER_MOST_BYTES = 16 << 20 };

json_t *ledger_new(const char *kind) {
    json_t *revision = ATHANOR_REVISION[0] ? json_string(ATHANOR_REVISION) : json_null();
    return json_pack("{s:i, s:s, s:{s:s, s:s, s:o}, s:[]}", "format", 1, "kind", kind, "program",
                     "name", "athanor", "version", ATHANOR_VERSION, "revision", revision,
                     "parents");
}

/* ---- models ---- */

static bool is_weights(const char *name) {
    static const char end[] = ".safetensors";
    size_t n = strlen(name), m = strlen(end);
    bool named = strncmp(name, "model", 5) == 0 || strncmp(name, "adapter_model", 13) == 0;
    return named && n > m && strcmp(name + n - m, end) == 0;
}

static status add_file(json_t *files, const char *path, err *e) {
    uint64_t hash;
    TRY(hash_file(path, &hash, e));
    json_array_append_new(files,
                          json_pack("{s:o, s:I, s:o}", "name", json_cstr(path_base(path)), "bytes",
                                    (json_int_t)file_size(path), "xxh3", json_hash(hash)));
    return ST_OK;
}

static status add_folder(json_t *files, const char *dir, err *e) {
    arena *a = arena_new("ledger");
    char **names;
    int n = 0;
    status st = file_list_dir(a, dir, &names, &n, e);
    for (int i = 0; i < n && st == ST_OK; i++)
        if (is_weights(names[i])) st = add_file(files, path_join(a, dir, names[i]), e);
    arena_free(a);
    return st;
}

status ledger_read_files(const char *path, json_t **files, err *e) {
    *files = json_array();
    status st = file_is_dir(path) ? add_folder(*files, path, e) : add_file(*files, path, e);
    if (st == ST_OK) return ST_OK;
    json_decref(*files);
    *files = NULL;
    return st;
}

json_t *ledger_digest(const json_t *files) {
    strbuf text = {0};
    size_t i;
    json_t *file;
    json_array_foreach((json_t *)files, i, file)
        strbuf_printf(&text, "%s %s\n", json_string_value(json_object_get(file, "name")),
                      json_string_value(json_object_get(file, "xxh3")));
    json_t *digest = json_hash(hash_bytes(strbuf_cstr(&text), text.len));
    strbuf_free(&text);
    return digest;
}

static char *ledger_path(arena *a, const char *model) {
    return file_is_dir(model) ? path_join(a, model, LEDGER_FILE)
                              : arena_printf(a, "%s" LEDGER_BESIDE, model);
}

json_t *ledger_read(const char *model) {
    arena *a = arena_new("ledger");
    json_t *v = NULL;
    if (json_read_file(&v, ledger_path(a, model), LEDGER_MOST_BYTES, NULL) != ST_OK) v = NULL;
    arena_free(a);
    if (!v || json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

status ledger_write(const char *model, const json_t *ledger, err *e) {
    arena *a = arena_new("ledger");
    strbuf text = {0};
    json_format(&text, ledger, 2);
    strbuf_putc(&text, '\n');
    status st = file_write_atomic(ledger_path(a, model), text.data, text.len, e);
    strbuf_free(&text);
    arena_free(a);
    return st;
}

status ledger_read_parent(const char *role, const char *path, const char *form, json_t **parent,
                          err *e) {
    json_t *files, *own = ledger_read(path);
    status st = ledger_read_files(path, &files, e);
    *parent = NULL;
    if (st == ST_OK)
        *parent = json_pack("{s:s, s:o, s:s, s:o, s:o, s:O}", "role", role, "path", json_cstr(path),
                            "form", form, "digest", ledger_digest(files), "files", files, "ledger",
                            own ? own : json_null());
    json_decref(own);
    return st;
}

void ledger_add_parent(json_t *ledger, json_t *parent) {
    json_array_append_new(json_object_get(ledger, "parents"), parent);
}

/* ---- in words ---- */

static const char *text_of(const json_t *o, const char *key, const char *fallback) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : fallback;
}

static void describe_source(const json_t *source, strbuf *out) {
    const json_t *tokens = json_object_get(source, "tokens");
    const json_t *weight = json_object_get(source, "weight");
    strbuf_printf(out, "  - data `%s`", text_of(source, "given", text_of(source, "path", "?")));
    if (json_is_number(weight)) strbuf_printf(out, ", weight %g", json_number_value(weight));
    if (json_is_integer(tokens))
        strbuf_printf(out, ", %lld token%s", (long long)json_integer_value(tokens),
                      text_s(json_integer_value(tokens)));
    strbuf_printf(out, ", digest %s\n", text_of(source, "fingerprint", "unknown"));
}

static void describe_stage(const json_t *stage, strbuf *out) {
    size_t i;
    json_t *source;
    strbuf_printf(out, "- %s, steps %lld to %lld, objective %s\n", text_of(stage, "name", "stage"),
                  (long long)json_integer_value(json_object_get(stage, "first_step")),
                  (long long)json_integer_value(json_object_get(stage, "last_step")),
                  text_of(stage, "objective", "lm"));
    json_array_foreach(json_object_get(stage, "sources"), i, source) describe_source(source, out);
}

static void describe_run(const json_t *run, strbuf *out) {
    size_t i;
    json_t *stage;
    strbuf_printf(out, "Trained for %lld step%s, %lld tokens.\n\n",
                  (long long)json_integer_value(json_object_get(run, "steps")),
                  text_s(json_integer_value(json_object_get(run, "steps"))),
                  (long long)json_integer_value(json_object_get(run, "tokens")));
    json_array_foreach(json_object_get(run, "stages"), i, stage) describe_stage(stage, out);
}

enum { MOST_GENERATIONS = 16 };

static void describe_at(const json_t *ledger, int depth, strbuf *out) {
    const json_t *run = json_object_get(ledger, "run");
    size_t i;
    json_t *parent;
    if (json_is_object(run)) describe_run(run, out);
    json_array_foreach(json_object_get(ledger, "parents"), i, parent) {
        const json_t *own = json_object_get(parent, "ledger");
        strbuf_printf(out, "\n%s: `%s`, digest %s", text_of(parent, "role", "parent"),
                      text_of(parent, "path", "?"), text_of(parent, "digest", "unknown"));
        const json_t *weight = json_object_get(parent, "weight");
        if (json_is_number(weight)) strbuf_printf(out, ", weight %g", json_number_value(weight));
        strbuf_puts(out, json_is_object(own) ? ". Of it:\n\n" : ".\n");
        if (depth < MOST_GENERATIONS) describe_at(own, depth + 1, out);
    }
}

void ledger_describe(const json_t *ledger, strbuf *out) {
    describe_at(ledger, 0, out);
}
