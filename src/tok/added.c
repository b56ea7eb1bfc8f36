/* Added tokens: found in the text before (special ones, mostly) or after normalisation, leftmost
 * first, the longest of those that begin at one place. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/text/unicode.h"

static int32_t new_node(tok_trie *m) {
    VEC_PUSH(m->token, m->n_nodes, m->cap_nodes, -1);
    return m->n_nodes - 1;
}

static void note_start(tok_trie *m, const char *text, size_t len) {
    uint8_t first = (uint8_t)text[0];
    m->first[first] = true;
    for (int second = 0; second < 256; second++) {
        int bit = first * 256 + second;
        bool begins = len == 1 || (uint8_t)text[1] == second;
        m->two[bit / 64] |= (uint64_t)begins << bit % 64;
    }
}

/* Whether a token may begin at text[i]: nearly always not, so this has to be quick. */
static inline bool may_begin(const tok_trie *m, const char *text, size_t len, size_t i) {
    if (!m->first[(uint8_t)text[i]]) return false;
    if (i + 1 == len) return true;
    int bit = (uint8_t)text[i] * 256 + (uint8_t)text[i + 1];
    return m->two[bit / 64] >> bit % 64 & 1;
}

void tok_trie_add(tok_trie *m, const char *text, size_t len, tok_added a) {
    if (len == 0) return;
    if (m->n_nodes == 0) new_node(m);
    int32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t edge = pair_key(node, (uint8_t)text[i]);
        int32_t next = pair_map_get(&m->edge, edge);
        if (next < 0) {
            next = new_node(m);
            pair_map_put(&m->edge, edge, next);
        }
        node = next;
    }
    note_start(m, text, len);
    m->token[node] = m->n_added;
    VEC_PUSH(m->added, m->n_added, m->cap_added, a);
}

void tok_trie_free(tok_trie *m) {
    pair_map_free(&m->edge);
    free(m->token);
    free(m->added);
    *m = (tok_trie){0};
}

/* The longest token at text[0]; its length through *n, NULL when none begins here. */
static const tok_added *longest(const tok_trie *m, const char *text, size_t len, size_t *n) {
    const tok_added *best = NULL;
    int32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = pair_map_get(&m->edge, pair_key(node, (uint8_t)text[i]));
        if (node < 0) break;
        if (m->token[node] < 0) continue;
        best = &m->added[m->token[node]];
        *n = i + 1;
    }
    return best;
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

/* White space before `start` belongs to an lstrip token, down to `floor`. */
static size_t strip_left(const char *text, size_t start, size_t floor) {
    size_t n;
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

status tok_added_split(tok_enc *enc, const tok_trie *m, const tok_piece *p, tok_rest_fn *rest) {
    const char *text = p->s;
    size_t len = p->len, done = 0;
    for (size_t i = 0; m->n_added > 0 && i < len;) {
        size_t n = 0;
        const tok_added *a = may_begin(m, text, len, i) ? longest(m, text + i, len - i, &n) : NULL;
        if (!a) {
            i++;
            continue;
        }
        size_t start = i, end = i + n;
        i = end;
        if (a->single_word && !is_single_word(text, len, start, end)) continue;
        if (a->lstrip) start = strip_left(text, start, done);
        if (a->rstrip) end = strip_right(text, len, end);
        tok_piece before = piece_slice(p, done, start);
        if (done < start) TRY(rest(enc, &before));
        enc_push(enc, a->id, p, start, end);
        done = end;
    }
    tok_piece after = piece_slice(p, done, len);
    return done < len ? rest(enc, &after) : ST_OK;
}
