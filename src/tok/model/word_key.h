/* A word of up to 24 bytes as three numbers, padded with zeros: keys of caches that compare and
 * hash without a loop. Different words of one length have different keys. */
#ifndef TOK_MODEL_WORD_KEY_H
#define TOK_MODEL_WORD_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WORD_KEY_BYTES = 24 };

typedef struct word_key {
    uint64_t part[3];
} word_key;

static inline uint64_t word_key_load8(const char *s) {
    uint64_t v;
    memcpy(&v, s, 8);
    return v;
}

/* The last n bytes, up to 8, of a word of len bytes. Loads overlap rather than depend on n. */
static inline uint64_t word_key_tail(const char *s, size_t len, size_t n) {
    if (n == 0) return 0;
    if (len >= 8) return word_key_load8(s + len - 8) >> 8 * (8 - n);
    if (len >= 4) {
        uint32_t low, high;
        memcpy(&low, s, 4);
        memcpy(&high, s + len - 4, 4);
        return low | (uint64_t)high << 8 * (len - 4);
    }
    const uint8_t *u = (const uint8_t *)s;
    return u[0] | (uint64_t)u[len / 2] << 8 * (len / 2) | (uint64_t)u[len - 1] << 8 * (len - 1);
}

static inline word_key word_key_of(const char *s, size_t len) {
    if (len <= 8) return (word_key){{word_key_tail(s, len, len), 0, 0}};
    if (len <= 16) return (word_key){{word_key_load8(s), word_key_tail(s, len, len - 8), 0}};
    return (word_key){{word_key_load8(s), word_key_load8(s + 8), word_key_tail(s, len, len - 16)}};
}

static inline bool word_key_same(const word_key *a, const word_key *b) {
    return a->part[0] == b->part[0] && a->part[1] == b->part[1] && a->part[2] == b->part[2];
}

static inline uint32_t word_key_hash(const word_key *k) {
    uint64_t h = k->part[0] * 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 32) ^ k->part[1]) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 32) ^ k->part[2]) * 0x94d049bb133111ebu;
    return (uint32_t)(h >> 40);
}

#endif
