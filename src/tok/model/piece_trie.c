/* Builds the double array of piece_trie.h.
 *
 * Nodes are placed breadth first, so that those near the root share cache lines. A node's children
 * go into the first free units that hold them all; only the youngest blocks are searched, which
 * keeps building near linear. */
#include "tok/model/piece_trie.h"

#include <stdlib.h>
#include <string.h>

#include "tok/internal.h"

enum { BLOCK = 256, OPEN_BLOCKS = 16, FREE_LABEL = 256 };

/* A node whose children are still to be placed: keys [from, to) agree in their first `depth` bytes.
 */
typedef struct task {
    uint32_t unit;
    int32_t from, to;
    uint32_t depth;
} task;

typedef struct builder {
    const piece_key *key;
    trie_unit *unit;
    bool *base_taken;     /* [cap] */
    int32_t *next, *prev; /* free units of the open blocks, as a ring through `head` */
    int32_t head;         /* -1: none */
    uint32_t n, cap;
    task *queue;
    size_t first, n_tasks, cap_tasks;
} builder;

static int compare_keys(const void *a, const void *b) {
    const piece_key *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* ---- free units ---- */

static void ring_add(builder *b, int32_t i) {
    if (b->head < 0) {
        b->head = b->next[i] = b->prev[i] = i;
        return;
    }
    int32_t last = b->prev[b->head];
    b->next[last] = i;
    b->prev[i] = last;
    b->next[i] = b->head;
    b->prev[b->head] = i;
}

static void ring_remove(builder *b, int32_t i) {
    b->next[b->prev[i]] = b->next[i];
    b->prev[b->next[i]] = b->prev[i];
    if (b->head == i) b->head = b->next[i] == i ? -1 : b->next[i];
}

static bool is_free(const builder *b, uint32_t i) {
    return b->unit[i].link == FREE_LABEL;
}

static void grow(builder *b) {
    if (b->n + BLOCK <= b->cap) return;
    b->cap = b->cap ? 2 * b->cap : 16 * BLOCK;
    b->unit = xrealloc(b->unit, sizeof(*b->unit) * b->cap);
    b->base_taken = xrealloc(b->base_taken, sizeof(*b->base_taken) * b->cap);
    b->next = xrealloc(b->next, sizeof(*b->next) * b->cap);
    b->prev = xrealloc(b->prev, sizeof(*b->prev) * b->cap);
}

/* Appends a block of free units and stops looking at an old one. */
static void add_block(builder *b, bool open) {
    grow(b);
    if (b->n >= OPEN_BLOCKS * BLOCK) {
        uint32_t old = b->n - OPEN_BLOCKS * BLOCK;
        for (uint32_t i = old; i < old + BLOCK; i++) {
            if (old > 0 && is_free(b, i)) ring_remove(b, (int32_t)i);
        }
    }
    for (uint32_t i = b->n; i < b->n + BLOCK; i++) {
        b->unit[i] = (trie_unit){FREE_LABEL, -1};
        b->base_taken[i] = false;
        if (open) ring_add(b, (int32_t)i);
    }
    b->n += BLOCK;
}

static bool fits(const builder *b, uint32_t base, const uint8_t *label, int n) {
    if (b->base_taken[base]) return false;
    for (int i = 1; i < n; i++) {
        if (!is_free(b, base ^ label[i])) return false;
    }
    return true;
}

/* A base for children by these bytes, with their units taken out of the ring. */
static uint32_t place(builder *b, const uint8_t *label, int n) {
    int32_t i = b->head;
    while (i >= 0 && !fits(b, (uint32_t)i ^ label[0], label, n)) {
        i = b->next[i] == b->head ? -1 : b->next[i];
    }
    if (i < 0) {
        add_block(b, true);
        i = (int32_t)(b->n - BLOCK);
    }
    uint32_t base = (uint32_t)i ^ label[0];
    b->base_taken[base] = true;
    for (int k = 0; k < n; k++) {
        uint32_t child = base ^ label[k];
        ring_remove(b, (int32_t)child);
        b->unit[child] = (trie_unit){label[k], -1}; /* base 0: a leaf, until its turn comes */
    }
    return base;
}

/* ---- nodes ---- */

static void push_task(builder *b, task t) {
    VEC_PUSH(b->queue, b->n_tasks, b->cap_tasks, t);
}

/* Where the keys from `from` on stop having the same byte at `depth`. */
static int32_t group_end(const builder *b, int32_t from, int32_t to, uint32_t depth) {
    int32_t i = from + 1;
    while (i < to && b->key[i].s[depth] == b->key[from].s[depth]) i++;
    return i;
}

static void expand(builder *b, task t) {
    uint8_t label[256];
    int32_t start[257];
    int n = 0;
    if (b->key[t.from].n == t.depth) b->unit[t.unit].value = b->key[t.from++].value;
    for (int32_t i = t.from; i < t.to; n++) {
        label[n] = (uint8_t)b->key[i].s[t.depth];
        start[n] = i;
        i = group_end(b, i, t.to, t.depth);
    }
    if (n == 0) return;
    start[n] = t.to;
    uint32_t base = place(b, label, n);
    b->unit[t.unit].link |= base << TRIE_LABEL_BITS;
    for (int i = 0; i < n; i++) {
        push_task(b, (task){base ^ label[i], start[i], start[i + 1], t.depth + 1});
    }
}

/* ---- long keys ---- */

/* Long keys that begin alike lie side by side. False: their tails are too many bytes. */
static bool find_tails(piece_trie *t, const piece_key *key, int32_t n) {
    const piece_key *before = NULL; /* the long key before the one at hand */
    size_t bytes = 0;
    int32_t first = 0;
    for (int32_t i = 0; i < n; i++) {
        if (key[i].n <= TRIE_WALK) continue;
        if (!before || memcmp(before->s, key[i].s, TRIE_WALK) != 0) {
            trie_unit node = t->unit[0];
            for (int k = 0; k < TRIE_WALK; k++) trie_step(t, &node, (uint8_t)key[i].s[k]);
            first = t->n_tails;
            pair_map_put(&t->first_tail, node.link, first);
            bytes = 0;
        }
        before = &key[i];
        uint32_t n_tail = key[i].n - TRIE_WALK;
        bytes += n_tail;
        if (bytes > TRIE_MAX_LONG) return false;
        char *s = memcpy(xmalloc(n_tail), key[i].s + TRIE_WALK, n_tail);
        trie_tail tail = {{s, n_tail, key[i].value}, first};
        VEC_PUSH(t->tail, t->n_tails, t->cap_tails, tail);
    }
    return true;
}

const piece_key *trie_long(const piece_trie *t, trie_unit at, const char *s, size_t n,
                           int32_t *next) {
    int32_t i = *next < 0 ? pair_map_get(&t->first_tail, at.link) : *next;
    if (i < 0) return NULL;
    int32_t first = *next < 0 ? i : t->tail[i - 1].first;
    for (; i < t->n_tails && t->tail[i].first == first; i++) {
        const piece_key *k = &t->tail[i].key;
        if (k->n > n || memcmp(k->s, s, k->n) != 0) continue;
        *next = i + 1;
        return k;
    }
    return NULL;
}

bool piece_trie_build(piece_trie *t, piece_key *key, int32_t n) {
    if (n > 0) qsort(key, (size_t)n, sizeof(*key), compare_keys);
    builder b = {.key = key, .head = -1};
    add_block(&b, false); /* the root and the children of leaves */
    if (n > 0) push_task(&b, (task){0, 0, n, 0});
    while (b.first < b.n_tasks && b.n <= TRIE_MAX_UNITS) {
        expand(&b, b.queue[b.first++]);
    }
    *t = (piece_trie){.unit = b.unit, .n_units = b.n};
    free(b.base_taken);
    free(b.next);
    free(b.prev);
    free(b.queue);
    return b.n <= TRIE_MAX_UNITS && find_tails(t, key, n);
}

void piece_trie_free(piece_trie *t) {
    free(t->unit);
    for (int32_t i = 0; i < t->n_tails; i++) free((char *)t->tail[i].key.s);
    free(t->tail);
    pair_map_free(&t->first_tail);
    *t = (piece_trie){0};
}

int32_t piece_trie_find(const piece_trie *t, const char *s, size_t n) {
    trie_unit at = t->unit[0];
    for (size_t i = 0; i < n; i++) {
        if (!trie_step(t, &at, (uint8_t)s[i])) return -1;
    }
    return at.value;
}

/* ---- the vocabulary as keys ---- */

bool piece_text_key(const tok *t, const char *text, size_t n, strbuf *out) {
    strbuf_clear(out);
    if (t->byte_level) return byte_alphabet_read(out, text, n);
    strbuf_append(out, text, n);
    return true;
}

piece_key *piece_keys(const tok *t, arena *mem, int32_t *n) {
    piece_key *key = ARENA_ARRAY(mem, piece_key, t->n_token);
    strbuf bytes = {0};
    *n = 0;
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->in_model || !piece_text_key(t, k->text, k->n_text, &bytes) || bytes.len == 0) {
            continue;
        }
        const char *s = t->byte_level ? arena_memdup(mem, bytes.data, bytes.len) : k->text;
        key[(*n)++] = (piece_key){s, (uint32_t)bytes.len, id};
    }
    strbuf_free(&bytes);
    return key;
}
