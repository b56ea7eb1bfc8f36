/* A trie over character numbers, as a hash map from (node, character): one look-up gives the next
 * node and the piece that ends there. The node of a single character is its number. */
#include <stdlib.h>

#include "tok/train/unigram.h"

static uint64_t key_of(int32_t node, int32_t ch) {
    return ((uint64_t)(uint32_t)node << 32 | (uint32_t)ch) + 1;
}

static uni_slot *slot_of(const uni_trie *t, uint64_t key) {
    uint32_t i = (uint32_t)mix64(key) & t->mask;
    while (t->slot[i].key && t->slot[i].key != key) i = (i + 1) & t->mask;
    return &t->slot[i];
}

static void grow(uni_trie *t) {
    uni_trie bigger = {.mask = 2 * t->mask + 1, .n_nodes = t->n_nodes};
    bigger.slot = xcalloc((size_t)bigger.mask + 1, sizeof(*bigger.slot));
    for (uint32_t i = 0; i <= t->mask; i++) {
        if (t->slot[i].key) *slot_of(&bigger, t->slot[i].key) = t->slot[i];
    }
    free(t->slot);
    *t = bigger;
}

static void add(uni_trie *t, const int32_t *ch, int32_t len, int32_t piece) {
    uni_slot *s = NULL;
    for (int32_t i = 1, node = uni_trie_first(ch[0]); i < len; i++, node = s->node) {
        if ((uint32_t)t->n_nodes > t->mask / 2) grow(t);
        uint64_t key = key_of(node, ch[i]);
        s = slot_of(t, key);
        if (!s->key) *s = (uni_slot){.key = key, .node = t->n_nodes++, .piece = -1};
    }
    s->piece = piece;
}

void uni_trie_build(uni_trie *t, const uni_model *m) {
    *t = (uni_trie){.mask = (1 << 16) - 1, .n_nodes = m->n_chars};
    while (t->mask / 2 < (uint32_t)m->n_chars) t->mask = 2 * t->mask + 1;
    t->slot = xcalloc((size_t)t->mask + 1, sizeof(*t->slot));
    for (int32_t i = m->n_chars; i < m->n; i++) {
        add(t, m->text->sym + m->piece[i].at, m->piece[i].len, i);
    }
}

void uni_trie_free(uni_trie *t) {
    free(t->slot);
    *t = (uni_trie){0};
}
