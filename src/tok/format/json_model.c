/* Vocabulary, added tokens and merges of a tokenizer.json.
 *
 * Invariant: every id has one content and every content one id; merges name tokens that exist. */
#include <stdlib.h>
#include <string.h>

#include "tok/format/json.h"
#include "tok/text/unicode.h"

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

/* What a token stands for: bytes if it is written in the byte alphabet throughout. */
static void set_bytes(tok *t, tok_token *k) {
    k->bytes = k->text;
    k->n_bytes = k->n_text;
    if (!t->byte_level || k->added) return;
    char *bytes = arena_alloc(t->mem, k->n_text);
    uint32_t n = 0, cp;
    for (uint32_t i = 0; i < k->n_text;) {
        int len = utf8_decode(k->text + i, k->n_text - i, &cp);
        int byte = len > 0 ? byte_alphabet_byte(cp) : -1;
        if (byte < 0) return;
        bytes[n++] = (char)byte;
        i += (uint32_t)len;
    }
    k->bytes = bytes;
    k->n_bytes = n;
}

static status add_model_token(tok_reader *r, const char *text, size_t len, int32_t id) {
    tok *t = r->t;
    tok_token *k = &t->token[id];
    if (len > TOK_MAX_TOKEN_BYTES) return tok_bad(r, "model.vocab", "a token is %zu bytes", len);
    if (k->text) {
        return tok_bad(r, "model.vocab", "id %d is given to \"%.40s\" and \"%.40s\"", (int)id,
                       k->text, text);
    }
    k->text = arena_strndup(t->mem, text, len);
    k->n_text = (uint32_t)len;
    k->in_model = true;
    str_map_add(&t->by_text, k->text, len, id);
    return ST_OK;
}

/* First pass over the ids: the highest decides the size of the table. */
static status count_ids(tok_reader *r, const json_t *vocab, const json_t *added, size_t n) {
    const char *key;
    json_t *value;
    size_t i;
    int32_t id = 0, top = -1;
    json_object_foreach((json_t *)vocab, key, value) {
        TRY(read_id(r, value, "model.vocab", n, &id));
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

/* The trie holds the content as it will look when it is searched for. */
static status add_to_trie(tok_reader *r, const tok_token *k, tok_added a, bool normalized) {
    tok *t = r->t;
    char *normal = NULL;
    size_t n = 0;
    if (normalized && t->nfc) TRY(tok_normalize_nfc(k->text, k->n_text, &normal, &n, r->e));
    tok_trie_add(normalized ? &t->normal : &t->raw, normal ? normal : k->text,
                 normal ? n : k->n_text, a);
    free(normal);
    return ST_OK;
}

static status read_added_token(tok_reader *r, const json_t *j, const char *path) {
    static const char *const KNOWN[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    tok *t = r->t;
    tok_added a = {.id = (int32_t)json_integer_value(json_object_get(j, "id"))};
    bool normalized, special;
    TRY(tok_json_keys(r, j, path, KNOWN));
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
        k->text = arena_strndup(t->mem, text, len);
        k->n_text = (uint32_t)len;
        str_map_add(&t->by_text, k->text, len, a.id);
    }
    k->added = true;
    k->special = special;
    return add_to_trie(r, k, a, normalized);
}

/* Model tokens by their bytes: characters are looked up so, and whole words (ignore_merges). */
static void index_by_bytes(tok *t) {
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (k->in_model && str_map_get(&t->by_bytes, k->bytes, k->n_bytes) < 0) {
            str_map_add(&t->by_bytes, k->bytes, k->n_bytes, id);
        }
    }
}

static void index_bytes(tok *t) {
    for (int b = 0; b < 256; b++) {
        char c[4];
        int len = utf8_encode(byte_alphabet_char((uint8_t)b), c);
        int32_t id = str_map_get(&t->by_text, c, (size_t)len);
        t->byte_id[b] = id >= 0 && t->token[id].in_model ? id : -1;
    }
}

status tok_read_vocab(tok_reader *r, const json_t *model, const json_t *added) {
    const json_t *vocab = json_object_get(model, "vocab");
    const char *key;
    json_t *value;
    size_t i;
    if (!json_is_object(vocab)) return tok_bad(r, "model.vocab", "is missing or not an object");
    if (added && !json_is_null(added) && !json_is_array(added)) {
        return tok_bad(r, "added_tokens", "is not an array");
    }
    size_t n = json_object_size(vocab) + json_array_size(added);
    TRY(count_ids(r, vocab, added, n));
    str_map_reserve(&r->t->by_text, (uint32_t)n);
    json_object_foreach((json_t *)vocab, key, value) {
        TRY(add_model_token(r, key, strlen(key), (int32_t)json_integer_value(value)));
    }
    json_array_foreach((json_t *)added, i, value) {
        char path[64];
        snprintf(path, sizeof(path), "added_tokens[%zu]", i);
        TRY(read_added_token(r, value, path));
    }
    for (int32_t id = 0; id < r->t->n_token; id++) {
        if (r->t->token[id].text) set_bytes(r->t, &r->t->token[id]);
    }
    if (!r->t->byte_level || r->t->ignore_merges) index_by_bytes(r->t);
    index_bytes(r->t);
    return ST_OK;
}

/* "a b" or ["a", "b"]. */
static bool merge_sides(const json_t *j, const char **a, size_t *n_a, const char **b, size_t *n_b) {
    if (json_is_array(j) && json_array_size(j) == 2) {
        const json_t *x = json_array_get(j, 0), *y = json_array_get(j, 1);
        *a = json_string_value(x);
        *b = json_string_value(y);
        *n_a = json_string_length(x);
        *n_b = json_string_length(y);
        return *a && *b;
    }
    const char *s = json_string_value(j);
    const char *space = s ? strchr(s, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    *a = s;
    *n_a = (size_t)(space - s);
    *b = space + 1;
    *n_b = json_string_length(j) - *n_a - 1;
    return true;
}

static int32_t model_id(const tok *t, const char *s, size_t n) {
    int32_t id = str_map_get(&t->by_text, s, n);
    return id >= 0 && t->token[id].in_model ? id : -1;
}

static status read_merge(tok_reader *r, const json_t *j, const char *path, strbuf *whole) {
    const char *a, *b;
    size_t n_a, n_b;
    tok *t = r->t;
    if (!merge_sides(j, &a, &n_a, &b, &n_b)) {
        return tok_bad(r, path, "is neither \"a b\" nor [\"a\", \"b\"]");
    }
    strbuf_clear(whole);
    strbuf_append(whole, a, n_a);
    strbuf_append(whole, b, n_b);
    int32_t left = model_id(t, a, n_a), right = model_id(t, b, n_b);
    int32_t id = model_id(t, strbuf_cstr(whole), whole->len);
    if (left < 0 || right < 0 || id < 0) {
        return tok_bad(r, path, "token \"%.60s\" is not in the vocabulary",
                       left < 0    ? strndupa(a, n_a < 60 ? n_a : 60)
                       : right < 0 ? b
                                   : strbuf_cstr(whole));
    }
    pair_map_put(&t->merge, pair_key(left, right), t->n_merges);
    t->merged[t->n_merges++] = id;
    return ST_OK;
}

status tok_read_merges(tok_reader *r, const json_t *merges) {
    tok *t = r->t;
    if (!json_is_array(merges)) return tok_bad(r, "model.merges", "is missing or not an array");
    t->merged = ARENA_ARRAY(t->mem, int32_t, json_array_size(merges));
    pair_map_reserve(&t->merge, (uint32_t)json_array_size(merges));
    strbuf whole = {0};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < json_array_size(merges); i++) {
        char path[64];
        snprintf(path, sizeof(path), "model.merges[%zu]", i);
        st = read_merge(r, json_array_get(merges, i), path, &whole);
    }
    strbuf_free(&whole);
    return st;
}
