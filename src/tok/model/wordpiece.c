/* WordPiece: the longest piece that a word begins with, then the longest that goes on, written with
 * a prefix such as "##". A word that cannot be made so is unknown as a whole.
 *
 * Pieces that go on are the trie's subtree below the prefix. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/json.h"
#include "tok/model/piece_trie.h"

typedef struct wordpiece_model {
    piece_trie trie;
    trie_unit inner; /* the node of the prefix; without pieces that go on: a leaf */
    size_t inner_depth;
    int64_t max_chars;
    const char *prefix;
} wordpiece_model;

static bool longer_than(const tok *t, const tok_piece *word, int64_t max_chars) {
    if ((int64_t)word->len <= max_chars) return false;
    int64_t chars = 0;
    for (size_t i = 0; i < word->len; i++) {
        chars += t->byte_level || !utf8_continues(word->s[i]);
    }
    return chars > max_chars;
}

static status push_unknown(tok_enc *enc, const tok_piece *word) {
    if (enc->t->unk < 0) return enc_unknown_word(enc, word);
    enc_push(enc, enc->t->unk, word, 0, word->len);
    return ST_OK;
}

static status wordpiece_encode(tok_enc *enc, const tok_piece *word) {
    const wordpiece_model *m = enc->t->model;
    int64_t ids = enc->out->n, spans = enc->spans ? enc->spans->n : 0;
    if (longer_than(enc->t, word, m->max_chars)) return push_unknown(enc, word);
    for (size_t at = 0, n = 0; at < word->len; at += n) {
        trie_unit node = at == 0 ? m->trie.unit[0] : m->inner;
        size_t depth = at == 0 ? 0 : m->inner_depth;
        int32_t id = trie_longest(&m->trie, node, depth, word->s + at, word->len - at, &n);
        if (id < 0) {
            enc->out->n = ids;
            if (enc->spans) enc->spans->n = spans;
            return push_unknown(enc, word);
        }
        enc_push(enc, id, word, at, at + n);
    }
    return ST_OK;
}

/* ---- from tokenizer.json ---- */

static status read_options(tok_reader *r, const json_t *model) {
    wordpiece_model *m = r->t->model;
    TRY(tok_json_keys(r, model, "model",
                      "type unk_token continuing_subword_prefix "
                      "max_input_chars_per_word vocab"));
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    if (!json_is_string(prefix)) {
        return tok_bad(r, "model.continuing_subword_prefix", "is missing or not a string");
    }
    m->prefix = arena_strdup(r->t->mem, json_string_value(prefix));
    const json_t *max = json_object_get(model, "max_input_chars_per_word");
    if (!json_is_integer(max) || json_integer_value(max) < 0) {
        return tok_bad(r, "model.max_input_chars_per_word", "is missing or not a count");
    }
    m->max_chars = json_integer_value(max);
    return ST_OK;
}

/* The node that the prefix leads to. */
static status find_inner(tok_reader *r) {
    wordpiece_model *m = r->t->model;
    strbuf bytes = {0};
    bool spelt = piece_text_key(r->t, m->prefix, strlen(m->prefix), &bytes);
    m->inner = m->trie.unit[0];
    m->inner_depth = bytes.len;
    for (size_t i = 0; i < bytes.len; i++) {
        if (trie_step(&m->trie, &m->inner, (uint8_t)bytes.data[i])) continue;
        m->inner = (trie_unit){0, -1};
        break;
    }
    strbuf_free(&bytes);
    if (m->inner_depth > TRIE_WALK) {
        return tok_bad(r, "model.continuing_subword_prefix", "is longer than %d bytes", TRIE_WALK);
    }
    if (spelt) return ST_OK;
    return tok_bad(r, "model.continuing_subword_prefix",
                   "\"%.60s\" is not written in the byte alphabet, as ByteLevel needs", m->prefix);
}

static status wordpiece_read(tok_reader *r, const json_t *model) {
    tok *t = r->t;
    wordpiece_model *m = t->model = xcalloc(1, sizeof(*m));
    TRY(read_options(r, model));
    int32_t n;
    arena *tmp = arena_new("wordpiece pieces");
    piece_key *key = piece_keys(t, tmp, &n);
    bool fits = piece_trie_build(&m->trie, key, n);
    arena_free(tmp);
    if (!fits) return tok_bad(r, "model.vocab", PIECE_TRIE_LIMITS);
    return find_inner(r);
}

static void wordpiece_hash(const tok *t, XXH3_state_t *x) {
    const wordpiece_model *m = t->model;
    tok_hash_number(x, t->unk);
    tok_hash_number(x, m->max_chars);
    XXH3_64bits_update(x, m->prefix, strlen(m->prefix));
}

static void wordpiece_free(void *model) {
    wordpiece_model *m = model;
    if (!m) return;
    piece_trie_free(&m->trie);
    free(m);
}

const model_class MODEL_WORDPIECE = {
    .type = "WordPiece",
    .names_unk = true,
    .read = wordpiece_read,
    .free = wordpiece_free,
    .hash = wordpiece_hash,
    .encode = wordpiece_encode,
};
