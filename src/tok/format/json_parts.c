/* What stands around the model in a tokenizer.json: normalizer, pre-tokenizer, post-processor,
 * decoder. Each is null, one component, or a Sequence of components. */
#include <stdio.h>
#include <string.h>

#include "tok/format/json.h"

enum { MAX_DEPTH = 4 }; /* Sequences inside Sequences */

typedef status part_fn(tok_reader *r, const json_t *j, const char *path, int depth);

/* Calls `part` on each member of a Sequence, whose array stands under `key`. */
static status each_of(tok_reader *r, const json_t *j, const char *path, const char *key, int depth,
                      part_fn *part) {
    const char *known[] = {"type", key, NULL};
    const json_t *list = json_object_get(j, key), *member;
    size_t i;
    TRY(tok_json_keys(r, j, path, known));
    if (!json_is_array(list)) return tok_bad(r, path, "\"%s\" is not an array", key);
    if (depth >= MAX_DEPTH) return tok_bad(r, path, "sequences are nested too deep");
    json_array_foreach((json_t *)list, i, member) {
        char sub[256];
        snprintf(sub, sizeof(sub), "%.200s.%s[%zu]", path, key, i);
        TRY(part(r, member, sub, depth + 1));
    }
    return ST_OK;
}

static bool absent(const json_t *j) {
    return !j || json_is_null(j);
}

status tok_read_normalizer(tok_reader *r, const json_t *j, const char *path, int depth) {
    static const char *const KNOWN[] = {"type", NULL};
    const char *type;
    if (absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return each_of(r, j, path, "normalizers", depth, tok_read_normalizer);
    }
    if (strcmp(type, "NFC") != 0) {
        return tok_bad(r, path, "type \"%.80s\" is not supported (NFC is)", type);
    }
    r->t->nfc = true;
    return tok_json_keys(r, j, path, KNOWN);
}

/* ---- pre-tokenizer ---- */

static status new_step(tok_reader *r, const char *path, pretok_step s) {
    tok *t = r->t;
    if (r->saw_byte_level) {
        pretok_step_free(&s);
        return tok_bad(r, path, "comes after ByteLevel, which is not supported");
    }
    if (t->n_steps == TOK_MAX_STEPS) {
        pretok_step_free(&s);
        return tok_bad(r, path, "there are more than %d steps", TOK_MAX_STEPS);
    }
    t->step[t->n_steps++] = s;
    return ST_OK;
}

static status read_byte_level(tok_reader *r, const json_t *j, const char *path) {
    static const char *const KNOWN[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    bool prefix, regex;
    TRY(tok_json_keys(r, j, path, KNOWN));
    TRY(tok_json_bool(r, j, path, "add_prefix_space", true, &prefix));
    TRY(tok_json_bool(r, j, path, "use_regex", true, &regex));
    if (prefix) TRY(new_step(r, path, (pretok_step){.kind = PRETOK_PREFIX}));
    if (regex) TRY(new_step(r, path, (pretok_step){.kind = PRETOK_GPT2}));
    if (r->saw_byte_level) return tok_bad(r, path, "ByteLevel stands there twice");
    r->saw_byte_level = true;
    return ST_OK;
}

static status read_behavior(tok_reader *r, const json_t *j, const char *path, pretok_step *s) {
    static const char *const NAMES[] = {[PRETOK_ISOLATED] = "Isolated",
                                        [PRETOK_REMOVED] = "Removed",
                                        [PRETOK_CONTIGUOUS] = "Contiguous",
                                        [PRETOK_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [PRETOK_WITH_NEXT] = "MergedWithNext"};
    const char *name = json_string_value(json_object_get(j, "behavior"));
    for (int i = 0; name && i < ARRAY_LEN(NAMES); i++) {
        if (strcmp(name, NAMES[i]) != 0) continue;
        s->behavior = (pretok_behavior)i;
        return ST_OK;
    }
    return tok_bad(r, path, "\"behavior\" %.40s is not known", name ? name : "(none)");
}

static status read_split(tok_reader *r, const json_t *j, const char *path) {
    static const char *const KNOWN[] = {"type", "pattern", "behavior", "invert", NULL};
    pretok_step s = {.kind = PRETOK_LITERAL};
    TRY(tok_json_keys(r, j, path, KNOWN));
    TRY(tok_json_bool(r, j, path, "invert", false, &s.invert));
    TRY(read_behavior(r, j, path, &s));
    const json_t *pattern = json_object_get(j, "pattern");
    const json_t *literal = json_object_get(pattern, "String");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (json_object_size(pattern) != 1 || !(regex || json_string_length(literal) > 0)) {
        return tok_bad(r, path, "\"pattern\" is neither {\"Regex\"} nor {\"String\"}");
    }
    if (regex) {
        err why = {0};
        if (pretok_step_regex(&s, regex, &why) != ST_OK) {
            return tok_bad(r, path, "%s", why.message);
        }
    } else {
        s.n_literal = json_string_length(literal);
        s.literal = arena_strndup(r->t->mem, json_string_value(literal), s.n_literal);
    }
    return new_step(r, path, s);
}

static status read_digits(tok_reader *r, const json_t *j, const char *path) {
    static const char *const KNOWN[] = {"type", "individual_digits", NULL};
    bool single;
    TRY(tok_json_keys(r, j, path, KNOWN));
    TRY(tok_json_bool(r, j, path, "individual_digits", false, &single));
    return new_step(r, path, (pretok_step){.kind = PRETOK_DIGITS, .max_digits = single});
}

status tok_read_pre_tokenizer(tok_reader *r, const json_t *j, const char *path, int depth) {
    const char *type;
    if (absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return each_of(r, j, path, "pretokenizers", depth, tok_read_pre_tokenizer);
    }
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(r, j, path);
    if (strcmp(type, "Split") == 0) return read_split(r, j, path);
    if (strcmp(type, "Digits") == 0) return read_digits(r, j, path);
    return tok_bad(r, path, "type \"%.80s\" is not supported (ByteLevel, Split, Digits, Sequence)",
                   type);
}

/* ---- post-processor ---- */

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
    if (absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return each_of(r, j, path, "processors", depth, tok_read_post_processor);
    }
    if (strcmp(type, "ByteLevel") == 0) return ST_OK; /* changes offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, j, path);
    return tok_bad(r, path, "type \"%.80s\" is not supported (ByteLevel, TemplateProcessing)",
                   type);
}

/* ---- decoder ---- */

static status read_decoder_part(tok_reader *r, const json_t *j, const char *path, int depth) {
    const char *type;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return each_of(r, j, path, "decoders", depth, read_decoder_part);
    }
    if (strcmp(type, "Fuse") == 0) return ST_OK;
    if (strcmp(type, "ByteLevel") == 0 && r->t->byte_level) return ST_OK;
    return tok_bad(r, path, "type \"%.80s\" does not go with this pre-tokenizer", type);
}

/* Decoding is concatenation of what the tokens stand for; a decoder that would do anything else is
 * refused, and so is none at all, which means spaces between tokens. */
status tok_read_decoder(tok_reader *r, const json_t *j) {
    if (absent(j)) return tok_bad(r, "decoder", "is missing (ByteLevel or Fuse is needed)");
    const char *type;
    TRY(tok_json_type(r, j, "decoder", &type));
    if (r->t->byte_level && strcmp(type, "Fuse") == 0) {
        return tok_bad(r, "decoder", "Fuse does not undo the ByteLevel pre-tokenizer");
    }
    return read_decoder_part(r, j, "decoder", 0);
}
