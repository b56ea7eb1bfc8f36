/* Reads the options and merges of a BPE model from tokenizer.json.
 *
 * Invariant: merges name tokens that exist. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/model/bpe.h"

/* An option that must be off: absent, null, false, 0 or "". */
static status must_be_off(tok_reader *r, const json_t *model, const char *key) {
    const json_t *j = json_object_get(model, key);
    bool off = !j || json_is_null(j) || json_is_false(j) ||
               (json_is_number(j) && json_number_value(j) == 0) ||
               (json_is_string(j) && json_string_length(j) == 0);
    return off ? ST_OK : tok_bad(r, "model", "\"%s\" is set, which is not supported", key);
}

static status read_options(tok_reader *r, const json_t *model) {
    static const char *const KNOWN[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    static const char *const OFF[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                      "byte_fallback"};
    bpe_model *m = r->t->model;
    TRY(tok_json_keys(r, model, "model", KNOWN));
    for (int i = 0; i < ARRAY_LEN(OFF); i++) TRY(must_be_off(r, model, OFF[i]));
    TRY(tok_json_bool(r, model, "model", "fuse_unk", false, &m->fuse_unk));
    return tok_json_bool(r, model, "model", "ignore_merges", false, &m->ignore_merges);
}

/* ---- merges ---- */

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
    int32_t left = tok_model_id(t, a, n_a), right = tok_model_id(t, b, n_b);
    int32_t id = tok_model_id(t, strbuf_cstr(whole), whole->len);
    if (left < 0 || right < 0 || id < 0) {
        return tok_bad(r, path, "token \"%.60s\" is not in the vocabulary",
                       left < 0    ? strndupa(a, n_a < 60 ? n_a : 60)
                       : right < 0 ? b
                                   : strbuf_cstr(whole));
    }
    bpe_model *m = t->model;
    pair_map_put(&m->merge, pair_key(left, right), m->n_merges);
    m->merged[m->n_merges++] = id;
    return ST_OK;
}

static status read_merges(tok_reader *r, const json_t *merges) {
    bpe_model *m = r->t->model;
    if (!json_is_array(merges)) return tok_bad(r, "model.merges", "is missing or not an array");
    m->merged = ARENA_ARRAY(r->t->mem, int32_t, json_array_size(merges));
    pair_map_reserve(&m->merge, (uint32_t)json_array_size(merges));
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

/* Model tokens by their bytes: characters are looked up so, and whole words (ignore_merges). */
static void index_by_bytes(const tok *t, bpe_model *m) {
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (k->in_model && str_map_get(&m->by_bytes, k->bytes, k->n_bytes) < 0) {
            str_map_add(&m->by_bytes, k->bytes, k->n_bytes, id);
        }
    }
}

status bpe_read(tok_reader *r, const json_t *model) {
    tok *t = r->t;
    bpe_model *m = t->model = xcalloc(1, sizeof(*m));
    TRY(read_options(r, model));
    if (!t->byte_level || m->ignore_merges) index_by_bytes(t, m);
    return read_merges(r, json_object_get(model, "merges"));
}

/* Ranks in order give the pairs back; a pair that a later rank replaced hashes as (-1, -1). */
void bpe_hash(const tok *t, XXH3_state_t *x) {
    const bpe_model *m = t->model;
    size_t bytes = 2 * sizeof(int32_t) * (size_t)m->n_merges;
    int32_t *pairs = xmalloc(bytes + 1);
    memset(pairs, 0xFF, bytes);
    for (uint32_t i = 0; i < m->merge.cap; i++) {
        if (m->merge.key[i] == 0) continue;
        uint64_t pair = m->merge.key[i] - 1;
        pairs[2 * m->merge.value[i]] = (int32_t)(pair >> 32);
        pairs[2 * m->merge.value[i] + 1] = (int32_t)(uint32_t)pair;
    }
    tok_hash_number(x, m->ignore_merges | m->fuse_unk << 1);
    tok_hash_number(x, m->n_merges);
    XXH3_64bits_update(x, pairs, bytes);
    free(pairs);
}

void bpe_free(void *model) {
    bpe_model *m = model;
    if (!m) return;
    pair_map_free(&m->merge);
    str_map_free(&m->by_bytes);
    free(m);
}
