/* Vocabulary and added tokens of a tokenizer.json.
 *
 * Invariant: every id has one content and every content one id. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/json.h"

/* Ids may have gaps, but not so large that a small file makes a large table. */
static status read_id(tok_reader *r, const json_t *j, const char *path, size_t n_entries,
                      int32_t *id) {
    if (!json_is_integer(j)) return tok_bad(r, path, "an id is not an integer");
    json_int_t v = json_integer_value(j);
    size_t limit = 8 * n_entries + 65536;
    if (v < 0 || (size_t)v >= limit || v >= INT32_MAX) {
        return tok_bad(r, path, "id %lld is out of range for %zu tokens", (long long)v, n_entries);
    }
    *id = (int32_t)v;
    return ST_OK;
}

/* What the model works on: bytes if a token is written in the byte alphabet throughout. */
static void set_bytes(tok *t, tok_token *k, strbuf *bytes) {
    k->bytes = k->text;
    k->n_bytes = k->n_text;
    strbuf_clear(bytes);
    if (!t->byte_level || !k->in_model || !byte_alphabet_read(bytes, k->text, k->n_text)) return;
    k->bytes = arena_memdup(t->mem, strbuf_cstr(bytes), bytes->len);
    k->n_bytes = (uint32_t)bytes->len;
}

static void set_all_bytes(tok *t) {
    strbuf bytes = {0};
    for (int32_t id = 0; id < t->n_token; id++) {
        tok_token *k = &t->token[id];
        if (k->text) set_bytes(t, k, &bytes);
    }
    strbuf_free(&bytes);
}

static status add_model_token(tok_reader *r, const char *text, size_t len, int32_t id) {
    tok *t = r->t;
    tok_token *k = &t->token[id];
    if (len > TOK_MAX_TOKEN_BYTES) return tok_bad(r, "model.vocab", "a token is %zu bytes", len);
    if (k->text) {
        return tok_bad(r, "model.vocab", "id %d is given to \"%.40s\" and \"%.40s\"", (int)id,
                       k->text, text);
    }
    if (str_map_get(&t->by_text, text, len) >= 0) {
        return tok_bad(r, "model.vocab", "\"%.40s\" is there twice", text);
    }
    k->text = k->shown = arena_strndup(t->mem, text, len);
    k->n_text = k->n_shown = (uint32_t)len;
    k->in_model = true;
    str_map_add(&t->by_text, k->text, len, id);
    return ST_OK;
}

/* A vocabulary is an object {content: id}, or Unigram's list [[content, score], ...] in order of
 * ids; both look alike through this cursor. */
typedef struct vocab_cursor {
    const json_t *vocab;
    void *at;
    size_t next;
    const char *text;
    size_t len;
    const json_t *id; /* NULL: the place in the list */
} vocab_cursor;

static bool next_token(vocab_cursor *c) {
    if (json_is_array(c->vocab)) {
        const json_t *pair = json_array_get(c->vocab, c->next++);
        c->text = json_string_value(json_array_get(pair, 0));
        c->len = json_string_length(json_array_get(pair, 0));
        return pair != NULL;
    }
    json_t *object = (json_t *)c->vocab;
    c->at = c->at ? json_object_iter_next(object, c->at) : json_object_iter(object);
    if (!c->at) return false;
    c->text = json_object_iter_key(c->at);
    c->len = strlen(c->text);
    c->id = json_object_iter_value(c->at);
    return true;
}

static status token_id(tok_reader *r, const vocab_cursor *c, size_t n, int32_t *id) {
    if (!c->text) return tok_bad(r, "model.vocab", "entry %zu is not [token, score]", c->next - 1);
    if (c->id) return read_id(r, c->id, "model.vocab", n, id);
    *id = (int32_t)(c->next - 1);
    return ST_OK;
}

/* First pass over the ids: the highest decides the size of the table. */
static status count_ids(tok_reader *r, const json_t *vocab, const json_t *added, size_t n) {
    json_t *value;
    size_t i;
    int32_t id = 0, top = -1;
    for (vocab_cursor c = {.vocab = vocab}; next_token(&c);) {
        TRY(token_id(r, &c, n, &id));
        if (id > top) top = id;
    }
    json_array_foreach((json_t *)added, i, value) {
        TRY(read_id(r, json_object_get(value, "id"), "added_tokens", n, &id));
        if (id > top) top = id;
    }
    if (top < 0) return tok_bad(r, "model.vocab", "is empty");
    r->t->n_token = top + 1;
    r->t->token = ARENA_ARRAY(r->t->mem, tok_token, top + 1);
    return ST_OK;
}

/* The set holds the content as it will look when it is searched for, and so it is decoded. */
static status add_to_set(tok_reader *r, tok_token *k, tok_added a, bool normalized) {
    tok *t = r->t;
    norm_work work = {0};
    tok_piece text = {.s = k->text, .len = k->n_text, .first = true}, normal = text;
    status st = normalized ? norm_run(t->norm, t->n_norm, &text, &work, &normal, r->e) : ST_OK;
    if (st == ST_OK && normal.s != text.s) {
        k->shown = arena_strndup(t->mem, normal.s, normal.len);
        k->n_shown = (uint32_t)normal.len;
    }
    if (st == ST_OK) tok_added_add(normalized ? &t->normal : &t->raw, k->shown, k->n_shown, a);
    norm_work_free(&work);
    return st;
}

static status read_added_token(tok_reader *r, const json_t *j, const char *path) {
    tok *t = r->t;
    tok_added a = {.id = (int32_t)json_integer_value(json_object_get(j, "id"))};
    bool normalized, special;
    TRY(tok_json_keys(r, j, path, "id content single_word lstrip rstrip normalized special"));
    TRY(tok_json_bool(r, j, path, "single_word", false, &a.single_word));
    TRY(tok_json_bool(r, j, path, "lstrip", false, &a.lstrip));
    TRY(tok_json_bool(r, j, path, "rstrip", false, &a.rstrip));
    TRY(tok_json_bool(r, j, path, "special", false, &special));
    TRY(tok_json_bool(r, j, path, "normalized", !special, &normalized));
    const json_t *content = json_object_get(j, "content");
    size_t len = json_string_length(content);
    if (len == 0 || len > TOK_MAX_ADDED_BYTES) {
        return tok_bad(r, path, "\"content\" is missing, empty or too long");
    }
    const char *text = json_string_value(content);
    int32_t known = str_map_get(&t->by_text, text, len);
    tok_token *k = &t->token[a.id];
    if (k->added || (known >= 0 && known != a.id) || (known < 0 && k->text)) {
        return tok_bad(r, path, "id %d or content \"%.40s\" is already taken", (int)a.id, text);
    }
    if (known < 0) {
        k->text = k->shown = arena_strndup(t->mem, text, len);
        k->n_text = k->n_shown = (uint32_t)len;
        str_map_add(&t->by_text, k->text, len, a.id);
    }
    k->added = true;
    k->special = special;
    return add_to_set(r, k, a, normalized);
}

void tok_index_fallbacks(tok *t) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        int n = snprintf(name, sizeof(name), "<0x%02X>", b);
        t->byte_id[b] = tok_model_id(t, name, (size_t)n);
    }
}

/* Models that spell bytes in another way set them when they are read. */
static void index_bytes(tok *t) {
    for (int b = 0; b < 256; b++) {
        char c[4];
        int len = utf8_encode(byte_alphabet_char((uint8_t)b), c);
        int32_t id = str_map_get(&t->by_text, c, (size_t)len);
        bool is_byte = t->byte_level && id >= 0 && t->token[id].in_model;
        t->byte_id[b] = is_byte ? id : -1;
    }
}

static status read_model_tokens(tok_reader *r, const json_t *vocab, size_t n) {
    int32_t id = 0;
    for (vocab_cursor c = {.vocab = vocab}; next_token(&c);) {
        TRY(token_id(r, &c, n, &id));
        TRY(add_model_token(r, c.text, c.len, id));
    }
    return ST_OK;
}

status tok_read_vocab(tok_reader *r, const json_t *model, const json_t *added) {
    const json_t *vocab = json_object_get(model, "vocab");
    json_t *value;
    size_t i;
    if (!json_is_object(vocab) && !json_is_array(vocab)) {
        return tok_bad(r, "model.vocab", "is missing or neither an object nor an array");
    }
    if (added && !json_is_null(added) && !json_is_array(added)) {
        return tok_bad(r, "added_tokens", "is not an array");
    }
    size_t n = json_object_size(vocab) + json_array_size(vocab) + json_array_size(added);
    TRY(count_ids(r, vocab, added, n));
    str_map_reserve(&r->t->by_text, (uint32_t)n);
    TRY(read_model_tokens(r, vocab, n));
    json_array_foreach((json_t *)added, i, value) {
        char path[64];
        snprintf(path, sizeof(path), "added_tokens[%zu]", i);
        TRY(read_added_token(r, value, path));
    }
    if (!tok_added_build(&r->t->raw) || !tok_added_build(&r->t->normal)) {
        return tok_bad(r, "added_tokens", PIECE_TRIE_LIMITS);
    }
    set_all_bytes(r->t);
    index_bytes(r->t);
    return ST_OK;
}
