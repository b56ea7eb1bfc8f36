/* Finds where text can be cut before it is merged; see bpe_cut in bpe.h.
 *
 * A run of unknown characters may be one token: then only a mark, which is a token itself, surely
 * ends it. */
#include <stdlib.h>
#include <string.h>

#include "tok/model/bpe.h"

static const char MARK[] = "\xE2\x96\x81"; /* U+2581, which stands for a space */
enum { MARK_BYTES = 3 };

static inline bool mark_at(const char *s, size_t i, size_t n) {
    return n - i >= MARK_BYTES && memcmp(s + i, MARK, MARK_BYTES) == 0;
}

static inline bool mark_ends_at(const char *s, size_t i) {
    return i >= MARK_BYTES && memcmp(s + i - MARK_BYTES, MARK, MARK_BYTES) == 0;
}

static bool has_all_bytes(const tok *t) {
    for (int b = 0; b < 256; b++) {
        if (t->byte_id[b] < 0) return false;
    }
    return true;
}

/* Whether some merge takes the token of a byte, which may be half of a character. */
static bool merges_bytes(const tok *t, const bpe_model *m) {
    uint8_t *is_byte = xcalloc((size_t)t->n_token, 1);
    uint64_t n = (uint64_t)t->n_token; /* sentencepiece's characters without a piece come after */
    bool found = false;
    for (int b = 0; b < 256; b++) is_byte[t->byte_id[b]] = 1;
    for (uint32_t i = 0; i <= m->mask && !found; i++) {
        uint64_t left = (m->slot[i].pair - 1) >> 32, right = (m->slot[i].pair - 1) & UINT32_MAX;
        if (m->slot[i].pair == 0) continue;
        found = (left < n && is_byte[left]) || (right < n && is_byte[right]);
    }
    free(is_byte);
    return found;
}

/* What one token has side by side. */
static void note_token(bpe_cut *c, const tok_token *k) {
    joined_add_token(&c->joined, k->text, k->n_text);
    for (uint32_t i = 1; i < k->n_text; i++) {
        if (mark_at(k->text, i, k->n_text) && !mark_ends_at(k->text, i)) c->before_mark = false;
    }
}

void bpe_cut_find(const tok *t, bpe_model *m) {
    bpe_cut *c = &m->cut;
    if (t->byte_level || m->ignore_merges || m->prefix || m->suffix) return;
    c->before_mark = tok_model_id(t, MARK, MARK_BYTES) >= 0;
    c->elsewhere = m->byte_fallback && has_all_bytes(t) && !merges_bytes(t, m);
    joined_add_characters(&c->joined);
    for (int32_t id = 0; id < t->n_token; id++) {
        if (t->token[id].in_model) note_token(c, &t->token[id]);
    }
    c->possible = c->before_mark || c->elsewhere;
}

bool bpe_is_apart(const tok *t) {
    const bpe_model *m = t->model;
    if (t->class != &MODEL_BPE || m->n_merges > 0 || m->ignore_merges) return false;
    if (t->byte_level) return true;
    return !m->prefix && !m->suffix && !m->fuse_unk && !m->byte_fallback;
}

static inline bool is_cut(const bpe_cut *c, const char *s, size_t n, size_t i) {
    uint8_t a = (uint8_t)s[i - 1], b = (uint8_t)s[i];
    if (c->elsewhere && !joined_has(&c->joined, a, b)) return true;
    return b == (uint8_t)MARK[0] && c->before_mark && mark_at(s, i, n) && !mark_ends_at(s, i);
}

size_t bpe_cut_end(const bpe_cut *c, const char *s, size_t n, size_t from) {
    size_t i = from + 1;
    while (i < n && !is_cut(c, s, n, i)) i++;
    return i;
}
