/* Makes a precompiled_charsmap; see charsmap_make.h.
 *
 * Darts-clone keeps the value of a key in the child by byte 0 of its last node, so keys go into the
 * trie with a NUL at their end; the units of piece_trie.h then turn into its units one by one. */
#include "tok/format/charsmap_make.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/model/piece_trie.h"
#include "tok/normalize/normalize.h"

/* ---- the binary form ---- */

enum { HAS_LEAF = 1 << 8, OFFSET_SHIFT = 10, MAX_OFFSET = 1 << 21 };

static int by_key(const void *a, const void *b) {
    const charsmap_rule *x = a, *y = b;
    return strcmp(x->from, y->from);
}

/* Leaves hold a value, other nodes the way to their children. */
static uint32_t darts_unit(const piece_trie *t, uint32_t i) {
    const trie_unit *u = &t->unit[i];
    uint32_t label = u->link & TRIE_LABEL_MASK, base = u->link >> TRIE_LABEL_BITS;
    if (i > 0 && label > 0xFF) return 0; /* free: byte 0, which is not in a text */
    if (u->value >= 0) return (uint32_t)u->value | 1u << 31;
    uint32_t offset = base ^ i, leaf = t->unit[base].link & TRIE_LABEL_MASK;
    CHECK(offset < MAX_OFFSET, "the rules need %u units", t->n_units);
    return offset << OFFSET_SHIFT | (i > 0 ? label : 0) | (base > 0 && leaf == 0 ? HAS_LEAF : 0);
}

static void put_u32(strbuf *b, uint32_t v) {
    for (int i = 0; i < 4; i++) strbuf_putc(b, (char)(v >> 8 * i));
}

void charsmap_make(charsmap_rule *rule, int32_t n, strbuf *out) {
    piece_key *key = xmalloc(sizeof(*key) * ((size_t)n + 1));
    piece_trie trie;
    strbuf text = {0};
    int32_t n_keys = 0;
    qsort(rule, (size_t)n, sizeof(*rule), by_key);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(rule[i].from, rule[i - 1].from) == 0) continue;
        uint32_t len = (uint32_t)strlen(rule[i].from) + 1;
        key[n_keys++] = (piece_key){rule[i].from, len, (int32_t)text.len};
        strbuf_append(&text, rule[i].to, strlen(rule[i].to) + 1);
    }
    CHECK(piece_trie_build(&trie, key, n_keys), "too many rules");
    put_u32(out, 4 * trie.n_units);
    for (uint32_t i = 0; i < trie.n_units; i++) put_u32(out, darts_unit(&trie, i));
    strbuf_append(out, text.data, text.len);
    piece_trie_free(&trie);
    strbuf_free(&text);
    free(key);
}

/* ---- normal form KC ---- */

typedef struct nfkc_rules {
    arena *mem;
    norm_work work;
    charsmap_rule *rule;
    int32_t n, cap;
} nfkc_rules;

/* A normal form of a text, in the arena. */
static const char *normal(nfkc_rules *r, norm_kind kind, const char *s) {
    norm_step step = {.kind = kind};
    tok_piece in = {.s = s, .len = strlen(s), .first = true}, out;
    CHECK(norm_run(&step, 1, &in, &r->work, &out, NULL) == ST_OK, "a normal form fails");
    return arena_strndup(r->mem, out.s, out.len);
}

static void add(nfkc_rules *r, const char *from, const char *to) {
    if (strcmp(from, to) == 0) return;
    charsmap_rule rule = {from, to};
    VEC_PUSH(r->rule, r->n, r->cap, rule);
}

/* "ế" is also "e" and two marks, and "ê" and one. */
static void add_decomposed(nfkc_rules *r, const char *character, const char *to) {
    const char *apart = normal(r, NORM_NFD, character);
    if (strcmp(apart, character) == 0) return;
    add(r, apart, to);
    for (const char *at = apart + utf8_size(*apart); *at; at += utf8_size(*at)) {
        const char *begin = arena_strndup(r->mem, apart, (size_t)(at - apart));
        const char *composed = normal(r, NORM_NFC, begin);
        if (strcmp(composed, begin) != 0) add(r, arena_printf(r->mem, "%s%s", composed, at), to);
    }
}

void charsmap_nfkc(strbuf *out) {
    nfkc_rules r = {.mem = arena_new("normal form KC")};
    for (uint32_t cp = 0x80; cp < 0x110000; cp++) {
        char character[5] = {0};
        if (cp >= 0xD800 && cp < 0xE000) continue;
        utf8_encode(cp, character);
        const char *to = normal(&r, NORM_NFKC, character);
        const char *from = arena_strdup(r.mem, character);
        add(&r, from, to);
        add_decomposed(&r, from, to);
    }
    charsmap_make(r.rule, r.n, out);
    norm_work_free(&r.work);
    free(r.rule);
    arena_free(r.mem);
}
