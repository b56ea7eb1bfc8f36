/* Distinct words with counts; see words.h. Open addressing, at most two thirds full. The slot keeps
 * 32 bits of the hash, so that growing reads no word and most misses compare none. */
#include "tok/train/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

static const char *word_of(const word_shard *w, const word_entry *e) {
    return w->bytes + (e->where >> 16);
}

static uint32_t length_of(const word_entry *e) {
    return (uint32_t)(e->where & 0xFFFF);
}

static uint32_t first_slot(const word_shard *w, uint32_t hash) {
    return hash & (w->cap_slots - 1);
}

static void grow_slots(word_shard *w) {
    uint64_t *old = w->slot;
    uint32_t n_old = w->cap_slots;
    w->cap_slots = n_old ? 2 * n_old : 1024;
    w->slot = xcalloc(w->cap_slots, sizeof(*w->slot));
    for (uint32_t i = 0; i < n_old; i++) {
        if (!old[i]) continue;
        uint32_t to = first_slot(w, (uint32_t)(old[i] >> 32));
        while (w->slot[to]) to = (to + 1) & (w->cap_slots - 1);
        w->slot[to] = old[i];
    }
    free(old);
}

static uint64_t append_bytes(word_shard *w, const char *s, size_t len) {
    if (w->n_bytes + len > w->cap_bytes) {
        w->cap_bytes = w->cap_bytes ? 2 * w->cap_bytes : 4096;
        while (w->cap_bytes < w->n_bytes + len) w->cap_bytes *= 2;
        w->bytes = xrealloc(w->bytes, w->cap_bytes);
    }
    memcpy(w->bytes + w->n_bytes, s, len);
    w->n_bytes += len;
    return w->n_bytes - len;
}

static void add_hashed(word_shard *w, uint32_t hash, const char *s, size_t len, int64_t times) {
    if (w->n >= w->cap_slots / 3 * 2) grow_slots(w);
    uint32_t i = first_slot(w, hash);
    for (; w->slot[i]; i = (i + 1) & (w->cap_slots - 1)) {
        if ((uint32_t)(w->slot[i] >> 32) != hash) continue;
        word_entry *e = &w->entry[(uint32_t)w->slot[i] - 1];
        if (length_of(e) != len || memcmp(word_of(w, e), s, len) != 0) continue;
        e->count += times;
        return;
    }
    CHECK(w->n < UINT32_MAX / 2, "more than 2^31 distinct words in one shard");
    word_entry e = {.where = append_bytes(w, s, len) << 16 | len, .count = times};
    VEC_PUSH(w->entry, w->n, w->cap, e);
    w->slot[i] = (uint64_t)hash << 32 | w->n;
}

void words_add(word_set *s, const char *word, size_t len, int64_t times) {
    uint64_t hash = hash_bytes(word, len);
    add_hashed(&s->shard[hash >> 60], (uint32_t)hash, word, len, times);
}

void words_merge_shard(word_set *into, const word_set *from, int shard) {
    const word_shard *w = &from->shard[shard];
    for (uint32_t i = 0; i < w->cap_slots; i++) {
        if (!w->slot[i]) continue;
        const word_entry *e = &w->entry[(uint32_t)w->slot[i] - 1];
        add_hashed(&into->shard[shard], (uint32_t)(w->slot[i] >> 32), word_of(w, e), length_of(e),
                   e->count);
    }
}

void words_clear(word_set *s) {
    for (int i = 0; i < WORD_SHARDS; i++) {
        word_shard *w = &s->shard[i];
        if (w->n) memset(w->slot, 0, sizeof(*w->slot) * w->cap_slots);
        w->n = 0;
        w->n_bytes = 0;
    }
}

void words_free(word_set *s) {
    for (int i = 0; i < WORD_SHARDS; i++) {
        free(s->shard[i].slot);
        free(s->shard[i].entry);
        free(s->shard[i].bytes);
    }
    *s = (word_set){0};
}

/* Slides what stays to the front, then makes the slots anew. */
static int64_t drop_from_shard(word_shard *w, int64_t least) {
    uint32_t kept = 0, before = w->n;
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        word_entry e = w->entry[i];
        if (e.count < least) continue;
        uint32_t len = length_of(&e);
        memmove(w->bytes + n_bytes, word_of(w, &e), len);
        e.where = (uint64_t)n_bytes << 16 | len;
        n_bytes += len;
        w->entry[kept++] = e;
    }
    w->n = kept;
    w->n_bytes = n_bytes;
    if (!before) return 0;
    memset(w->slot, 0, sizeof(*w->slot) * w->cap_slots);
    for (uint32_t k = 0; k < kept; k++) {
        const word_entry *e = &w->entry[k];
        uint32_t hash = (uint32_t)hash_bytes(word_of(w, e), length_of(e));
        uint32_t to = first_slot(w, hash);
        while (w->slot[to]) to = (to + 1) & (w->cap_slots - 1);
        w->slot[to] = (uint64_t)hash << 32 | (k + 1);
    }
    return before - kept;
}

int64_t words_drop_rare(word_set *s, int64_t least) {
    int64_t dropped = 0;
    for (int i = 0; i < WORD_SHARDS; i++) dropped += drop_from_shard(&s->shard[i], least);
    return dropped;
}

int64_t words_total(const word_set *s) {
    int64_t n = 0;
    for (int i = 0; i < WORD_SHARDS; i++) n += s->shard[i].n;
    return n;
}

int64_t words_total_bytes(const word_set *s) {
    int64_t n = 0;
    for (int i = 0; i < WORD_SHARDS; i++) n += (int64_t)s->shard[i].n_bytes;
    return n;
}

int64_t words_memory(const word_set *s) {
    size_t n = 0;
    for (int i = 0; i < WORD_SHARDS; i++) {
        const word_shard *w = &s->shard[i];
        n += w->cap_slots * sizeof(*w->slot) + w->n * sizeof(*w->entry) + w->n_bytes;
    }
    return (int64_t)n;
}

static int by_count_then_bytes(const void *x, const void *y) {
    const word_ref *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    int order = memcmp(a->s, b->s, a->len < b->len ? a->len : b->len);
    if (order != 0) return order;
    return a->len < b->len ? -1 : a->len > b->len;
}

word_ref *words_sorted(const word_set *s, int64_t *n) {
    *n = words_total(s);
    word_ref *list = xmalloc(sizeof(*list) * (size_t)(*n + 1));
    int64_t to = 0;
    for (int i = 0; i < WORD_SHARDS; i++) {
        const word_shard *w = &s->shard[i];
        for (uint32_t k = 0; k < w->n; k++) {
            const word_entry *e = &w->entry[k];
            list[to++] = (word_ref){word_of(w, e), length_of(e), e->count};
        }
    }
    qsort(list, (size_t)*n, sizeof(*list), by_count_then_bytes);
    return list;
}
