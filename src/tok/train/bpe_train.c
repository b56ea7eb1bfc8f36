/* BPE training: count the distinct pre-tokens, then merge the most frequent pair again and again.
 *
 * Same merges as BpeTrainer of Hugging Face tokenizers: highest count first, then the smaller pair
 * of ids; ids of the alphabet in order of its characters. Counts are kept up to date: a merge
 * touches only the words that hold the pair, and pairs wait in a heap whose stale entries are
 * re-counted when they reach the top (counts only fall, except for pairs with the new token, which
 * are pushed anew). Cost: about the number of symbols that merges touch. */
#include <stdlib.h>
#include <string.h>

#include "tok/train/train.h"
#include "tok/text/unicode.h"

/* A longer pre-token is counted in parts: text without spaces would otherwise make one word, and
 * each merge walks its words whole. */
enum { MAX_WORD = 1024 };

typedef struct word {
    const char *bytes;
    int32_t len, n_symbols; /* in bytes; while merging */
    int64_t count, at;      /* at: first symbol */
} word;

struct bpe_trainer {
    arena *mem;
    bool gpt2;
    str_map index;
    word *word;
    int32_t n_words, cap_words;
};

bpe_trainer *bpe_trainer_new(bool gpt2) {
    bpe_trainer *b = xcalloc(1, sizeof(*b));
    b->mem = arena_new("tokenizer words");
    b->gpt2 = gpt2;
    return b;
}

void bpe_trainer_free(bpe_trainer *b) {
    if (!b) return;
    str_map_free(&b->index);
    free(b->word);
    arena_free(b->mem);
    free(b);
}

static void count_word(bpe_trainer *b, const char *s, size_t len) {
    int32_t at = str_map_get(&b->index, s, len);
    if (at < 0) {
        at = b->n_words;
        CHECK(at < INT32_MAX, "more than 2^31 distinct words");
        word w = {.bytes = arena_strndup(b->mem, s, len), .len = (int32_t)len};
        VEC_PUSH(b->word, b->n_words, b->cap_words, w);
        str_map_add(&b->index, w.bytes, len, at);
    }
    b->word[at].count++;
}

static void count_valid(bpe_trainer *b, const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t end = b->gpt2 ? pretok_gpt2_end(s, n, at) : pretok_cl100k_end(s, n, at, 3);
        for (; end - at > MAX_WORD; at += MAX_WORD) count_word(b, s + at, MAX_WORD);
        count_word(b, s + at, end - at);
        at = end;
    }
}

/* Bytes that are not UTF-8 are no part of any word, as in encoding. */
void bpe_trainer_add(bpe_trainer *b, const char *text, size_t len) {
    for (size_t at = 0; at < len; at++) {
        size_t valid = utf8_valid_prefix(text + at, len - at);
        count_valid(b, text + at, valid);
        at += valid;
    }
}

/* ---- merging ---- */

/* A heap entry: a pair, its count when pushed, and the words in which it was seen. */
typedef struct entry {
    uint64_t pair;
    int64_t count;
    int32_t *words;
    int32_t n_words, cap_words;
} entry;

typedef struct merger {
    bpe_trainer *b;
    tok_draft *d;
    int32_t *symbol; /* of all words, one after the other */
    pair_map slot;   /* pair -> index into count and fresh */
    int64_t *count;
    int32_t *fresh; /* index of the pair's entry in the list below, -1: none */
    int32_t n_pairs, cap_count, cap_fresh;
    entry *pending; /* pairs that this merge made or that are not in the heap yet */
    int32_t n_pending, cap_pending;
    entry *heap;
    int32_t n_heap, cap_heap;
    str_map strings; /* token -> id */
} merger;

static bool goes_before(const entry *a, const entry *b) {
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static void heap_push(merger *m, entry e) {
    VEC_PUSH(m->heap, m->n_heap, m->cap_heap, e);
    int32_t i = m->n_heap - 1;
    for (; i > 0 && goes_before(&e, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        m->heap[i] = m->heap[(i - 1) / 2];
    }
    m->heap[i] = e;
}

static entry heap_pop(merger *m) {
    entry top = m->heap[0], last = m->heap[--m->n_heap];
    int32_t i = 0;
    for (int32_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && goes_before(&m->heap[child + 1], &m->heap[child])) child++;
        if (!goes_before(&m->heap[child], &last)) break;
        m->heap[i] = m->heap[child];
    }
    if (m->n_heap > 0) m->heap[i] = last;
    return top;
}

static int32_t pair_slot(merger *m, uint64_t pair) {
    int32_t at = pair_map_get(&m->slot, pair);
    if (at >= 0) return at;
    at = m->n_pairs;
    int32_t n = at;
    VEC_PUSH(m->count, n, m->cap_count, 0);
    VEC_PUSH(m->fresh, m->n_pairs, m->cap_fresh, -1);
    pair_map_put(&m->slot, pair, at);
    return at;
}

static void lose_pair(merger *m, int32_t a, int32_t b, int64_t times) {
    m->count[pair_slot(m, pair_key(a, b))] -= times;
}

/* Counts a pair and remembers the word; words come in increasing order. */
static void gain_pair(merger *m, int32_t a, int32_t b, int64_t times, int32_t in_word) {
    uint64_t pair = pair_key(a, b);
    int32_t at = pair_slot(m, pair);
    m->count[at] += times;
    if (m->fresh[at] < 0) {
        m->fresh[at] = m->n_pending;
        VEC_PUSH(m->pending, m->n_pending, m->cap_pending, ((entry){.pair = pair}));
    }
    entry *e = &m->pending[m->fresh[at]];
    if (e->n_words > 0 && e->words[e->n_words - 1] == in_word) return;
    VEC_PUSH(e->words, e->n_words, e->cap_words, in_word);
}

/* Moves the pending entries into the heap, with the counts they have by now. */
static void push_pending(merger *m) {
    for (int32_t i = 0; i < m->n_pending; i++) {
        entry e = m->pending[i];
        int32_t at = pair_slot(m, e.pair);
        e.count = m->count[at];
        m->fresh[at] = -1;
        if (e.count > 0) {
            heap_push(m, e);
        } else {
            free(e.words);
        }
    }
    m->n_pending = 0;
}

/* Replaces (a, b) by c in one word and updates the counts of the neighbours. */
static void merge_word(merger *m, int32_t index, int32_t a, int32_t b, int32_t c) {
    word *w = &m->b->word[index];
    int32_t *s = m->symbol + w->at, n = w->n_symbols, to = 0;
    for (int32_t i = 0; i < n; i++) {
        if (s[i] != a || i + 1 == n || s[i + 1] != b) {
            s[to++] = s[i];
            continue;
        }
        if (to > 0) {
            lose_pair(m, s[to - 1], a, w->count);
            gain_pair(m, s[to - 1], c, w->count, index);
        }
        if (i + 2 < n) {
            lose_pair(m, b, s[i + 2], w->count);
            gain_pair(m, c, s[i + 2], w->count, index);
        }
        s[to++] = c;
        i++;
    }
    w->n_symbols = to;
}

/* The id of a + b, which may exist already by another way of cutting it. */
static int32_t merged_id(merger *m, int32_t a, int32_t b) {
    const char *x = m->d->token[a], *y = m->d->token[b];
    char *text = arena_printf(m->d->mem, "%s%s", x, y);
    int32_t id = str_map_get(&m->strings, text, strlen(text));
    if (id >= 0) return id;
    tok_draft_add(m->d, text);
    str_map_add(&m->strings, text, strlen(text), m->d->n_token - 1);
    return m->d->n_token - 1;
}

static void merge_top(merger *m, entry *top) {
    int32_t a = (int32_t)(top->pair >> 32), b = (int32_t)(uint32_t)top->pair;
    int32_t c = merged_id(m, a, b), n = m->d->n_merges;
    if (n == m->d->cap_merges) {
        m->d->cap_merges = n ? 2 * n : 256;
        m->d->merge = xrealloc(m->d->merge, sizeof(*m->d->merge) * (size_t)m->d->cap_merges);
    }
    m->d->merge[n][0] = a;
    m->d->merge[n][1] = b;
    m->d->n_merges++;
    for (int32_t i = 0; i < top->n_words; i++) merge_word(m, top->words[i], a, b, c);
    push_pending(m);
}

static void merge_until(merger *m, const tok_train_options *opt) {
    int32_t start = m->d->n_token, total = opt->vocab_size - start;
    while (m->d->n_token < opt->vocab_size && m->n_heap > 0) {
        entry top = heap_pop(m);
        int64_t now = m->count[pair_slot(m, top.pair)];
        if (top.count != now) { /* stale: back with its count of today */
            top.count = now;
            heap_push(m, top);
            continue;
        }
        bool enough = now >= 1 && now >= opt->min_frequency;
        if (enough) merge_top(m, &top);
        free(top.words);
        if (!enough) break;
        if (opt->progress && m->d->n_merges % 64 == 0) {
            opt->progress(opt->progress_ctx, (double)(m->d->n_token - start) / total, "merges");
        }
    }
}

/* The alphabet in order of its characters; returns the id of each byte. */
static void add_alphabet(tok_draft *d, int32_t id_of_byte[256]) {
    for (uint32_t cp = 0; cp <= 0x143; cp++) {
        int byte = byte_alphabet_byte(cp);
        if (byte < 0) continue;
        char c[4];
        int n = utf8_encode(cp, c);
        id_of_byte[byte] = d->n_token;
        tok_draft_add(d, arena_strndup(d->mem, c, (size_t)n));
    }
}

/* Lays all words out as symbols and counts their pairs. */
static void first_pairs(merger *m, const int32_t id_of_byte[256]) {
    int64_t total = 0;
    for (int32_t i = 0; i < m->b->n_words; i++) total += m->b->word[i].len;
    m->symbol = xmalloc(sizeof(int32_t) * (size_t)(total + 1));
    int64_t at = 0;
    for (int32_t i = 0; i < m->b->n_words; i++) {
        word *w = &m->b->word[i];
        w->at = at;
        w->n_symbols = w->len;
        for (int32_t k = 0; k < w->len; k++) {
            m->symbol[at++] = id_of_byte[(uint8_t)w->bytes[k]];
            if (k > 0) gain_pair(m, m->symbol[at - 2], m->symbol[at - 1], w->count, i);
        }
    }
    push_pending(m);
}

void bpe_trainer_merge(bpe_trainer *b, const tok_train_options *opt, tok_draft *d) {
    merger m = {.b = b, .d = d};
    int32_t id_of_byte[256];
    add_alphabet(d, id_of_byte);
    for (int32_t i = 0; i < d->n_token; i++) {
        str_map_add(&m.strings, d->token[i], strlen(d->token[i]), i);
    }
    first_pairs(&m, id_of_byte);
    merge_until(&m, opt);
    for (int32_t i = 0; i < m.n_heap; i++) free(m.heap[i].words);
    free(m.symbol);
    pair_map_free(&m.slot);
    free(m.count);
    free(m.fresh);
    free(m.pending);
    free(m.heap);
    str_map_free(&m.strings);
}
