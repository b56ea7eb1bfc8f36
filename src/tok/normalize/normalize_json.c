/* Reads the "normalizer" of a tokenizer.json. BertNormalizer is several steps here. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/json.h"
#include "tok/text/base64.h"

/* What is put in place of something; far above any published normalizer. */
enum { MAX_CONTENT_BYTES = 4096 };

static status new_step(tok_reader *r, const char *path, norm_step s) {
    tok *t = r->t;
    if (t->n_norm == TOK_MAX_STEPS) {
        norm_step_free(&s);
        return tok_bad(r, path, "there are more than %d steps", TOK_MAX_STEPS);
    }
    t->norm[t->n_norm++] = s;
    return ST_OK;
}

/* obj[key] as a string that stays. */
static status read_content(tok_reader *r, const json_t *obj, const char *path, const char *key,
                           const char **s, size_t *n) {
    const json_t *j = json_object_get(obj, key);
    if (!json_is_string(j)) return tok_bad(r, path, "\"%s\" is not a string", key);
    *n = json_string_length(j);
    if (*n > MAX_CONTENT_BYTES) {
        return tok_bad(r, path, "\"%s\" has %zu bytes, more than %d", key, *n, MAX_CONTENT_BYTES);
    }
    *s = arena_strndup(r->t->mem, json_string_value(j), *n);
    return ST_OK;
}

/* ---- the types ---- */

static status read_plain(tok_reader *r, const json_t *j, const char *path, norm_kind kind) {
    TRY(tok_json_keys(r, j, path, "type"));
    return new_step(r, path, (norm_step){.kind = kind});
}

static status read_strip(tok_reader *r, const json_t *j, const char *path) {
    norm_step s = {.kind = NORM_STRIP};
    TRY(tok_json_keys(r, j, path, "type strip_left strip_right"));
    TRY(tok_json_bool(r, j, path, "strip_left", true, &s.left));
    TRY(tok_json_bool(r, j, path, "strip_right", true, &s.right));
    return new_step(r, path, s);
}

static status read_prepend(tok_reader *r, const json_t *j, const char *path) {
    norm_step s = {.kind = NORM_PREPEND};
    TRY(tok_json_keys(r, j, path, "type prepend"));
    TRY(read_content(r, j, path, "prepend", &s.content, &s.n_content));
    return new_step(r, path, s);
}

static status read_replace(tok_reader *r, const json_t *j, const char *path) {
    norm_step s = {.kind = NORM_REPLACE_LITERAL};
    TRY(tok_json_keys(r, j, path, "type pattern content"));
    TRY(read_content(r, j, path, "content", &s.content, &s.n_content));
    const json_t *pattern = json_object_get(j, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    bool literal = json_is_string(json_object_get(pattern, "String"));
    if (json_object_size(pattern) != 1 || !(regex || literal)) {
        return tok_bad(r, path, "\"pattern\" is neither {\"Regex\"} nor {\"String\"}");
    }
    if (literal) TRY(read_content(r, pattern, path, "String", &s.pattern, &s.n_pattern));
    if (literal && s.n_pattern > 0) return new_step(r, path, s);
    /* An empty string is found between all characters, as an empty pattern is. */
    err why = {0};
    s.kind = NORM_REPLACE_REGEX;
    if (pretok_regex_compile(&s.regex, regex ? regex : "", &why) != ST_OK) {
        return tok_bad(r, path, "%s", why.message);
    }
    return new_step(r, path, s);
}

static status read_bert(tok_reader *r, const json_t *j, const char *path) {
    bool clean, chinese, strip, lower;
    TRY(tok_json_keys(r, j, path, "type clean_text handle_chinese_chars strip_accents lowercase"));
    TRY(tok_json_bool(r, j, path, "clean_text", true, &clean));
    TRY(tok_json_bool(r, j, path, "handle_chinese_chars", true, &chinese));
    TRY(tok_json_bool(r, j, path, "lowercase", true, &lower));
    TRY(tok_json_bool(r, j, path, "strip_accents", lower, &strip));
    if (clean) TRY(new_step(r, path, (norm_step){.kind = NORM_CLEAN}));
    if (chinese) TRY(new_step(r, path, (norm_step){.kind = NORM_CHINESE}));
    if (strip) TRY(new_step(r, path, (norm_step){.kind = NORM_NFD}));
    if (strip) TRY(new_step(r, path, (norm_step){.kind = NORM_STRIP_NONSPACING}));
    if (lower) TRY(new_step(r, path, (norm_step){.kind = NORM_LOWERCASE}));
    return ST_OK;
}

static status read_precompiled(tok_reader *r, const json_t *j, const char *path) {
    const json_t *text = json_object_get(j, "precompiled_charsmap");
    norm_step s;
    err why = {0};
    TRY(tok_json_keys(r, j, path, "type precompiled_charsmap"));
    if (!json_is_string(text)) {
        return tok_bad(r, path, "\"precompiled_charsmap\" is not a string");
    }
    size_t n = json_string_length(text);
    uint8_t *bytes = xmalloc(3 * (n + 3) / 4);
    int64_t n_bytes = base64_decode(json_string_value(text), n, bytes);
    status st = ST_FORMAT;
    if (n_bytes < 0) {
        err_set(&why, ST_FORMAT, "\"precompiled_charsmap\" is not base64");
    } else {
        st = norm_step_precompiled(&s, r->t->mem, bytes, (size_t)n_bytes, &why);
    }
    free(bytes);
    return st == ST_OK ? new_step(r, path, s) : tok_bad(r, path, "%s", why.message);
}

/* ---- the component ---- */

typedef status read_fn(tok_reader *r, const json_t *j, const char *path);

static const struct {
    const char *type;
    read_fn *read; /* NULL: no parameters, `kind` says all */
    norm_kind kind;
} TYPES[] = {
    {.type = "NFC", .kind = NORM_NFC},
    {.type = "NFD", .kind = NORM_NFD},
    {.type = "NFKC", .kind = NORM_NFKC},
    {.type = "NFKD", .kind = NORM_NFKD},
    {.type = "Nmt", .kind = NORM_NMT},
    {.type = "Lowercase", .kind = NORM_LOWERCASE},
    {.type = "StripAccents", .kind = NORM_STRIP_ACCENTS},
    {.type = "ByteLevel", .kind = NORM_BYTE_LEVEL},
    {.type = "Strip", .read = read_strip},
    {.type = "Prepend", .read = read_prepend},
    {.type = "Replace", .read = read_replace},
    {.type = "BertNormalizer", .read = read_bert},
    {.type = "Precompiled", .read = read_precompiled},
};

status tok_read_normalizer(tok_reader *r, const json_t *j, const char *path, int depth) {
    const char *type;
    if (tok_json_absent(j)) return ST_OK;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "normalizers", depth, tok_read_normalizer);
    }
    for (int i = 0; i < ARRAY_LEN(TYPES); i++) {
        if (strcmp(TYPES[i].type, type) != 0) continue;
        return TYPES[i].read ? TYPES[i].read(r, j, path) : read_plain(r, j, path, TYPES[i].kind);
    }
    return tok_bad(r, path, "type \"%.80s\" is not a normalizer", type);
}
