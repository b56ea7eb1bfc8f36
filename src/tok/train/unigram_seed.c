/* Candidate pieces: frequent substrings, found by length.
 *
 * A substring of length L that is seen twice consists of two of length L - 1 that are, so with the
 * number of the substring of length L - 1 at every place, the pair of numbers at p and p + 1 names
 * the substring of length L at p. Each length is one pass over the places that are left, counting
 * pairs; few are left after six or seven characters. Memory is three numbers a place and a table of
 * the pairs, which is bounded by counting only a share of the pairs at a time (those with the same
 * hash modulo the number of shares). Shares are also what threads work on. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tok/train/unigram.h"

/* A substring that is seen at least twice. */
typedef struct substring {
    int64_t count;
    uint32_t at;
    int32_t prefix; /* number of the substring without its last character */
} substring;

/* The pairs of one share. */
typedef struct share {
    uint64_t *key; /* pair + 1, 0: free */
    uint32_t *index, mask;
    int64_t *count;
    uint32_t *at;
    uint32_t n, cap_count, cap_at;
} share;

typedef struct seeker {
    const bpe_text *text;
    int32_t *name, *next; /* of the substring at each place: length L - 1, and L */
    uint32_t *place;      /* where the substring of length L - 1 is seen twice */
    int64_t n_places;
    substring *shorter; /* by number, length L - 1 */
    int32_t n_shorter;
    int n_shares, n_threads;
    uni_piece *found; /* score: frequency times length */
    int64_t n_found, cap_found;
    int64_t limit;
} seeker;

/* ---- counting the pairs of a share ---- */

static uint32_t slot_of(const share *s, uint64_t stored, uint64_t hash) {
    uint32_t i = (uint32_t)hash & s->mask;
    while (s->key[i] && s->key[i] != stored) i = (i + 1) & s->mask;
    return i;
}

static void grow(share *s) {
    share bigger = *s;
    bigger.mask = s->key ? 2 * s->mask + 1 : 1023;
    bigger.key = xcalloc((size_t)bigger.mask + 1, sizeof(*bigger.key));
    bigger.index = xmalloc(((size_t)bigger.mask + 1) * sizeof(*bigger.index));
    for (uint32_t i = 0; s->key && i <= s->mask; i++) {
        if (!s->key[i]) continue;
        uint32_t to = slot_of(&bigger, s->key[i], mix64(s->key[i]));
        bigger.key[to] = s->key[i];
        bigger.index[to] = s->index[i];
    }
    free(s->key);
    free(s->index);
    *s = bigger;
}

static void count_pair(share *s, uint64_t stored, uint64_t hash, int64_t count, uint32_t at) {
    if (!s->key || s->n > s->mask / 2) grow(s);
    uint32_t i = slot_of(s, stored, hash);
    if (!s->key[i]) {
        uint32_t n = s->n;
        s->key[i] = stored;
        s->index[i] = n;
        VEC_PUSH(s->count, n, s->cap_count, 0);
        VEC_PUSH(s->at, s->n, s->cap_at, at);
    }
    s->count[s->index[i]] += count;
}

static void share_free(share *s) {
    free(s->key);
    free(s->index);
    free(s->count);
    free(s->at);
    *s = (share){0};
}

/* The pair at p as a table stores it, 0 when no substring of length L begins there. */
static uint64_t pair_at(const seeker *k, uint32_t p) {
    int32_t a = k->name[p], b = k->name[p + 1];
    return a >= 0 && b >= 0 ? pair_key(a, b) + 1 : 0;
}

static bool in_share(uint64_t hash, int which, int n_shares) {
    return (int)((hash >> 32) * (uint64_t)n_shares >> 32) == which;
}

/* Counts a share, then gives its frequent pairs numbers from 0 and writes them to `next`. */
static substring *seek_share(seeker *k, int which, int32_t *n_frequent) {
    share s = {0};
    for (int64_t i = 0; i < k->n_places; i++) {
        uint32_t p = k->place[i];
        uint64_t stored = pair_at(k, p), hash = mix64(stored);
        if (!stored || !in_share(hash, which, k->n_shares)) continue;
        count_pair(&s, stored, hash, k->text->count[p / BLOCK_PLACES], p);
    }
    int32_t *number = xmalloc(sizeof(*number) * (s.n + 1)), n = 0;
    for (uint32_t i = 0; i < s.n; i++) number[i] = s.count[i] >= 2 ? n++ : -1;
    substring *list = xmalloc(sizeof(*list) * (size_t)(n + 1));
    for (uint32_t i = 0; i < s.n; i++) {
        if (number[i] < 0) continue;
        list[number[i]] = (substring){s.count[i], s.at[i], k->name[s.at[i]]};
    }
    for (int64_t i = 0; i < k->n_places && n > 0; i++) {
        uint32_t p = k->place[i];
        uint64_t stored = pair_at(k, p), hash = mix64(stored);
        if (!stored || !in_share(hash, which, k->n_shares)) continue;
        k->next[p] = number[s.index[slot_of(&s, stored, hash)]];
    }
    free(number);
    share_free(&s);
    *n_frequent = n;
    return list;
}

/* ---- candidates ---- */

static int by_score(const void *x, const void *y) {
    const uni_piece *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return a->len < b->len ? -1 : a->len > b->len;
}

static void keep_best(seeker *k) {
    if (k->n_found == 0) return;
    qsort(k->found, (size_t)k->n_found, sizeof(*k->found), by_score);
    if (k->n_found > k->limit) k->n_found = k->limit;
}

static void emit(seeker *k, const substring *s, int32_t len) {
    uni_piece piece = {.at = s->at, .len = len, .score = (double)s->count * len};
    VEC_PUSH(k->found, k->n_found, k->cap_found, piece);
    if (k->n_found >= 4 * k->limit) keep_best(k);
}

/* Those of length L - 1 that go on in more than one way; a word's end is one. */
static void emit_shorter(seeker *k, const substring *longer, int32_t n_longer, int32_t len) {
    for (int32_t i = 0; i < n_longer; i++) {
        substring *prefix = &k->shorter[longer[i].prefix];
        if (prefix->count == longer[i].count) prefix->count = 0;
    }
    for (int32_t i = 0; i < k->n_shorter; i++) {
        if (k->shorter[i].count > 0) emit(k, &k->shorter[i], len);
    }
}

/* ---- one length ---- */

/* All shares; numbers of a share are moved behind those of the ones before it. */
static substring *seek_length(seeker *k, int32_t *n_longer) {
    int32_t *n = xcalloc((size_t)k->n_shares + 1, sizeof(*n)), total = 0;
    substring **list = xmalloc(sizeof(*list) * (size_t)k->n_shares);
    for (int64_t i = 0; i < k->n_places; i++) k->next[k->place[i]] = -1;
#pragma omp parallel for schedule(dynamic) num_threads(k->n_threads)
    for (int i = 0; i < k->n_shares; i++) list[i] = seek_share(k, i, &n[i]);
    int32_t *base = xmalloc(sizeof(*base) * (size_t)(k->n_shares + 1));
    for (int i = 0; i < k->n_shares; i++) {
        base[i] = total;
        CHECK(n[i] <= INT32_MAX - total, "more than 2^31 frequent substrings of one length");
        total += n[i];
    }
    substring *all = xmalloc(sizeof(*all) * (size_t)(total + 1));
    for (int i = 0; i < k->n_shares; i++) {
        memcpy(all + base[i], list[i], sizeof(*all) * (size_t)n[i]);
        free(list[i]);
    }
#pragma omp parallel for schedule(static) num_threads(k->n_threads)
    for (int64_t i = 0; i < k->n_places; i++) {
        uint32_t p = k->place[i];
        if (k->next[p] < 0) continue;
        uint64_t hash = mix64(pair_at(k, p));
        k->next[p] += base[(hash >> 32) * (uint64_t)k->n_shares >> 32];
    }
    free(list);
    free(base);
    free(n);
    *n_longer = total;
    return all;
}

/* The new numbers become the current ones; places without one are done with. */
static void advance(seeker *k) {
    int64_t n = 0;
    for (int64_t i = 0; i < k->n_places; i++) {
        uint32_t p = k->place[i];
        k->name[p] = k->next[p];
        if (k->name[p] >= 0) k->place[n++] = p;
    }
    k->n_places = n;
}

static void seeker_init(seeker *k, const bpe_text *t, int64_t limit, int64_t ram_bytes) {
    *k = (seeker){.text = t, .limit = limit, .n_threads = omp_get_max_threads()};
    k->name = xmalloc(sizeof(*k->name) * (size_t)t->n);
    k->next = xmalloc(sizeof(*k->next) * (size_t)t->n);
    k->place = xmalloc(sizeof(*k->place) * (size_t)(t->live + 1));
    for (int64_t p = 0; p < t->n; p++) {
        k->name[p] = t->sym[p];
        k->next[p] = -1;
        if (t->sym[p] >= 0) k->place[k->n_places++] = (uint32_t)p;
    }
    /* At worst every place has a pair of its own, at about 40 bytes in a table. */
    int64_t room = ram_bytes - 17 * t->n - 200 * limit;
    int64_t at_once = room / 40 > (1 << 20) ? room / 40 : 1 << 20;
    k->n_shares = 16;
    while (k->n_shares < 1024 && k->n_places / k->n_shares * 16 > at_once) k->n_shares *= 2;
    if (k->n_threads > 16) k->n_threads = 16; /* shares that are in memory at once */
}

static void seek_all(seeker *k, const tok_train_options *opt) {
    for (int32_t len = 2; len <= PIECE_MAX_CHARS && k->n_places > 0; len++) {
        int32_t n_longer;
        tok_train_report(opt, (double)(len - 2) / PIECE_MAX_CHARS, "candidates");
        substring *longer = seek_length(k, &n_longer);
        if (len > 2) emit_shorter(k, longer, n_longer, len - 1);
        free(k->shorter);
        k->shorter = longer;
        k->n_shorter = n_longer;
        advance(k);
    }
    for (int32_t i = 0; i < k->n_shorter && k->n_places > 0; i++) {
        emit(k, &k->shorter[i], PIECE_MAX_CHARS);
    }
    keep_best(k);
}

void uni_seed(uni_model *m, int32_t limit, const int64_t *char_uses, int64_t ram_bytes,
              const tok_train_options *opt) {
    seeker k;
    seeker_init(&k, m->text, limit, ram_bytes);
    seek_all(&k, opt);
    m->n = m->n_chars + (int32_t)k.n_found;
    m->piece = xmalloc(sizeof(*m->piece) * (size_t)(m->n + 1));
    double sum = 0;
    for (int32_t i = 0; i < m->n; i++) {
        m->piece[i] = i < m->n_chars ? (uni_piece){.len = 1, .score = (double)char_uses[i]}
                                     : k.found[i - m->n_chars];
        sum += m->piece[i].score;
    }
    for (int32_t i = 0; i < m->n; i++) m->piece[i].score = log(m->piece[i].score / sum);
    free(k.name);
    free(k.next);
    free(k.place);
    free(k.shorter);
    free(k.found);
}
