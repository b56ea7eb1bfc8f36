/* The first symbols of a word: its bytes in byte-level models, else its characters, where one that
 * has no token becomes the tokens of its bytes or the unknown token.
 *
 * They are written down to be merged. A model without merges gives them out as ids at once: its word
 * may be a whole text, and needs no memory beside the ids. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/model/bpe.h"

static void reserve(bpe_work *w, size_t n) {
    if (n <= w->cap_symbols) return;
    w->cap_symbols = n < 64 ? 64 : 2 * n;
    free(w->symbol);
    w->symbol = xmalloc(w->cap_symbols * sizeof(*w->symbol));
}

/* Length of a byte's character in the byte alphabet, which is the text that tokenizers works on. */
static inline int32_t spelled(char byte) {
    return byte_alphabet_char((uint8_t)byte) < 0x80 ? 1 : 2;
}

/* Some bytes were left out. Places as tokenizers has them: it lays the symbols that are left side
 * by side from the start of the word, and looks up what stood there. */
static void close_ranks(const tok_piece *word, bpe_symbol *symbol, int32_t n) {
    int32_t start = 0, from = 0, at = 0; /* the byte at index `at` is spelled from `from` on */
    for (int32_t i = 0; i < n; i++) {
        int32_t end = start + spelled(word->s[symbol[i].at]);
        for (; from + spelled(word->s[at]) <= start; at++) from += spelled(word->s[at]);
        symbol[i].at = at;
        for (; from + spelled(word->s[at]) < end; at++) from += spelled(word->s[at]);
        symbol[i].end = at + 1;
        start = end;
    }
}

/* A vocabulary need not have all bytes (SmolLM2's lacks some control characters): one without a
 * token and without an unknown token is left out, as tokenizers and llama.cpp do, and counted. */
static void first_bytes(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) {
    const int32_t *byte_id = enc->t->byte_id;
    *n = 0;
    for (size_t i = 0; i < word->len; i++) {
        int32_t id = byte_id[(uint8_t)word->s[i]];
        if (id < 0) id = enc->t->unk;
        if (id >= 0) w->symbol[(*n)++] = (bpe_symbol){id, (int32_t)i, (int32_t)i + 1};
    }
    int64_t lost = (int64_t)word->len - *n;
    if (lost == 0) return;
    enc->lost_bytes += lost;
    if (enc->spans) close_ranks(word, w->symbol, *n);
}

/* The token of a character at its place in the word, with the affixes that belong there. */
static int32_t character_id(const bpe_model *m, const tok_piece *word, size_t at, size_t size) {
    const char *before = m->prefix && at > 0 ? m->prefix : "";
    const char *after = m->suffix && at + size == word->len ? m->suffix : "";
    if (!*before && !*after) return str_map_get(&m->by_bytes, word->s + at, size);
    char text[2 * TOK_MAX_AFFIX + 4];
    size_t n = strlen(before);
    memcpy(text, before, n);
    memcpy(text + n, word->s + at, size);
    memcpy(text + n + size, after, strlen(after));
    return str_map_get(&m->by_bytes, text, n + size + strlen(after));
}

/* Symbols in the order of tokenizers: unknown characters wait, so as to be fused, until a character
 * with a token of its own comes, or another unknown one that is not fused. Fallback bytes do not
 * wait for them: in a vocabulary that has the bytes of some characters only they overtake unknown
 * ones. Places follow the symbols. */
typedef struct symbol_line {
    tok_enc *enc;
    const tok_piece *word;
    bpe_symbol *symbol; /* NULL: symbols become ids at once */
    int32_t n, end;
    int32_t unknown; /* bytes that wait */
} symbol_line;

static void add(symbol_line *l, int32_t id, int32_t len) {
    int32_t at = l->end;
    l->end += len;
    if (l->symbol)
        l->symbol[l->n++] = (bpe_symbol){id, at, l->end};
    else
        enc_push(l->enc, id, l->word, (size_t)at, (size_t)l->end);
}

static void add_unknown(symbol_line *l, int32_t unk) {
    if (l->unknown > 0) add(l, unk, l->unknown);
    l->unknown = 0;
}

/* <0xNN> for each byte of a character, if the vocabulary has them all. */
static bool add_fallback(const tok *t, const char *s, size_t size, symbol_line *l) {
    for (size_t i = 0; i < size; i++) {
        if (t->byte_id[(uint8_t)s[i]] < 0) return false;
    }
    for (size_t i = 0; i < size; i++) add(l, t->byte_id[(uint8_t)s[i]], 1);
    return true;
}

static status first_characters(tok_enc *enc, const tok_piece *word, bpe_symbol *symbol,
                               int32_t *n) {
    const tok *t = enc->t;
    const bpe_model *m = t->model;
    symbol_line l = {.enc = enc, .word = word, .symbol = symbol};
    for (size_t i = 0, size; i < word->len; i += size) {
        size = utf8_size(word->s[i]);
        int32_t id = character_id(m, word, i, size);
        if (id >= 0) {
            add_unknown(&l, t->unk);
            add(&l, id, (int32_t)size);
        } else if (!m->byte_fallback || !add_fallback(t, word->s + i, size, &l)) {
            if (t->unk < 0) return enc_unknown(enc, word, i);
            if (!m->fuse_unk) add_unknown(&l, t->unk);
            l.unknown += (int32_t)size;
        }
    }
    add_unknown(&l, t->unk);
    *n = l.n;
    return ST_OK;
}

status bpe_first_symbols(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) {
    reserve(w, word->len);
    if (!enc->t->byte_level) return first_characters(enc, word, w->symbol, n);
    first_bytes(enc, word, w, n);
    return ST_OK;
}

status bpe_push_symbols(tok_enc *enc, const tok_piece *word) {
    int32_t n;
    if (!enc->t->byte_level) return first_characters(enc, word, NULL, &n);
    for (size_t i = 0; i < word->len; i++) {
        int32_t id = enc->t->byte_id[(uint8_t)word->s[i]];
        if (id < 0) id = enc->t->unk;
        enc->lost_bytes += id < 0;
        if (id >= 0) enc_push(enc, id, word, i, i + 1);
    }
    return ST_OK;
}
