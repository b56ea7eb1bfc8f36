/* Reads the "decoder" of a tokenizer.json. */
#include <string.h>

#include "base/utf8.h"
#include "tok/format/json.h"
#include "tok/pretok/pretok.h"

/* ---- values ---- */

static status read_string(tok_reader *r, const json_t *j, const char *path, const char *key,
                          dec_string *out) {
    const json_t *s = json_object_get(j, key);
    if (!json_is_string(s)) return tok_bad(r, path, "\"%s\" is not a string", key);
    if (json_string_length(s) > DEC_MAX_STRING) {
        return tok_bad(r, path, "\"%s\" has more than %d bytes", key, DEC_MAX_STRING);
    }
    out->n = json_string_length(s);
    out->s = arena_strndup(r->t->mem, json_string_value(s), out->n);
    return ST_OK;
}

static status read_character(tok_reader *r, const json_t *j, const char *path, const char *key,
                             dec_string *out) {
    TRY(read_string(r, j, path, key, out));
    bool one = out->n > 0 && utf8_size(out->s[0]) == out->n;
    return one ? ST_OK : tok_bad(r, path, "\"%s\" is not one character", key);
}

static status read_count(tok_reader *r, const json_t *j, const char *path, const char *key,
                         size_t *out) {
    const json_t *n = json_object_get(j, key);
    if (!json_is_integer(n) || json_integer_value(n) < 0) {
        return tok_bad(r, path, "\"%s\" is not a number of characters", key);
    }
    *out = (size_t)json_integer_value(n);
    return ST_OK;
}

/* ---- the steps; each fills `s`, whose kind is set ---- */

typedef status step_fn(tok_reader *r, const json_t *j, const char *path, dec_step *s);

static status read_byte_level(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    (void)s; /* the options are those of the pre-tokenizer of this name */
    return tok_json_keys(r, j, path, "type add_prefix_space trim_offsets use_regex");
}

static status read_bare(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    (void)s;
    return tok_json_keys(r, j, path, "type");
}

/* Files from before prepend_scheme have add_prefix_space. */
static status read_metaspace(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    const json_t *scheme = json_object_get(j, "prepend_scheme");
    const char *name = tok_json_absent(scheme) ? NULL : json_string_value(scheme);
    bool prefix;
    TRY(tok_json_keys(r, j, path,
                      "type replacement prepend_scheme add_prefix_space split "
                      "str_rep"));
    TRY(read_character(r, j, path, "replacement", &s->find));
    TRY(tok_json_bool(r, j, path, "add_prefix_space", true, &prefix));
    if (tok_json_absent(scheme)) name = prefix ? "always" : "never";
    if (!name ||
        (strcmp(name, "always") != 0 && strcmp(name, "first") != 0 && strcmp(name, "never") != 0)) {
        return tok_bad(r, path, "\"prepend_scheme\" is not always, first or never");
    }
    s->drop_first = strcmp(name, "never") != 0;
    if (!prefix && s->drop_first) {
        return tok_bad(r, path, "\"add_prefix_space\" contradicts \"prepend_scheme\"");
    }
    return ST_OK;
}

static status read_strip(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    TRY(tok_json_keys(r, j, path, "type content start stop"));
    TRY(read_character(r, j, path, "content", &s->find));
    TRY(read_count(r, j, path, "start", &s->start));
    return read_count(r, j, path, "stop", &s->stop);
}

static status read_regex(tok_reader *r, const char *path, const char *regex, dec_step *s) {
    err why = {0};
    s->kind = DEC_REGEX;
    if (pretok_regex_compile(&s->regex, regex, &why) == ST_OK) return ST_OK;
    return tok_bad(r, path, "%s", why.message);
}

static status read_replace(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    const json_t *pattern = json_object_get(j, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    TRY(tok_json_keys(r, j, path, "type pattern content"));
    TRY(read_string(r, j, path, "content", &s->put));
    if (json_object_size(pattern) != 1 || !(regex || json_object_get(pattern, "String"))) {
        return tok_bad(r, path, "\"pattern\" is neither {\"Regex\"} nor {\"String\"}");
    }
    if (regex) return read_regex(r, path, regex, s);
    TRY(read_string(r, pattern, path, "String", &s->find));
    /* The empty string matches as the empty expression does. */
    return s->find.n > 0 ? ST_OK : read_regex(r, path, "", s);
}

static status read_wordpiece(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    TRY(tok_json_keys(r, j, path, "type prefix cleanup"));
    TRY(read_string(r, j, path, "prefix", &s->find));
    return tok_json_bool(r, j, path, "cleanup", true, &s->clean);
}

static status read_bpe(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    TRY(tok_json_keys(r, j, path, "type suffix"));
    return read_string(r, j, path, "suffix", &s->find);
}

static status read_ctc(tok_reader *r, const json_t *j, const char *path, dec_step *s) {
    TRY(tok_json_keys(r, j, path, "type pad_token word_delimiter_token cleanup"));
    TRY(read_string(r, j, path, "pad_token", &s->find));
    TRY(read_string(r, j, path, "word_delimiter_token", &s->put));
    return tok_json_bool(r, j, path, "cleanup", true, &s->clean);
}

/* ---- the chain ---- */

static status read_decoder_part(tok_reader *r, const json_t *j, const char *path, int depth) {
    static const struct {
        const char *type;
        dec_kind kind;
        step_fn *read;
    } STEPS[] = {
        {"ByteLevel", DEC_BYTE_LEVEL, read_byte_level},
        {"ByteFallback", DEC_BYTE_FALLBACK, read_bare},
        {"Fuse", DEC_FUSE, read_bare},
        {"Metaspace", DEC_METASPACE, read_metaspace},
        {"Strip", DEC_STRIP, read_strip},
        {"Replace", DEC_REPLACE, read_replace},
        {"WordPiece", DEC_WORDPIECE, read_wordpiece},
        {"BPEDecoder", DEC_BPE, read_bpe},
        {"CTC", DEC_CTC, read_ctc},
    };
    tok *t = r->t;
    const char *type;
    TRY(tok_json_type(r, j, path, &type));
    if (strcmp(type, "Sequence") == 0) {
        return tok_json_each(r, j, path, "decoders", depth, read_decoder_part);
    }
    for (int i = 0; i < ARRAY_LEN(STEPS); i++) {
        if (strcmp(type, STEPS[i].type) != 0) continue;
        if (t->n_dec == TOK_MAX_STEPS) return tok_bad(r, path, "there are too many steps");
        dec_step *s = &t->dec[t->n_dec++];
        s->kind = STEPS[i].kind;
        return STEPS[i].read(r, j, path, s);
    }
    return tok_bad(r, path, "type \"%.80s\" is not known", type);
}

status tok_read_decoder(tok_reader *r, const json_t *j) {
    tok *t = r->t;
    if (tok_json_absent(j)) {
        t->dec[t->n_dec++] = (dec_step){.kind = DEC_JOIN};
    } else {
        TRY(read_decoder_part(r, j, "decoder", 0));
    }
    return dec_fill_tokens(t, r->e);
}
