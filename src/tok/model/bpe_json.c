/* Reads the options and merges of a BPE model from tokenizer.json.
 *
 * Invariant: merges name tokens that exist. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tok/model/bpe.h"

static status read_affix(tok_reader *r, const json_t *model, const char *key, const char **out) {
    const json_t *j = json_object_get(model, key);
    if (tok_json_absent(j) || (json_is_string(j) && json_string_length(j) == 0)) return ST_OK;
    if (!json_is_string(j) || json_string_length(j) > TOK_MAX_AFFIX) {
        return tok_bad(r, "model", "\"%s\" is not a short string", key);
    }
    *out = arena_strdup(r->t->mem, json_string_value(j));
    return ST_OK;
}

static status read_dropout(tok_reader *r, const json_t *model, float *share) {
    const json_t *j = json_object_get(model, "dropout");
    if (tok_json_absent(j)) return ST_OK;
    *share = (float)json_number_value(j);
    if (json_is_number(j) && *share >= 0 && *share <= 1) return ST_OK;
    return tok_bad(r, "model.dropout", "is not a number from 0 to 1");
}

static status read_options(tok_reader *r, const json_t *model) {
    bpe_model *m = r->t->model;
    TRY(tok_json_keys(r, model, "model",
                      "type dropout unk_token continuing_subword_prefix "
                      "end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab merges"));
    TRY(read_affix(r, model, "continuing_subword_prefix", &m->prefix));
    TRY(read_affix(r, model, "end_of_word_suffix", &m->suffix));
    TRY(read_dropout(r, model, &m->dropout));
    TRY(tok_json_bool(r, model, "model", "fuse_unk", false, &m->fuse_unk));
    TRY(tok_json_bool(r, model, "model", "byte_fallback", false, &m->byte_fallback));
    TRY(tok_json_bool(r, model, "model", "ignore_merges", false, &m->ignore_merges));
    if (r->t->byte_level && (m->prefix || m->suffix)) {
        return tok_bad(r, "model", "affixes of subwords do not go with ByteLevel");
    }
    return ST_OK;
}

/* ---- merges ---- */

bool bpe_merge_sides(const json_t *j, const char **a, size_t *n_a, const char **b, size_t *n_b) {
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

void bpe_reserve_merges(bpe_model *m, size_t n) {
    uint32_t slots = 16;
    while (slots / 2 < n) slots *= 2;
    m->slot = xcalloc(slots, sizeof(*m->slot));
    m->mask = slots - 1;
}

void bpe_put_merge(bpe_model *m, int32_t left, int32_t right, int32_t id) {
    uint64_t pair = pair_key(left, right) + 1;
    uint32_t i = (uint32_t)mix64(pair) & m->mask;
    while (m->slot[i].pair != 0 && m->slot[i].pair != pair) i = (i + 1) & m->mask;
    m->slot[i] = (bpe_merge){pair, m->n_merges++, id};
}

static status read_merge(tok_reader *r, const json_t *j, const char *path, strbuf *whole) {
    const char *a, *b;
    size_t n_a, n_b;
    tok *t = r->t;
    if (!bpe_merge_sides(j, &a, &n_a, &b, &n_b)) {
        return tok_bad(r, path, "is neither \"a b\" nor [\"a\", \"b\"]");
    }
    const bpe_model *m = t->model;
    size_t skip = m->prefix ? strlen(m->prefix) : 0;
    if (n_b < skip) return tok_bad(r, path, "\"%.60s\" lacks the prefix of subwords", b);
    strbuf_clear(whole);
    strbuf_append(whole, a, n_a);
    strbuf_append(whole, b + skip, n_b - skip);
    int32_t left = tok_model_id(t, a, n_a), right = tok_model_id(t, b, n_b);
    int32_t id = tok_model_id(t, strbuf_cstr(whole), whole->len);
    if (left < 0 || right < 0 || id < 0) {
        const char *token = left < 0 ? a : right < 0 ? b : strbuf_cstr(whole);
        return tok_bad(r, path, "token \"%.*s\" is not in the vocabulary",
                       left < 0 && n_a < 60 ? (int)n_a : 60, token);
    }
    bpe_put_merge(t->model, left, right, id);
    return ST_OK;
}

static status read_merges(tok_reader *r, const json_t *merges) {
    bpe_model *m = r->t->model;
    if (!json_is_array(merges)) return tok_bad(r, "model.merges", "is missing or not an array");
    bpe_reserve_merges(m, json_array_size(merges));
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
        const char *s = t->byte_level ? k->bytes : k->text;
        uint32_t n = t->byte_level ? k->n_bytes : k->n_text;
        if (k->in_model && str_map_get(&m->by_bytes, s, n) < 0) {
            str_map_add(&m->by_bytes, s, n, id);
        }
    }
}

status bpe_read(tok_reader *r, const json_t *model) {
    tok *t = r->t;
    bpe_model *m = t->model = xcalloc(1, sizeof(*m));
    TRY(read_options(r, model));
    if (!t->byte_level || m->ignore_merges) index_by_bytes(t, m);
    if (m->byte_fallback && !t->byte_level) tok_index_fallbacks(t);
    TRY(read_merges(r, json_object_get(model, "merges")));
    bpe_cut_find(t, m);
    return ST_OK;
}

/* Ranks in order give the pairs back; a pair that a later rank replaced hashes as (-1, -1). */
void bpe_hash(const tok *t, XXH3_state_t *x) {
    const bpe_model *m = t->model;
    size_t bytes = 2 * sizeof(int32_t) * (size_t)m->n_merges;
    int32_t *pairs = xmalloc(bytes + 1);
    memset(pairs, 0xFF, bytes);
    for (uint32_t i = 0; i <= m->mask; i++) {
        if (m->slot[i].pair == 0) continue;
        uint64_t pair = m->slot[i].pair - 1;
        pairs[2 * m->slot[i].rank] = (int32_t)(pair >> 32);
        pairs[2 * m->slot[i].rank + 1] = (int32_t)(uint32_t)pair;
    }
    tok_hash_number(x, m->ignore_merges | m->fuse_unk << 1 | m->byte_fallback << 2);
    tok_hash_number(x, m->n_merges);
    XXH3_64bits_update(x, pairs, bytes);
    free(pairs);
}

void bpe_free(void *model) {
    bpe_model *m = model;
    if (!m) return;
    free(m->slot);
    str_map_free(&m->by_bytes);
    free(m);
}
