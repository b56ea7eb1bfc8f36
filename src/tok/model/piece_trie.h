/* A set of byte strings with a number each, as a double array: the child of a node by byte b stands
 * at base ^ b, so a step is one load of eight bytes. For models that look for the vocabulary's
 * pieces in a text.
 *
 * Walking: start at unit[0], trie_step for each byte; the value is that of the bytes so far. A walk
 * from every place of a text takes as many steps as pieces are long, and a hostile vocabulary has
 * pieces of many thousand bytes. So a walk ends TRIE_WALK bytes below the root, and longer pieces
 * are compared as a whole from there: trie_long. */
#ifndef TOK_MODEL_PIECE_TRIE_H
#define TOK_MODEL_PIECE_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "tok/text/map.h"

struct tok;

/* link = base << TRIE_LABEL_BITS | label. The label is the byte that leads here; it is above 255 in
 * a free unit and in the root, which no byte leads to. No two nodes have the same base. */
typedef struct trie_unit {
    uint32_t link;
    int32_t value; /* -1: no string ends here */
} trie_unit;

enum {
    TRIE_LABEL_BITS = 9,
    TRIE_LABEL_MASK = (1 << TRIE_LABEL_BITS) - 1,
    TRIE_MAX_UNITS = 1 << (32 - TRIE_LABEL_BITS),
    TRIE_WALK = 64,          /* bytes */
    TRIE_MAX_LONG = 32 << 10 /* bytes together of the pieces that begin with the same TRIE_WALK */
};

typedef struct piece_key {
    const char *s;
    uint32_t n;
    int32_t value; /* >= 0 */
} piece_key;

/* What a key longer than TRIE_WALK has behind it. */
typedef struct trie_tail {
    piece_key key;
    int32_t first; /* tail of a key that begins with the same TRIE_WALK bytes */
} trie_tail;

/* unit holds all keys, tail the ends of long ones once more. */
typedef struct piece_trie {
    trie_unit
        *unit; /* unit[0] is the root, unit[1..255] are free for good: the children of a leaf */
    uint32_t n_units;
    trie_tail *tail; /* below one node side by side, shorter ones before those they begin */
    int32_t n_tails, cap_tails;
    pair_map first_tail; /* the link of a node at depth TRIE_WALK -> its first tail */
} piece_trie;

/* What is wrong when piece_trie_build gives false. */
#define PIECE_TRIE_LIMITS "has too many pieces, or too many long ones that begin alike"
/* Builds the trie of different, non-empty keys; sorts them. False: they need more than
 * TRIE_MAX_UNITS nodes, or are long and too much alike (TRIE_MAX_LONG). Free with piece_trie_free in
 * either case. */
bool piece_trie_build(piece_trie *t, piece_key *key, int32_t n) ATH_MUST_USE;
void piece_trie_free(piece_trie *t);

/* Moves to the child by `byte`; false when there is none. */
static inline bool trie_step(const piece_trie *t, trie_unit *at, uint8_t byte) {
    *at = t->unit[(at->link >> TRIE_LABEL_BITS) ^ byte];
    return (at->link & TRIE_LABEL_MASK) == byte;
}

/* The longer keys below a node at depth TRIE_WALK: those that s[0..n), the text behind the node,
 * begins with. Begin with *next = -1 and call until NULL comes; .n counts bytes of s. */
const piece_key *trie_long(const piece_trie *t, trie_unit at, const char *s, size_t n,
                           int32_t *next);

/* The longest key that the bytes to a node, `depth` <= TRIE_WALK of them, and then s[0..n) begin
 * with: its value, -1 if there is none, and how much of s it takes. */
static inline int32_t trie_longest(const piece_trie *t, trie_unit at, size_t depth, const char *s,
                                   size_t n, size_t *len) {
    size_t i = 0, walk = TRIE_WALK - depth;
    int32_t value = -1, next = -1;
    while (i < n && i < walk && trie_step(t, &at, (uint8_t)s[i])) {
        i++;
        if (at.value < 0) continue;
        value = at.value;
        *len = i;
    }
    if (i < walk) return value;
    for (const piece_key *k; (k = trie_long(t, at, s + walk, n - walk, &next)) != NULL;) {
        value = k->value;
        *len = walk + k->n;
    }
    return value;
}

/* The value of s[0..n), -1 when it is not in the set. */
int32_t piece_trie_find(const piece_trie *t, const char *s, size_t n);

/* ---- the vocabulary as keys ---- */

/* Appends to *out, which is cleared first, the bytes that a piece matches in the text that a model
 * sees: its characters or, when the model works on bytes, those it spells in the byte alphabet.
 * False: it spells none. */
bool piece_text_key(const struct tok *t, const char *text, size_t n, strbuf *out);

/* The keys of all model tokens, values their ids, in the arena; what spells no bytes and the empty
 * string are left out. */
piece_key *piece_keys(const struct tok *t, arena *mem, int32_t *n);

#endif
