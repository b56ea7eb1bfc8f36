/* Reads the "pre_tokenizer" of a tokenizer.json.
 *
 * ByteLevel's alphabet is no step but a flag: the model works on raw bytes. Only where another step
 * comes after it (Falcon) are the characters of the alphabet really made, and unmade at the end. */
#include <string.h>

#include "base/utf8.h"
#include "tok/format/json.h"

static status add_step(tok_reader *r, const char *path, pretok_step s) {
    tok *t = r->t;
    if (t->n_steps == TOK_MAX_STEPS) {
        pretok_step_free(&s);
        return tok_bad(r, path, "there are more than %d steps", TOK_MAX_STEPS);
    }
    t->step[t->n_steps++] = s;
    return ST_OK;
}

static status new_step(tok_reader *r, const char *path, pretok_step s) {
    if (r->byte_level_last && add_step(r, path, (pretok_step){.kind = PRETOK_ALPHABET}) != ST_OK) {
        pretok_step_free(&s);
        return ST_FORMAT;
    }
    r->byte_level_last = false;
    return add_step(r, path, s);
}

/* The end of the whole pre-tokenizer: the model wants bytes again. */
static status close_alphabet(tok_reader *r, const char *path) {
    const tok *t = r->t;
    if (!r->saw_byte_level || r->byte_level_last) return ST_OK;
    for (int i = t->n_steps - 1; t->step[i].kind != PRETOK_ALPHABET; i--) {
        if (t->step[i].kind != PRETOK_METASPACE) continue;
        return tok_bad(r, path, "Metaspace after ByteLevel is not supported");
    }
    return add_step(r, path, (pretok_step){.kind = PRETOK_BYTES});
}

static status no_options(tok_reader *r, const json_t *j, const char *path) {
    return tok_json_keys(r, j, path, "type");
}

static status find_step(tok_reader *r, const char *path, pretok_find_fn *find,
                        pretok_behavior behavior) {
    pretok_step s = {.kind = PRETOK_FIND, .find = find, .behavior = behavior};
    return new_step(r, path, s);
}

/* ---- the types ---- */

static status read_byte_level(tok_reader *r, const json_t *j, const char *path) {
    bool prefix, regex;
    TRY(tok_json_keys(r, j, path, "type add_prefix_space trim_offsets use_regex"));
    TRY(tok_json_bool(r, j, path, "add_prefix_space", true, &prefix));
    TRY(tok_json_bool(r, j, path, "use_regex", true, &regex));
    if (prefix) TRY(new_step(r, path, (pretok_step){.kind = PRETOK_PREFIX}));
    if (regex) {
        pretok_step s = {.kind = PRETOK_COVER, .end = pretok_gpt2_end};
        TRY(new_step(r, path, s));
    }
    if (r->byte_level_last) TRY(add_step(r, path, (pretok_step){.kind = PRETOK_ALPHABET}));
    r->saw_byte_level = r->byte_level_last = true;
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
    pretok_step s = {0}, how = {0};
    TRY(tok_json_keys(r, j, path, "type pattern behavior invert"));
    TRY(tok_json_bool(r, j, path, "invert", false, &how.invert));
    TRY(read_behavior(r, j, path, &how));
    const json_t *pattern = json_object_get(j, "pattern");
    const json_t *literal = json_object_get(pattern, "String");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (json_object_size(pattern) != 1 || !(regex || json_is_string(literal))) {
        return tok_bad(r, path, "\"pattern\" is neither {\"Regex\"} nor {\"String\"}");
    }
    if (!regex && json_string_length(literal) == 0) regex = "";
    if (regex) {
        err why = {0};
        if (pretok_step_regex(&s, regex, &why) != ST_OK) {
            return tok_bad(r, path, "%s", why.message);
        }
    } else {
        s.kind = PRETOK_LITERAL;
        s.n_literal = json_string_length(literal);
        s.literal = arena_strndup(r->t->mem, json_string_value(literal), s.n_literal);
    }
    s.behavior = how.behavior;
    s.invert = how.invert;
    return new_step(r, path, s);
}

static status read_digits(tok_reader *r, const json_t *j, const char *path) {
    bool single;
    TRY(tok_json_keys(r, j, path, "type individual_digits"));
    TRY(tok_json_bool(r, j, path, "individual_digits", false, &single));
    return find_step(r, path, pretok_find_number, single ? PRETOK_ISOLATED : PRETOK_CONTIGUOUS);
}

static status read_punctuation(tok_reader *r, const json_t *j, const char *path) {
    pretok_step s = {.kind = PRETOK_FIND, .find = pretok_find_punct};
    TRY(tok_json_keys(r, j, path, "type behavior"));
    if (json_object_get(j, "behavior")) TRY(read_behavior(r, j, path, &s));
    return new_step(r, path, s);
}

/* Keeps the matches of a pattern and drops what lies between. */
static status word_step(tok_reader *r, const json_t *j, const char *path, pretok_find_fn *find) {
    pretok_step s = {.kind = PRETOK_FIND, .find = find, .behavior = PRETOK_REMOVED, .invert = true};
    TRY(no_options(r, j, path));
    return new_step(r, path, s);
}

static status read_bert(tok_reader *r, const json_t *j, const char *path) {
    return word_step(r, j, path, pretok_find_bert_words);
}

static status read_whitespace(tok_reader *r, const json_t *j, const char *path) {
    return word_step(r, j, path, pretok_find_words);
}

static status read_whitespace_split(tok_reader *r, const json_t *j, const char *path) {
    return word_step(r, j, path, pretok_find_unspaced);
}

/* The string j[key], which is one character, into the literal of a step. */
static status read_char(tok_reader *r, const json_t *j, const char *path, const char *key,
                        pretok_step *s) {
    const json_t *value = json_object_get(j, key);
    size_t n = json_string_length(value);
    const char *text = json_string_value(value);
    if (n == 0 || utf8_size(text[0]) != n) {
        return tok_bad(r, path, "\"%s\" is not one character", key);
    }
    s->literal = arena_strndup(r->t->mem, text, n);
    s->n_literal = n;
    return ST_OK;
}

static status read_delimiter(tok_reader *r, const json_t *j, const char *path) {
    pretok_step s = {.kind = PRETOK_LITERAL, .behavior = PRETOK_REMOVED};
    TRY(tok_json_keys(r, j, path, "type delimiter"));
    TRY(read_char(r, j, path, "delimiter", &s));
    return new_step(r, path, s);
}

/* Files of before "prepend_scheme" have "add_prefix_space". */
static status read_prepend(tok_reader *r, const json_t *j, const char *path, pretok_step *s) {
    static const char *const NAMES[] = {
        [PRETOK_ALWAYS] = "always", [PRETOK_FIRST] = "first", [PRETOK_NEVER] = "never"};
    const json_t *scheme = json_object_get(j, "prepend_scheme");
    bool prefix;
    TRY(tok_json_bool(r, j, path, "add_prefix_space", true, &prefix));
    s->prepend = prefix ? PRETOK_ALWAYS : PRETOK_NEVER;
    if (!scheme) return ST_OK;
    const char *name = json_string_value(scheme);
    int i = 0;
    while (name && i < ARRAY_LEN(NAMES) && strcmp(name, NAMES[i]) != 0) i++;
    if (!name || i == ARRAY_LEN(NAMES)) {
        return tok_bad(r, path, "\"prepend_scheme\" %.40s is not known", name ? name : "");
    }
    s->prepend = (pretok_prepend)i;
    if (prefix || s->prepend == PRETOK_NEVER) return ST_OK;
    return tok_bad(r, path, "\"add_prefix_space\" and \"prepend_scheme\" contradict each other");
}

static status read_metaspace(tok_reader *r, const json_t *j, const char *path) {
    pretok_step s = {.kind = PRETOK_METASPACE};
    bool cut;
    TRY(tok_json_keys(r, j, path,
                      "type replacement add_prefix_space prepend_scheme split "
                      "str_rep"));
    TRY(read_char(r, j, path, "replacement", &s));
    TRY(read_prepend(r, j, path, &s));
    TRY(tok_json_bool(r, j, path, "split", true, &cut));
    TRY(new_step(r, path, s));
    if (!cut) return ST_OK;
    s.kind = PRETOK_LITERAL;
    s.behavior = PRETOK_WITH_NEXT;
    return new_step(r, path, s);
}

static status read_scripts(tok_reader *r, const json_t *j, const char *path) {
    TRY(no_options(r, j, path));
    return new_step(r, path, (pretok_step){.kind = PRETOK_SCRIPTS});
}

static status read_fixed_length(tok_reader *r, const json_t *j, const char *path) {
    const json_t *length = json_object_get(j, "length");
    TRY(tok_json_keys(r, j, path, "type length"));
    if (length && (!json_is_integer(length) || json_integer_value(length) < 1)) {
        return tok_bad(r, path, "\"length\" is not a whole number from 1");
    }
    pretok_step s = {.kind = PRETOK_FIXED,
                     .length = length ? (size_t)json_integer_value(length) : 5};
    return new_step(r, path, s);
}

/* ---- the whole ---- */

static status read_sequence(tok_reader *r, const json_t *j, const char *path, int depth);

static status read_part(tok_reader *r, const json_t *j, const char *path, int depth) {
    static const struct {
        const char *type;
        status (*read)(tok_reader *r, const json_t *j, const char *path);
    } TYPES[] = {
        {"ByteLevel", read_byte_level},
        {"Split", read_split},
        {"Digits", read_digits},
        {"Metaspace", read_metaspace},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
        {"Punctuation", read_punctuation},
        {"BertPreTokenizer", read_bert},
        {"CharDelimiterSplit", read_delimiter},
        {"UnicodeScripts", read_scripts},
        {"FixedLength", read_fixed_length},
    };
    const char *type;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) return read_sequence(r, j, path, depth);
    for (int i = 0; i < ARRAY_LEN(TYPES); i++) {
        if (strcmp(type, TYPES[i].type) == 0) return TYPES[i].read(r, j, path);
    }
    return tok_bad(r, path, "type \"%.80s\" is not known", type);
}

static status read_sequence(tok_reader *r, const json_t *j, const char *path, int depth) {
    return tok_json_each(r, j, path, "pretokenizers", depth, read_part);
}

status tok_read_pre_tokenizer(tok_reader *r, const json_t *j, const char *path, int depth) {
    if (tok_json_absent(j)) return ST_OK;
    TRY(read_part(r, j, path, depth));
    return close_alphabet(r, path);
}
