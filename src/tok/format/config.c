/* Reading tokenizer_config.json; config_write.c writes it. */
#include "tok/format/config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

const char *tok_config_token(const json_t *config, const char *key) {
    const json_t *j = json_object_get(config, key);
    return json_string_value(json_is_object(j) ? json_object_get(j, "content") : j);
}

status tok_config_added(const json_t *config, added_token_fn *each, void *ctx) {
    json_t *table = json_object_get(config, "added_tokens_decoder"), *value;
    const char *key;
    json_object_foreach(table, key, value) {
        const json_t *content = json_object_get(value, "content");
        char *end;
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || !json_is_string(content)) continue;
        bool special = json_is_true(json_object_get(value, "special"));
        TRY(each(ctx, id, json_string_value(content), json_string_length(content), special));
    }
    return ST_OK;
}

/* Python writes integers of any size (a model_max_length of 10^30 means no limit): those beyond 64
 * bits become the largest, in the same place. */
static void clamp_integers(char *text, size_t len) {
    static const char largest[] = "9223372036854775807";
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        size_t n = 0;
        if (text[i] == '"') in_string = !in_string;
        if (in_string && text[i] == '\\') i++;
        if (in_string || !isdigit((unsigned char)text[i])) continue;
        while (i + n < len && isdigit((unsigned char)text[i + n])) n++;
        bool whole = i + n == len || !strchr(".eE", text[i + n]);
        if (whole && (n > 19 || (n == 19 && memcmp(text + i, largest, 19) > 0))) {
            memset(text + i, ' ', n);
            memcpy(text + i, largest, 19);
        }
        i += n - 1;
    }
}

status tok_config_load(const char *path, json_t **out, err *e) {
    char *text;
    size_t len;
    json_error_t je;
    TRY(file_read_part(path, FILE_PART_MAX_BYTES, &text, &len, e));
    clamp_integers(text, len);
    *out = json_loadb(text, len, 0, &je);
    free(text);
    if (json_is_object(*out)) return ST_OK;
    json_decref(*out);
    *out = NULL;
    err_set(e, ST_FORMAT, "%s: not a JSON object: %s", path, je.text);
    return err_where(e, "%s:%d", path, je.line);
}

status tok_config_read(tok_input *in) {
    const char *path = path_join(in->mem, in->dir, "tokenizer_config.json");
    json_t *config = NULL;
    if (!file_exists(path)) return ST_OK;
    status st = tok_config_load(path, &config, in->e);
    in->config = config;
    return st;
}

/* "eos_token" and its like are a string or an object with "content". */
static status apply_token(const tok_input *in, const tok *t, const char *key, int32_t *id) {
    const json_t *j = json_object_get(in->config, key);
    if (!j || json_is_null(j)) return ST_OK;
    const char *name = tok_config_token(in->config, key);
    int32_t found = name ? tok_id(t, name) : -1;
    if (found < 0) {
        err_set(in->e, ST_FORMAT,
                "%stokenizer_config.json: %s names \"%.80s\", which is not in the vocabulary",
                in->dir, key, name ? name : "no token");
        return err_where(in->e, "%s", key);
    }
    *id = found;
    return ST_OK;
}

/* In a file of its own, or a string in the config; else what the format itself holds stays. */
static status read_template(const tok_input *in, tok *t, const char **text) {
    const char *path = path_join(in->mem, in->dir, "chat_template.jinja");
    const json_t *j = json_object_get(in->config, "chat_template");
    char *file;
    size_t len;
    if (json_is_string(j)) *text = arena_strdup(t->mem, json_string_value(j));
    if (!in->config || !file_exists(path)) return ST_OK;
    TRY(file_read_part(path, FILE_PART_MAX_BYTES, &file, &len, in->e));
    *text = arena_strndup(t->mem, file, len);
    free(file);
    return ST_OK;
}

status tok_config_apply(const tok_input *in, tok_format f, tok *t) {
    struct tok_source *s = t->source;
    if (!s) s = t->source = ARENA_NEW(t->mem, struct tok_source);
    s->format = f;
    TRY(apply_token(in, t, "eos_token", &t->eos));
    TRY(apply_token(in, t, "bos_token", &t->bos));
    TRY(read_template(in, t, &s->chat_template));
    if (!in->config) return ST_OK;
    const char *pad = tok_config_token(in->config, "pad_token");
    if (pad && tok_id(t, pad) >= 0) s->pad = arena_strdup(t->mem, pad);
    char *text = json_dumps(in->config, JSON_COMPACT);
    CHECK(text, "a config that was read does not make JSON");
    s->config = arena_strdup(t->mem, text);
    free(text);
    return ST_OK;
}
