/* Reads the "post_processor" of a tokenizer.json. */
#include <string.h>

#include "tok/format/json.h"

/* Appends the ids that a template's special token stands for. */
static status add_template_ids(tok_reader *r, const json_t *specials, const char *name,
                               const char *path, int32_t *ids, int *n) {
    const json_t *list = json_object_get(json_object_get(specials, name), "ids"), *id;
    size_t i;
    if (!json_is_array(list)) return tok_bad(r, path, "special token \"%.60s\" has no ids", name);
    json_array_foreach((json_t *)list, i, id) {
        json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
        if (v < 0 || v >= r->t->n_token || !r->t->token[v].text) {
            return tok_bad(r, path, "special token \"%.60s\" has an id outside the vocabulary",
                           name);
        }
        if (*n == TOK_MAX_TEMPLATE) return tok_bad(r, path, "adds too many tokens");
        ids[(*n)++] = (int32_t)v;
    }
    return ST_OK;
}

static status read_template(tok_reader *r, const json_t *j, const char *path) {
    static const char *const KNOWN[] = {"type", "single", "pair", "special_tokens", NULL};
    tok *t = r->t;
    const json_t *single = json_object_get(j, "single"), *item;
    bool saw_text = false;
    size_t i;
    TRY(tok_json_keys(r, j, path, KNOWN));
    if (t->prefix) return tok_bad(r, path, "is a second template");
    if (!json_is_array(single)) return tok_bad(r, path, "\"single\" is not an array");
    t->prefix = ARENA_ARRAY(t->mem, int32_t, TOK_MAX_TEMPLATE);
    t->suffix = ARENA_ARRAY(t->mem, int32_t, TOK_MAX_TEMPLATE);
    json_array_foreach((json_t *)single, i, item) {
        const char *name =
            json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (name) {
            TRY(add_template_ids(r, json_object_get(j, "special_tokens"), name, path,
                                 saw_text ? t->suffix : t->prefix,
                                 saw_text ? &t->n_suffix : &t->n_prefix));
        } else if (json_object_get(item, "Sequence") && !saw_text) {
            saw_text = true;
        } else {
            return tok_bad(r, path, "\"single\"[%zu] is not a SpecialToken or the one Sequence", i);
        }
    }
    return saw_text ? ST_OK : tok_bad(r, path, "\"single\" has no Sequence");
}

status tok_read_post_processor(tok_reader *r, const json_t *j, const char *path, int depth) {
    const char *type;
    if (tok_json_absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "processors", depth, tok_read_post_processor);
    }
    if (strcmp(type, "ByteLevel") == 0) return ST_OK; /* changes offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, j, path);
    return tok_bad(r, path, "type \"%.80s\" is not supported (ByteLevel, TemplateProcessing)",
                   type);
}
