/* Reads the "post_processor" of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include "tok/format/json.h"

/* ---- ids around a text ---- */

static status check_id(tok_reader *r, const json_t *id, const char *path, const char *name,
                       int32_t *out) {
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v < 0 || v >= r->t->n_token || !r->t->token[v].text) {
        return tok_bad(r, path, "special token \"%.60s\" has an id outside the vocabulary", name);
    }
    *out = (int32_t)v;
    return ST_OK;
}

/* A list of ids in the making. */
typedef struct id_list {
    int32_t id[TOK_MAX_TEMPLATE];
    int n;
} id_list;

static status add_id(tok_reader *r, const char *path, int32_t id, id_list *list) {
    if (list->n == TOK_MAX_TEMPLATE) return tok_bad(r, path, "adds too many tokens");
    list->id[list->n++] = id;
    return ST_OK;
}

static int32_t *joined(tok *t, const int32_t *a, int n_a, const int32_t *b, int n_b) {
    int32_t *ids = ARENA_ARRAY(t->mem, int32_t, n_a + n_b);
    if (n_a > 0) memcpy(ids, a, sizeof(*ids) * (size_t)n_a);
    if (n_b > 0) memcpy(ids + n_a, b, sizeof(*ids) * (size_t)n_b);
    return ids;
}

/* What a later processor adds stands outside of what is there. */
static status put_around(tok_reader *r, const char *path, const id_list *before,
                         const id_list *after) {
    tok *t = r->t;
    tok_post *p = &t->post;
    if (p->has_template) return tok_bad(r, path, "comes after a template, which adds ids already");
    if (p->n_prefix + before->n > TOK_MAX_TEMPLATE || p->n_suffix + after->n > TOK_MAX_TEMPLATE) {
        return tok_bad(r, path, "adds too many tokens");
    }
    p->prefix = joined(t, before->id, before->n, p->prefix, p->n_prefix);
    p->suffix = joined(t, p->suffix, p->n_suffix, after->id, after->n);
    p->n_prefix += before->n;
    p->n_suffix += after->n;
    return ST_OK;
}

/* ---- TemplateProcessing ---- */

/* Appends the ids that a template's special token stands for. */
static status add_template_ids(tok_reader *r, const json_t *specials, const char *name,
                               const char *path, id_list *list) {
    const json_t *special = json_object_get(specials, name), *id;
    const json_t *ids = json_object_get(special, "ids"),
                 *tokens = json_object_get(special, "tokens");
    int32_t v = -1;
    size_t i;
    if (!json_is_array(ids)) return tok_bad(r, path, "special token \"%.60s\" has no ids", name);
    TRY(tok_json_keys(r, special, path, "id ids tokens"));
    if (tokens && json_array_size(tokens) != json_array_size(ids)) {
        return tok_bad(r, path, "special token \"%.60s\" has not as many tokens as ids", name);
    }
    json_array_foreach((json_t *)ids, i, id) {
        TRY(check_id(r, id, path, name, &v));
        TRY(add_id(r, path, v, list));
    }
    return ST_OK;
}

static status check_piece(tok_reader *r, const json_t *piece, const char *path) {
    const json_t *type = json_object_get(piece, "type_id");
    TRY(tok_json_keys(r, piece, path, "id type_id"));
    if (!json_string_value(json_object_get(piece, "id"))) return tok_bad(r, path, "has no \"id\"");
    bool ok = !type || (json_is_integer(type) && json_integer_value(type) >= 0);
    return ok ? ST_OK : tok_bad(r, path, "\"type_id\" is not a number");
}

/* One template: special tokens before its first text, after it, and how often each text stands
 * there. */
typedef struct template_parts {
    id_list before, after;
    int n_a, n_b;
} template_parts;

static status read_piece(tok_reader *r, const json_t *j, const json_t *item, const char *path,
                         template_parts *parts) {
    const json_t *special = json_object_get(item, "SpecialToken");
    const json_t *text = json_object_get(item, "Sequence");
    if (json_object_size(item) != 1 || !(special || text)) {
        return tok_bad(r, path, "has a part that is neither SpecialToken nor Sequence");
    }
    TRY(check_piece(r, special ? special : text, path));
    const char *name = json_string_value(json_object_get(special ? special : text, "id"));
    if (special) {
        bool before = parts->n_a + parts->n_b == 0;
        return add_template_ids(r, json_object_get(j, "special_tokens"), name, path,
                                before ? &parts->before : &parts->after);
    }
    parts->n_a += strcmp(name, "A") == 0;
    parts->n_b += strcmp(name, "B") == 0;
    bool known = strcmp(name, "A") == 0 || strcmp(name, "B") == 0;
    return known ? ST_OK : tok_bad(r, path, "Sequence \"%.40s\" is neither A nor B", name);
}

static status read_parts(tok_reader *r, const json_t *j, const char *path, const char *key,
                         template_parts *parts) {
    const json_t *list = json_object_get(j, key), *item;
    char sub[256];
    size_t i;
    snprintf(sub, sizeof(sub), "%.200s.%s", path, key);
    if (!json_is_array(list)) return tok_bad(r, path, "\"%s\" is not an array", key);
    json_array_foreach((json_t *)list, i, item) TRY(read_piece(r, j, item, sub, parts));
    return ST_OK;
}

static status read_template(tok_reader *r, const json_t *j, const char *path) {
    template_parts single = {.n_a = 0}, pair = {.n_a = 0};
    TRY(tok_json_keys(r, j, path, "type single pair special_tokens"));
    TRY(read_parts(r, j, path, "single", &single));
    if (single.n_a != 1 || single.n_b != 0) {
        return tok_bad(r, path, "\"single\" does not have its text, Sequence A, once");
    }
    if (!tok_json_absent(json_object_get(j, "pair"))) {
        TRY(read_parts(r, j, path, "pair", &pair));
        if (pair.n_a == 0 || pair.n_b == 0) {
            return tok_bad(r, path, "\"pair\" does not have both texts");
        }
    }
    TRY(put_around(r, path, &single.before, &single.after));
    r->t->post.has_template = true;
    return ST_OK;
}

/* ---- the others ---- */

static status read_trim(tok_reader *r, const json_t *j, const char *path) {
    tok_post *p = &r->t->post;
    bool trim, prefix;
    TRY(tok_json_bool(r, j, path, "trim_offsets", true, &trim));
    TRY(tok_json_bool(r, j, path, "add_prefix_space", true, &prefix));
    if (!trim) return ST_OK;
    if (p->n_trims == POST_MAX_TRIMS) return tok_bad(r, path, "there are too many steps");
    /* A template keeps the text apart from what it adds. */
    p->trim[p->n_trims++] = (post_trim){prefix, p->n_prefix > 0 && !p->has_template};
    return ST_OK;
}

static status read_byte_level(tok_reader *r, const json_t *j, const char *path) {
    TRY(tok_json_keys(r, j, path, "type add_prefix_space trim_offsets use_regex"));
    return read_trim(r, j, path);
}

/* ["[SEP]", 102] */
static status read_pair(tok_reader *r, const json_t *j, const char *path, const char *key,
                        id_list *list) {
    const json_t *pair = json_object_get(j, key);
    const char *name = json_string_value(json_array_get(pair, 0));
    int32_t id = -1;
    if (json_array_size(pair) != 2 || !name) {
        return tok_bad(r, path, "\"%s\" is not [token, id]", key);
    }
    TRY(check_id(r, json_array_get(pair, 1), path, name, &id));
    return add_id(r, path, id, list);
}

static status read_cls_sep(tok_reader *r, const json_t *j, const char *path) {
    id_list before = {.n = 0}, after = {.n = 0};
    TRY(read_pair(r, j, path, "cls", &before));
    TRY(read_pair(r, j, path, "sep", &after));
    return put_around(r, path, &before, &after);
}

static status read_bert(tok_reader *r, const json_t *j, const char *path) {
    TRY(tok_json_keys(r, j, path, "type sep cls"));
    return read_cls_sep(r, j, path);
}

static status read_roberta(tok_reader *r, const json_t *j, const char *path) {
    TRY(tok_json_keys(r, j, path, "type sep cls trim_offsets add_prefix_space"));
    TRY(read_trim(r, j, path));
    return read_cls_sep(r, j, path);
}

status tok_read_post_processor(tok_reader *r, const json_t *j, const char *path, int depth) {
    static const struct {
        const char *type;
        status (*read)(tok_reader *r, const json_t *j, const char *path);
    } KINDS[] = {
        {"ByteLevel", read_byte_level},
        {"TemplateProcessing", read_template},
        {"BertProcessing", read_bert},
        {"RobertaProcessing", read_roberta},
    };
    const char *type;
    if (tok_json_absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "processors", depth, tok_read_post_processor);
    }
    for (int i = 0; i < ARRAY_LEN(KINDS); i++) {
        if (strcmp(type, KINDS[i].type) == 0) return KINDS[i].read(r, j, path);
    }
    return tok_bad(r, path, "type \"%.80s\" is not known", type);
}
