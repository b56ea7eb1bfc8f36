/* The tokenizer inside a GGUF file: its metadata, up to the tensors, as a table of gguf_keys.h.
 *
 * Format (ggml/docs/gguf.md, versions 2 and 3): "GGUF", u32 version, u64 tensors, u64 pairs; a pair
 * is a string, a u32 type and a value; a string is a u64 length and bytes; an array is a u32 type,
 * a u64 count and the values. Everything is little-endian. The bytes are not trusted: a count is
 * believed only as far as there are bytes for it. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} gguf_type;

/* Bytes of one value; 0: not of one size. */
static const uint8_t SIZE[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum { MAX_PAIRS = 1 << 20, MAX_KEY = 256 };

typedef struct gguf_cursor {
    tok_input *in;
    size_t at;
} gguf_cursor;

static status cut_short(const gguf_cursor *c) {
    format_bad(c->in, "the GGUF metadata ends too early or a length in it is wrong (at byte %zu)",
               c->at);
    return err_hint(c->in->e, "the file is damaged or was not copied whole");
}

static status take_bytes(gguf_cursor *c, size_t n, const char **bytes) {
    if (n > c->in->len - c->at) return cut_short(c);
    *bytes = c->in->bytes + c->at;
    c->at += n;
    return ST_OK;
}

static status take_u32(gguf_cursor *c, uint32_t *v) {
    const char *bytes = NULL;
    TRY(take_bytes(c, 4, &bytes));
    memcpy(v, bytes, 4);
    return ST_OK;
}

static status take_u64(gguf_cursor *c, uint64_t *v) {
    const char *bytes = NULL;
    TRY(take_bytes(c, 8, &bytes));
    memcpy(v, bytes, 8);
    return ST_OK;
}

static status take_string(gguf_cursor *c, tok_string *s) {
    uint64_t n;
    TRY(take_u64(c, &n));
    if (n > c->in->len) return cut_short(c);
    s->len = (size_t)n;
    return take_bytes(c, s->len, &s->text);
}

/* A value of a pair; for arrays the type and number of items, with the cursor at the first. */
typedef struct gguf_value {
    gguf_type type, item;
    uint64_t n;
    const char *bytes; /* numbers, or all the numbers of an array */
    tok_string string;
    size_t at; /* of the first string of an array */
} gguf_value;

static status take_type(gguf_cursor *c, gguf_type *type) {
    uint32_t t;
    TRY(take_u32(c, &t));
    if (t >= GGUF_TYPES) return format_bad(c->in, "GGUF value type %u is not known", t);
    *type = (gguf_type)t;
    return ST_OK;
}

static status take_array(gguf_cursor *c, gguf_value *v) {
    TRY(take_type(c, &v->item));
    TRY(take_u64(c, &v->n));
    v->at = c->at;
    size_t size = SIZE[v->item], left = c->in->len - c->at;
    if (v->item == GGUF_ARRAY) return format_bad(c->in, "arrays of arrays are not supported");
    if (v->n > left / (size ? size : 8)) return cut_short(c);
    if (size > 0) return take_bytes(c, size * (size_t)v->n, &v->bytes);
    for (uint64_t i = 0; i < v->n; i++) TRY(take_string(c, &v->string));
    return ST_OK;
}

static status take_value(gguf_cursor *c, gguf_value *v) {
    *v = (gguf_value){0};
    TRY(take_type(c, &v->type));
    if (v->type == GGUF_STRING) return take_string(c, &v->string);
    if (v->type == GGUF_ARRAY) return take_array(c, v);
    return take_bytes(c, SIZE[v->type], &v->bytes);
}

/* ---- values of the keys ---- */

static char *copy_string(const gguf_cursor *c, const gguf_value *v) {
    return arena_strndup(c->in->mem, v->string.text, v->string.len);
}

static status wrong_type(const gguf_cursor *c, const char *key) {
    return format_bad(c->in, "%s has a value of the wrong type", key);
}

static status read_id(const gguf_cursor *c, const char *key, const gguf_value *v, int32_t *id) {
    if (v->type != GGUF_U32 && v->type != GGUF_I32) return wrong_type(c, key);
    memcpy(id, v->bytes, 4);
    return ST_OK;
}

static status read_flag(const gguf_cursor *c, const char *key, const gguf_value *v, gguf_flag *f) {
    if (v->type != GGUF_BOOL) return wrong_type(c, key);
    *f = *v->bytes ? GGUF_TRUE : GGUF_FALSE;
    return ST_OK;
}

static status read_text(const gguf_cursor *c, const char *key, const gguf_value *v,
                        const char **text) {
    if (v->type != GGUF_STRING) return wrong_type(c, key);
    *text = copy_string(c, v);
    return ST_OK;
}

static status read_strings(const gguf_cursor *c, const char *key, const gguf_value *v,
                           const tok_string **list) {
    if (v->type != GGUF_ARRAY || v->item != GGUF_STRING) return wrong_type(c, key);
    tok_string *s = ARENA_ARRAY(c->in->mem, tok_string, v->n);
    gguf_cursor items = {c->in, v->at};
    for (uint64_t i = 0; i < v->n; i++) TRY(take_string(&items, &s[i]));
    *list = s;
    return ST_OK;
}

/* 4-byte numbers, which need not be aligned in the file. */
static status read_numbers(const gguf_cursor *c, const char *key, const gguf_value *v,
                           gguf_type item, const void **list) {
    bool same = v->item == item || (item == GGUF_I32 && v->item == GGUF_U32);
    if (v->type != GGUF_ARRAY || !same) return wrong_type(c, key);
    *list = arena_memdup(c->in->mem, v->bytes, 4 * (size_t)v->n);
    return ST_OK;
}

/* How many items the lists have, to be compared at the end: they come in any order. */
typedef struct gguf_counts {
    uint64_t tokens, scores, types, merges;
} gguf_counts;

static status read_list(const gguf_cursor *c, const char *key, const gguf_value *v,
                        gguf_tokenizer *g, gguf_counts *n) {
    const void *numbers = NULL;
    if (strcmp(key, "tokens") == 0) {
        n->tokens = v->n;
        return read_strings(c, key, v, &g->token);
    }
    if (strcmp(key, "merges") == 0) {
        n->merges = v->n;
        return read_strings(c, key, v, &g->merge);
    }
    if (strcmp(key, "scores") == 0) {
        n->scores = v->n;
        TRY(read_numbers(c, key, v, GGUF_F32, &numbers));
        g->score = numbers;
    } else if (strcmp(key, "token_type") == 0) {
        n->types = v->n;
        TRY(read_numbers(c, key, v, GGUF_I32, &numbers));
        g->type = numbers;
    } else if (strcmp(key, "precompiled_charsmap") == 0) {
        if (v->type != GGUF_ARRAY || SIZE[v->item] != 1) return wrong_type(c, key);
        g->charsmap = v->bytes;
        g->n_charsmap = (size_t)v->n;
    }
    return ST_OK;
}

/* A key without "tokenizer.ggml.". */
static status read_key(const gguf_cursor *c, const char *key, const gguf_value *v,
                       gguf_tokenizer *g, gguf_counts *n) {
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{"bos_token_id", &g->bos},       {"eos_token_id", &g->eos},
               {"unknown_token_id", &g->unk},   {"seperator_token_id", &g->sep},
               {"separator_token_id", &g->sep}, {"padding_token_id", &g->pad},
               {"cls_token_id", &g->cls},       {"mask_token_id", &g->mask},
               {"eot_token_id", &g->eot}};
    const struct {
        const char *key;
        gguf_flag *flag;
    } flags[] = {{"add_bos_token", &g->add_bos},
                 {"add_eos_token", &g->add_eos},
                 {"add_sep_token", &g->add_sep},
                 {"add_space_prefix", &g->add_space_prefix},
                 {"remove_extra_whitespaces", &g->remove_extra_whitespaces}};
    for (int i = 0; i < ARRAY_LEN(ids); i++) {
        if (strcmp(key, ids[i].key) == 0) return read_id(c, key, v, ids[i].id);
    }
    for (int i = 0; i < ARRAY_LEN(flags); i++) {
        if (strcmp(key, flags[i].key) == 0) return read_flag(c, key, v, flags[i].flag);
    }
    if (strcmp(key, "model") == 0) return read_text(c, key, v, &g->model);
    if (strcmp(key, "pre") == 0) return read_text(c, key, v, &g->pre);
    return read_list(c, key, v, g, n);
}

static status read_pair(gguf_cursor *c, gguf_tokenizer *g, gguf_counts *n) {
    static const char PREFIX[] = "tokenizer.ggml.";
    tok_string name;
    gguf_value v;
    TRY(take_string(c, &name));
    TRY(take_value(c, &v));
    if (name.len > MAX_KEY) return ST_OK; /* none of ours */
    const char *key = arena_strndup(c->in->mem, name.text, name.len);
    if (strcmp(key, "tokenizer.chat_template") == 0) {
        return read_text(c, key, &v, &g->chat_template);
    }
    if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) return ST_OK;
    return read_key(c, key + strlen(PREFIX), &v, g, n);
}

static status check_counts(const tok_input *in, const gguf_tokenizer *g, const gguf_counts *n) {
    if (!g->model || !g->token) {
        return format_bad(in, "this GGUF file holds no tokenizer (tokenizer.ggml.tokens)");
    }
    bool even = (!g->score || n->scores == n->tokens) && (!g->type || n->types == n->tokens);
    if (!even || n->tokens >= INT32_MAX) {
        return format_bad(in, "%llu tokens, but %llu scores and %llu types",
                          (unsigned long long)n->tokens, (unsigned long long)n->scores,
                          (unsigned long long)n->types);
    }
    return ST_OK;
}

bool gguf_looks(const char *bytes, size_t len) {
    return len >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

status gguf_load(tok_input *in, tok **out) {
    gguf_cursor c = {in, 4};
    gguf_tokenizer g = gguf_tokenizer_empty();
    gguf_counts n = {0};
    uint32_t version;
    uint64_t tensors, pairs;
    TRY(take_u32(&c, &version));
    if (version != 2 && version != 3) {
        return format_bad(in, "GGUF version %u is not supported (2 and 3 are)", version);
    }
    TRY(take_u64(&c, &tensors));
    TRY(take_u64(&c, &pairs));
    if (pairs > MAX_PAIRS) return cut_short(&c);
    for (uint64_t i = 0; i < pairs; i++) TRY(read_pair(&c, &g, &n));
    TRY(check_counts(in, &g, &n));
    g.n_tokens = (int32_t)n.tokens;
    g.n_merges = (int64_t)n.merges;
    return tok_from_gguf(out, &g, in->path, in->e);
}
