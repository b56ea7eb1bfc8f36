/* Reads the "pre_tokenizer" of a tokenizer.json. */
#include <string.h>

#include "tok/format/json.h"

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
    if (tok_json_absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "pretokenizers", depth, tok_read_pre_tokenizer);
    }
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(r, j, path);
    if (strcmp(type, "Split") == 0) return read_split(r, j, path);
    if (strcmp(type, "Digits") == 0) return read_digits(r, j, path);
    return tok_bad(r, path, "type \"%.80s\" is not supported (ByteLevel, Split, Digits, Sequence)",
                   type);
}
