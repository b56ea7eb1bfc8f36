/* tokenizer_config.json, and beside it special_tokens_map.json and chat_template.jinja: read, and
 * written as transformers expects them.
 *
 * A config that was read is kept with all its keys; one that is made names the special tokens by
 * their part and lists the added ones with their flags. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/format/format.h"

/* ---- reading ---- */

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
        return err_at(in->e, ST_FORMAT, key,
                      "%stokenizer_config.json: %s names \"%.80s\", which is not in the vocabulary",
                      in->dir, key, name ? name : "no token");
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

/* ---- writing: tokens ---- */

static int32_t padding_token(const tok *t) {
    if (t->source && t->source->pad) return tok_id(t, t->source->pad);
    static const char *const NAMES[] = {"<pad>", "[PAD]", "<|pad|>", "<|padding|>"};
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        int32_t id = tok_id(t, NAMES[i]);
        if (id >= 0 && t->token[id].special) return id;
    }
    return -1;
}

/* The tokens of BERT have parts of their own in transformers. */
static int32_t special_named(const tok *t, const char *name) {
    int32_t id = tok_id(t, name);
    return id >= 0 && t->token[id].special ? id : -1;
}

static json_t *special_tokens(const tok *t) {
    const struct {
        const char *key;
        int32_t id;
    } parts[] = {{"bos_token", t->bos},
                 {"eos_token", t->eos},
                 {"unk_token", t->unk},
                 {"pad_token", padding_token(t)},
                 {"cls_token", special_named(t, "[CLS]")},
                 {"sep_token", special_named(t, "[SEP]")},
                 {"mask_token", special_named(t, "[MASK]")}};
    json_t *j = json_object(), *more = json_array();
    for (int i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].id < 0) continue;
        json_object_set_new(j, parts[i].key, json_string(t->token[parts[i].id].text));
    }
    for (int32_t id = 0; id < t->n_token; id++) {
        bool other = t->token[id].special;
        for (int i = 0; i < ARRAY_LEN(parts); i++) other = other && parts[i].id != id;
        if (other) json_array_append_new(more, json_string(t->token[id].text));
    }
    if (json_array_size(more) > 0) json_object_set(j, "additional_special_tokens", more);
    json_decref(more);
    return j;
}

/* The added tokens of the tokenizer.json by their id, with their flags. */
static json_t *added_tokens_decoder(const tok *t) {
    json_t *table = json_object(), *token;
    json_t *root = json_loadb(t->json, t->json_len, 0, NULL);
    size_t i;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token) {
        char id[32];
        snprintf(id, sizeof(id), "%lld", json_integer_value(json_object_get(token, "id")));
        json_object_del(token, "id");
        json_object_set(table, id, token);
    }
    json_decref(root);
    return table;
}

static json_t *made_config(const tok *t) {
    json_t *config = special_tokens(t);
    json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    json_object_set_new(config, "clean_up_tokenization_spaces", json_false());
    json_object_set_new(config, "add_bos_token",
                        json_boolean(t->post.n_prefix > 0 && t->post.prefix[0] == t->bos));
    json_object_set_new(config, "added_tokens_decoder", added_tokens_decoder(t));
    return config;
}

/* ---- writing: files ---- */

static status write_json(const char *path, const json_t *j, err *e) {
    char *text = json_dumps(j, JSON_INDENT(2));
    CHECK(text, "%s holds text that is not UTF-8", path);
    status st = file_write_atomic(path, text, strlen(text), e);
    free(text);
    return st;
}

static json_t *config_of(const tok *t) {
    const struct tok_source *s = t->source;
    json_t *kept = s && s->config ? json_loads(s->config, 0, NULL) : NULL;
    json_t *config = kept ? kept : made_config(t);
    if (s && s->chat_template) {
        json_object_set_new(config, "chat_template", json_string(s->chat_template));
    }
    return config;
}

/* The map agrees with the config about what ends a text. */
static json_t *special_map(const tok *t, const json_t *config) {
    json_t *map = special_tokens(t);
    const char *eos = tok_config_token(config, "eos_token");
    if (eos) json_object_set_new(map, "eos_token", json_string(eos));
    return map;
}

static status write_files(arena *a, const tok *t, const char *dir, const json_t *config, err *e) {
    const json_t *template = json_object_get(config, "chat_template");
    TRY(write_json(path_join(a, dir, "tokenizer_config.json"), config, e));
    json_t *map = special_map(t, config);
    status st = write_json(path_join(a, dir, "special_tokens_map.json"), map, e);
    json_decref(map);
    if (st != ST_OK || !json_is_string(template)) return st;
    return file_write_atomic(path_join(a, dir, "chat_template.jinja"), json_string_value(template),
                             json_string_length(template), e);
}

status tok_config_write(const tok *t, const char *dir, int64_t model_max_length, json_t *extra,
                        err *e) {
    json_t *config = config_of(t);
    if (extra) json_object_update(config, extra);
    json_decref(extra);
    if (model_max_length > 0) {
        json_object_set_new(config, "model_max_length", json_integer(model_max_length));
    }
    arena *a = arena_new("tokenizer paths");
    status st = write_files(a, t, dir, config, e);
    json_decref(config);
    arena_free(a);
    return st;
}

/* ---- following another tokenizer ---- */

void tok_config_follow(tok *t, const tok *from) {
    const struct tok_source *old = from->source;
    if (!old) return;
    struct tok_source *s = t->source = ARENA_NEW(t->mem, struct tok_source);
    if (old->chat_template) s->chat_template = arena_strdup(t->mem, old->chat_template);
    if (old->pad && tok_id(t, old->pad) >= 0) s->pad = arena_strdup(t->mem, old->pad);
    if (!old->config) return;
    json_t *config = json_loads(old->config, 0, NULL);
    json_object_set_new(config, "added_tokens_decoder", added_tokens_decoder(t));
    char *text = json_dumps(config, JSON_COMPACT);
    CHECK(text, "a config that was read does not make JSON");
    s->config = arena_strdup(t->mem, text);
    free(text);
    json_decref(config);
}
