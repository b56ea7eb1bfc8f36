/* Writing tokenizer_config.json, special_tokens_map.json and chat_template.jinja, as transformers
 * expects them.
 *
 * A config that was read is kept with all its keys; one that is made names the special tokens by
 * their part and lists the added ones with their flags. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tok/format/config.h"

static status write_json(const char *path, json_t *j, err *e) {
    char *text = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    CHECK(text, "%s holds text that is not UTF-8", path);
    status st = file_write_atomic(path, text, strlen(text), e);
    free(text);
    return st;
}

/* ---- tokens ---- */

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

/* ---- files ---- */

static json_t *config_of(const tok *t) {
    const struct tok_source *s = t->source;
    json_t *kept = s && s->config ? json_loads(s->config, 0, NULL) : NULL;
    json_t *config = kept ? kept : made_config(t);
    if (s && s->chat_template) {
        json_object_set_new(config, "chat_template", json_string(s->chat_template));
    }
    return config;
}

static status write_files(arena *a, const tok *t, const char *dir, json_t *config, err *e) {
    const struct tok_source *s = t->source;
    TRY(write_json(path_join(a, dir, "tokenizer_config.json"), config, e));
    TRY(write_json(path_join(a, dir, "special_tokens_map.json"), special_tokens(t), e));
    if (!s || !s->chat_template) return ST_OK;
    return file_write_atomic(path_join(a, dir, "chat_template.jinja"), s->chat_template,
                             strlen(s->chat_template), e);
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
    arena_free(a);
    return st;
}
