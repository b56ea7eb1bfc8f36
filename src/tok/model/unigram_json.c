/* Reads a Unigram model from tokenizer.json and derives from it what encoding needs.
 *
 * Invariant: scores are finite, and small enough that no sum over a text overflows. */
#include "tok/format/spm.h"
#include "tok/model/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above any published model: scores are logarithms of probabilities, pieces a word or a line. */
static const double MAX_SCORE = 1e30;
enum { MAX_PIECE_BYTES = 8000 };
/* The score of an unknown character is that much below the lowest one. */
static const double UNKNOWN_PENALTY = 10;

/* ---- from the file ---- */

/* The number that Hugging Face's JSON reader makes of the shortest digits of this one: digits as an
 * integer, times or divided by a power of ten, each rounded. One in five scores is off in the last
 * place, which decides between ways of equal score. */
static double as_read_by_hf(double value) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) { /* 17 are always enough */
        snprintf(text, sizeof(text), "%.*e", digits - 1, fabs(value));
        if (digits < 17 && strtod(text, NULL) == fabs(value)) break;
    }
    const char *e = strchr(text, 'e');
    uint64_t number = 0;
    int exponent = atoi(e + 1), zeros = 0;
    for (const char *c = text; c < e; c++) {
        if (*c == '.') continue;
        number = 10 * number + (uint64_t)(*c - '0');
        zeros = *c == '0' ? zeros + 1 : 0;
        exponent -= c > text;
    }
    for (; zeros > 0 && number > 0; zeros--, exponent++) number /= 10;
    double result = (double)number;
    for (; exponent < -308; exponent += 308) result /= 1e308;
    snprintf(text, sizeof(text), "1e%d", abs(exponent));
    double power = strtod(text, NULL);
    result = exponent < 0 ? result / power : result * power;
    return value < 0 ? -result : result;
}

static status read_piece(tok_reader *r, const json_t *pair, size_t i, double *score) {
    char path[64];
    snprintf(path, sizeof(path), "model.vocab[%zu]", i);
    const json_t *text = json_array_get(pair, 0), *number = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_string(text) || !json_is_number(number)) {
        return tok_bad(r, path, "is not [piece, score]");
    }
    size_t len = json_string_length(text);
    if (len == 0) return tok_bad(r, path, "the piece is empty");
    if (len > MAX_PIECE_BYTES) return tok_bad(r, path, "the piece is %zu bytes", len);
    *score = as_read_by_hf(json_number_value(number));
    if (!(fabs(*score) <= MAX_SCORE)) {
        return tok_bad(r, path, "the score %g of \"%.60s\" is out of range", *score,
                       json_string_value(text));
    }
    return ST_OK;
}

static status read_scores(tok_reader *r, const json_t *vocab) {
    unigram_model *m = r->t->model;
    if (!json_is_array(vocab)) return tok_bad(r, "model.vocab", "is not a list of [piece, score]");
    m->score = ARENA_ARRAY(r->t->mem, double, r->t->n_token + 1) + 1;
    m->score[-1] = -INFINITY;
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        TRY(read_piece(r, json_array_get(vocab, i), i, &m->score[i]));
    }
    return ST_OK;
}

static status read_unk_id(tok_reader *r, const json_t *model) {
    const json_t *j = json_object_get(model, "unk_id");
    size_t n = json_array_size(json_object_get(model, "vocab"));
    if (tok_json_absent(j)) return ST_OK;
    json_int_t id = json_integer_value(j);
    if (!json_is_integer(j) || id < 0 || (size_t)id >= n) {
        return tok_bad(r, "model.unk_id", "is not an id of the vocabulary, which has %zu pieces",
                       n);
    }
    r->t->unk = (int32_t)id;
    return ST_OK;
}

/* ---- derived ---- */

static bool is_found_in_text(const uint8_t *type, int32_t id) {
    return !type || type[id] == SPM_NORMAL || type[id] == SPM_USER_DEFINED;
}

static void set_scores(const tok *t, unigram_model *m, const uint8_t *type) {
    double lowest = INFINITY;
    for (int32_t id = 0; id < t->n_token; id++) {
        if (!t->token[id].in_model) continue;
        if (type) m->score[id] = (double)(float)m->score[id]; /* as_read_by_hf undone */
        bool counts = !type || type[id] == SPM_NORMAL;
        if (counts && m->score[id] < lowest) lowest = m->score[id];
        if (type && type[id] == SPM_USER_DEFINED) {
            m->score[id] = (double)(float)(0.1 * ((double)t->token[id].n_text - 1));
        }
        if (fabs(m->score[id]) > m->max_abs_score) m->max_abs_score = fabs(m->score[id]);
    }
    m->unk_score = unigram_sum(m, isfinite(lowest) ? lowest : 0, -UNKNOWN_PENALTY);
    if (fabs(m->unk_score) > m->max_abs_score) m->max_abs_score = fabs(m->unk_score);
}

static void set_joined(const tok *t, unigram_model *m, const piece_key *key, int32_t n_keys) {
    m->joined = (joined_bytes){0};
    if (!t->byte_level) joined_add_characters(&m->joined);
    for (int32_t i = 0; i < n_keys; i++) joined_add_token(&m->joined, key[i].s, key[i].n);
}

/* type NULL: Hugging Face's rules. False: too many pieces for the trie. */
static bool derive(tok *t, const uint8_t *type) {
    unigram_model *m = t->model;
    arena *tmp = arena_new("unigram pieces");
    int32_t n, kept = 0;
    piece_key *key = piece_keys(t, tmp, &n);
    for (int32_t i = 0; i < n; i++) {
        if (is_found_in_text(type, key[i].value)) key[kept++] = key[i];
    }
    m->sentencepiece = type != NULL;
    m->max_abs_score = 0;
    set_scores(t, m, type);
    set_joined(t, m, key, kept);
    piece_trie_free(&m->trie);
    bool fits = piece_trie_build(&m->trie, key, kept);
    arena_free(tmp);
    return fits;
}

status unigram_read(tok_reader *r, const json_t *model) {
    tok *t = r->t;
    unigram_model *m = t->model = xcalloc(1, sizeof(*m));
    TRY(tok_json_keys(r, model, "model", "type unk_id vocab byte_fallback"));
    TRY(tok_json_bool(r, model, "model", "byte_fallback", false, &m->byte_fallback));
    TRY(read_scores(r, json_object_get(model, "vocab")));
    TRY(read_unk_id(r, model));
    if (m->byte_fallback && t->byte_level) {
        return tok_bad(r, "model.byte_fallback", "does not go together with ByteLevel");
    }
    if (m->byte_fallback) tok_index_fallbacks(t);
    if (!derive(t, NULL)) return tok_bad(r, "model.vocab", PIECE_TRIE_LIMITS);
    return ST_OK;
}

status unigram_use_sentencepiece(tok *t, const uint8_t *type, err *e) {
    if (t->class != &MODEL_UNIGRAM || t->byte_level) {
        return err_set(e, ST_USAGE, "sentencepiece's rules are for Unigram models on characters");
    }
    if (!derive(t, type)) {
        return err_set(e, ST_FORMAT, "the vocabulary " PIECE_TRIE_LIMITS);
    }
    XXH3_state_t *x = XXH3_createState();
    CHECK(x, "no memory for a hash state");
    XXH3_64bits_reset(x);
    tok_hash_number(x, (int64_t)t->hash);
    XXH3_64bits_update(x, type, (size_t)t->n_token);
    t->hash = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return ST_OK;
}

void unigram_hash(const tok *t, XXH3_state_t *x) {
    const unigram_model *m = t->model;
    tok_hash_number(x, m->byte_fallback);
    tok_hash_number(x, t->unk);
    XXH3_64bits_update(x, m->score, sizeof(*m->score) * (size_t)t->n_token);
}

void unigram_free(void *model) {
    unigram_model *m = model;
    if (!m) return;
    piece_trie_free(&m->trie);
    free(m);
}
