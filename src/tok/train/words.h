/* Distinct words and how often each was seen: the whole of a corpus that training looks at again.
 *
 * A set is split into shards by hash, so that threads can each merge some of the shards. What a set
 * holds does not depend on the order in which words came, nor on the number of threads. */
#ifndef TOK_TRAIN_WORDS_H
#define TOK_TRAIN_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORD_SHARDS = 16,
    WORD_MAX_BYTES = (1 << 16) - 1 /* of one word; longer ones are cut by the caller */
};

typedef struct word_entry {
    uint64_t where; /* in the bytes of the shard: start << 16 | length */
    int64_t count;
} word_entry;

typedef struct word_shard {
    uint64_t *slot; /* entry + 1 below, hash above; 0 is free */
    word_entry *entry;
    char *bytes;
    uint32_t cap_slots;
    uint32_t n, cap;
    size_t n_bytes, cap_bytes;
} word_shard;

/* Initialise with {0}. */
typedef struct word_set {
    word_shard shard[WORD_SHARDS];
} word_set;

void words_add(word_set *s, const char *word, size_t len, int64_t times);
/* Adds all of `from`, which stays as it is. */
void words_merge_shard(word_set *into, const word_set *from, int shard);
/* Empty; keeps the memory. */
void words_clear(word_set *s);
void words_free(word_set *s);
/* Drops words seen fewer than `least` times, returns how many. */
int64_t words_drop_rare(word_set *s, int64_t least);

int64_t words_total(const word_set *s);       /* distinct words */
int64_t words_total_bytes(const word_set *s); /* of their text */
int64_t words_memory(const word_set *s);      /* bytes that the set takes */

/* One word of a sorted list. */
typedef struct word_ref {
    const char *s;
    uint32_t len;
    int64_t count;
} word_ref;
/* All words, most frequent first, then by bytes: the same list for the same set. On the heap; valid
 * until the set changes. */
word_ref *words_sorted(const word_set *s, int64_t *n);

#endif
