/* The first symbols of a word: its bytes in byte-level models, else its characters, where one that
 * has no token becomes the tokens of its bytes or the unknown token. */
#include <stdlib.h>
#include <string.h>

#include "tok/model/bpe.h"
#include "tok/text/unicode.h"

static void reserve(bpe_work *w, size_t n) {
    if (n <= w->cap_symbols) return;
    w->cap_symbols = n < 64 ? 64 : 2 * n;
    free(w->symbol);
    w->symbol = xmalloc(w->cap_symbols * sizeof(*w->symbol));
}

static status first_bytes(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) {
    const int32_t *byte_id = enc->t->byte_id;
    *n = 0;
    for (size_t i = 0; i < word->len; i++) {
        int32_t id = byte_id[(uint8_t)word->s[i]];
        if (id < 0) id = enc->t->unk;
        if (id < 0) return enc_unknown(enc, word, i);
        w->symbol[(*n)++] = (bpe_symbol){id, (int32_t)i, (int32_t)i + 1};
    }
    return ST_OK;
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

/* <0xNN> for each byte of a character, if the vocabulary has them all. */
static bool add_fallback(const tok *t, const tok_piece *word, size_t at, size_t size, bpe_work *w,
                         int32_t *n) {
    for (size_t i = at; i < at + size; i++) {
        if (t->byte_id[(uint8_t)word->s[i]] < 0) return false;
    }
    for (size_t i = at; i < at + size; i++) {
        int32_t id = t->byte_id[(uint8_t)word->s[i]];
        w->symbol[(*n)++] = (bpe_symbol){id, (int32_t)i, (int32_t)i + 1};
    }
    return true;
}

static status first_characters(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) {
    const tok *t = enc->t;
    const bpe_model *m = t->model;
    bool was_unknown = false;
    *n = 0;
    for (size_t i = 0, size; i < word->len; i += size) {
        size = utf8_size(word->s[i]);
        int32_t id = character_id(m, word, i, size), end = (int32_t)(i + size);
        if (id < 0 && m->byte_fallback && add_fallback(t, word, i, size, w, n)) continue;
        if (id < 0 && t->unk < 0) return enc_unknown(enc, word, i);
        if (id < 0 && was_unknown && m->fuse_unk) {
            w->symbol[*n - 1].end = end;
            continue;
        }
        was_unknown = id < 0;
        w->symbol[(*n)++] = (bpe_symbol){id < 0 ? t->unk : id, (int32_t)i, end};
    }
    return ST_OK;
}

status bpe_first_symbols(tok_enc *enc, const tok_piece *word, bpe_work *w, int32_t *n) {
    reserve(w, word->len);
    return enc->t->byte_level ? first_bytes(enc, word, w, n) : first_characters(enc, word, w, n);
}
