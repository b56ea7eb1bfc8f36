/* Tokenizer files: loading from a file or folder, and writing.
 *
 * tokenizer.json is kept as it was read and written back byte for byte. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/internal.h"

/* "eos_token" and its like are a string or an object with "content". */
static status config_token(const tok *t, const json_t *config, const char *key, const char *path,
                           int32_t *id, err *e) {
    const json_t *j = json_object_get(config, key);
    if (!j || json_is_null(j)) return ST_OK;
    const char *name = json_string_value(json_is_object(j) ? json_object_get(j, "content") : j);
    int32_t found = name ? tok_id(t, name) : -1;
    if (found < 0) {
        err_set(e, ST_FORMAT, "%s: %s names \"%.80s\", which is not in the vocabulary", path, key,
                name ? name : "no token");
        return err_where(e, "%s", key);
    }
    *id = found;
    return ST_OK;
}

static status read_config(tok *t, const char *path, err *e) {
    char *text;
    size_t len;
    json_error_t je;
    TRY(file_read_all(path, &text, &len, e));
    json_t *config = json_loadb(text, len, 0, &je);
    free(text);
    if (!json_is_object(config)) {
        json_decref(config);
        err_set(e, ST_FORMAT, "%s: not a JSON object: %s", path, je.text);
        return err_where(e, "%s:%d", path, je.line);
    }
    status st = config_token(t, config, "eos_token", path, &t->eos, e);
    if (st == ST_OK) st = config_token(t, config, "bos_token", path, &t->bos, e);
    json_decref(config);
    return st;
}

static status load(arena *a, tok **out, const char *path, err *e) {
    bool dir = file_is_dir(path);
    const char *file = dir ? path_join(a, path, "tokenizer.json") : path;
    char *text;
    size_t len;
    TRY(file_read_all(file, &text, &len, e));
    status st = tok_parse(out, text, len, file, e);
    free(text);
    if (st != ST_OK) return st;
    /* A file under another name does not belong to the config beside it. */
    const char *base = path_base(file);
    if (strcmp(base, "tokenizer.json") != 0) return ST_OK;
    const char *folder = dir ? path : arena_strndup(a, file, (size_t)(base - file));
    const char *config = path_join(a, folder, "tokenizer_config.json");
    return file_exists(config) ? read_config(*out, config, e) : ST_OK;
}

status tok_load(tok **out, const char *path, err *e) {
    *out = NULL;
    arena *a = arena_new("tokenizer paths");
    status st = load(a, out, path, e);
    arena_free(a);
    if (st != ST_OK) {
        tok_free(*out);
        *out = NULL;
    }
    return st;
}

status tok_save_file(const tok *t, const char *path, err *e) {
    return file_write_atomic(path, t->json, t->json_len, e);
}

static status write_json(arena *a, json_t *j, const char *dir, const char *name, err *e) {
    char *text = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    CHECK(text, "%s holds text that is not UTF-8", name);
    status st = file_write_atomic(path_join(a, dir, name), text, strlen(text), e);
    free(text);
    return st;
}

static void set_token(json_t *j, const char *key, const tok *t, int32_t id) {
    if (id >= 0) json_object_set_new(j, key, json_string(t->token[id].text));
}

static json_t *special_tokens(const tok *t) {
    json_t *j = json_object();
    set_token(j, "bos_token", t, t->bos);
    set_token(j, "eos_token", t, t->eos);
    set_token(j, "unk_token", t, t->unk);
    return j;
}

status tok_save_dir(const tok *t, const char *dir, int64_t model_max_length, err *e) {
    status st;
    arena *a = arena_new("tokenizer paths");
    TRY_GOTO(st, file_make_dirs(dir, e), out);
    TRY_GOTO(st, tok_save_file(t, path_join(a, dir, "tokenizer.json"), e), out);
    json_t *config = special_tokens(t);
    json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    json_object_set_new(config, "clean_up_tokenization_spaces", json_false());
    if (model_max_length > 0) {
        json_object_set_new(config, "model_max_length", json_integer(model_max_length));
    }
    TRY_GOTO(st, write_json(a, config, dir, "tokenizer_config.json", e), out);
    TRY_GOTO(st, write_json(a, special_tokens(t), dir, "special_tokens_map.json", e), out);
out:
    arena_free(a);
    return st;
}
