/* Added tokens: found in the text before (special ones, mostly) or after normalisation, leftmost
 * first, the longest of those that begin at one place. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/text/unicode.h"

void tok_added_add(tok_added_set *m, const char *text, size_t len, tok_added a) {
    if (len == 0) return;
    int32_t known = str_map_get(&m->by_text, text, len);
    if (known >= 0) {
        m->added[known] = a;
        return;
    }
    m->first[(uint8_t)text[0]] = true;
    str_map_add(&m->by_text, text, len, m->n_added);
    VEC_PUSH(m->added, m->n_added, m->cap_added, a);
}

bool tok_added_build(tok_added_set *m) {
    piece_key *key = xmalloc(sizeof(*key) * ((size_t)m->by_text.n + 1));
    int32_t n = 0;
    for (uint32_t i = 0; i < m->by_text.cap; i++) {
        const str_entry *e = &m->by_text.slot[i];
        if (e->s) key[n++] = (piece_key){e->s, e->len, e->value};
    }
    piece_trie_free(&m->trie);
    bool fits = piece_trie_build(&m->trie, key, n);
    free(key);
    return fits;
}

void tok_added_free(tok_added_set *m) {
    str_map_free(&m->by_text);
    piece_trie_free(&m->trie);
    free(m->added);
    *m = (tok_added_set){0};
}

/* The longest token at text[0]; its length through *n, NULL when none begins here. */
static const tok_added *longest(const tok_added_set *m, const char *text, size_t len, size_t *n) {
    int32_t found = trie_longest(&m->trie, m->trie.unit[0], 0, text, len, n);
    return found >= 0 ? &m->added[found] : NULL;
}

/* Start of the character that ends at `end` (> 0). */
static size_t char_before(const char *text, size_t end) {
    size_t i = end - 1;
    while (i > 0 && utf8_continues(text[i])) i--;
    return i;
}

static bool word_at(const char *text, size_t len, size_t i) {
    uint32_t cp;
    return i < len && utf8_decode(text + i, len - i, &cp) > 0 && uni_is_word(cp);
}

static bool is_single_word(const char *text, size_t len, size_t start, size_t end) {
    return !(start > 0 && word_at(text, len, char_before(text, start))) && !word_at(text, len, end);
}

static bool space_at(const char *text, size_t len, size_t i, size_t *n) {
    uint32_t cp;
    int k = utf8_decode(text + i, len - i, &cp);
    *n = (size_t)k;
    return k > 0 && uni_class_of(cp) == UNI_SPACE;
}

/* White space before `start` belongs to an lstrip token, down to `floor`; and what is below that does
 * not, as an rstrip token has taken it. */
static size_t strip_left(const char *text, size_t start, size_t floor) {
    size_t n;
    if (start < floor) return floor;
    while (start > floor) {
        size_t before = char_before(text, start);
        if (!space_at(text, start, before, &n)) break;
        start = before;
    }
    return start;
}

static size_t strip_right(const char *text, size_t len, size_t end) {
    size_t n;
    while (end < len && space_at(text, len, end, &n)) end += n;
    return end;
}

status tok_added_split(tok_enc *enc, const tok_added_set *m, const tok_piece *p,
                       tok_rest_fn *rest) {
    const char *text = p->s;
    size_t len = p->len, done = 0;
    for (size_t i = 0; m->n_added > 0 && i < len;) {
        size_t n = 0;
        const tok_added *a = m->first[(uint8_t)text[i]] ? longest(m, text + i, len - i, &n) : NULL;
        if (!a) {
            i++;
            continue;
        }
        size_t start = i, end = i + n;
        i = end;
        if (a->single_word && !is_single_word(text, len, start, end)) continue;
        if (a->lstrip) start = strip_left(text, start, done);
        if (a->rstrip) end = strip_right(text, len, end);
        if (start >= end) continue; /* nothing is left of it */
        tok_piece before = piece_slice(p, done, start);
        if (done < start) TRY(rest(enc, &before));
        enc_push(enc, a->id, p, start, end);
        done = end;
    }
    tok_piece after = piece_slice(p, done, len);
    return done < len ? rest(enc, &after) : ST_OK;
}
