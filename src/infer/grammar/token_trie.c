#include "infer/grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

typedef struct token_text {
    const char *s;
    size_t n;
    int32_t id;
} token_text;

static int by_text(const void *a, const void *b) {
    const token_text *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    if (order != 0) return order;
    return x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x->id > y->id) - (x->id < y->id);
}

/* The tokens that are text, sorted. */
static token_text *gather(token_trie *v, int32_t *n) {
    token_text *list = xmalloc(sizeof *list * (size_t)(v->n_ids + 1));
    *n = 0;
    for (int32_t id = 0; id < v->n_ids; id++) {
        token_text t = {.id = id};
        t.s = tok_bytes(v->tok, id, &t.n);
        if (!t.s || t.n == 0 || t.n > TOKEN_TRIE_DEPTH) continue;
        if (tok_is_added(v->tok, id))
            VEC_PUSH(v->added, v->n_added, v->cap_added, id);
        else
            list[(*n)++] = t;
    }
    qsort(list, (size_t)*n, sizeof *list, by_text);
    return list;
}

/* Ends the nodes of `open` that are at least so deep: what comes next is not below them. */
static void close_from(token_trie *v, const int32_t *open, size_t *depth, size_t from) {
    for (; *depth > from; --*depth) v->node[open[*depth]].skip = v->n;
}

static void add_all(token_trie *v, const token_text *list, int32_t n) {
    int32_t open[TOKEN_TRIE_DEPTH + 1];
    size_t depth = 0;
    for (int32_t i = 0; i < n; i++) {
        size_t same = 0;
        while (same < depth && same < list[i].n &&
               v->node[open[same + 1]].byte == (uint8_t)list[i].s[same])
            same++;
        close_from(v, open, &depth, same);
        while (depth < list[i].n) {
            trie_node k = {.byte = (uint8_t)list[i].s[depth], .id = -1};
            k.depth = (uint8_t)++depth;
            open[depth] = v->n;
            VEC_PUSH(v->node, v->n, v->cap, k);
        }
        trie_node *last = &v->node[open[depth]];
        v->same[list[i].id] = last->id;
        last->id = list[i].id;
    }
    close_from(v, open, &depth, 0);
}

token_trie *token_trie_new(const tok *t, int32_t n_ids) {
    token_trie *v = xcalloc(1, sizeof *v);
    int32_t n = tok_vocab_size(t);
    v->tok = t;
    v->n_ids = n_ids < n ? n_ids : n;
    v->same = xmalloc(sizeof *v->same * (size_t)(v->n_ids + 1));
    for (int32_t i = 0; i < v->n_ids; i++) v->same[i] = -1;
    token_text *list = gather(v, &n);
    add_all(v, list, n);
    free(list);
    int32_t at = 0;
    for (int b = 0; b < 256; b++) {
        v->first[b] = at;
        if (at < v->n && v->node[at].byte == b) at = v->node[at].skip;
    }
    v->first[256] = v->n;
    return v;
}

void token_trie_free(token_trie *v) {
    if (!v) return;
    free(v->node);
    free(v->same);
    free(v->added);
    free(v);
}

int32_t token_trie_longest(const token_trie *v, const char *text, size_t n, size_t *len) {
    int32_t id = -1;
    *len = 0;
    if (n == 0) return id;
    int32_t at = v->first[(uint8_t)text[0]], end = v->first[(uint8_t)text[0] + 1];
    for (size_t depth = 0; at < end && depth < n;) {
        const trie_node *k = &v->node[at];
        if (k->byte != (uint8_t)text[depth]) {
            at = k->skip;
            continue;
        }
        depth++;
        if (k->id >= 0) {
            id = k->id;
            *len = depth;
        }
        end = k->skip;
        at++;
    }
    return id;
}
