/* The two hash maps that tokenizers need: pairs of ids and byte strings, both to a number. Linear
 * probing, at most half full; keys are hashed with XXH3 or a 64-bit mix, nothing is ever removed.
 */
#ifndef TOK_TEXT_MAP_H
#define TOK_TEXT_MAP_H

#include <stddef.h>
#include <stdint.h>

/* (a, b) -> value >= 0. Initialise with {0}. */
typedef struct pair_map {
    uint64_t *key; /* pair + 1; 0 is a free slot */
    int32_t *value;
    uint32_t n, cap;
} pair_map;

static inline uint64_t pair_key(int32_t a, int32_t b) {
    return (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
}
void pair_map_reserve(pair_map *m, uint32_t n);
/* The value of a pair, -1 when absent. */
int32_t pair_map_get(const pair_map *m, uint64_t key);
/* Sets or replaces. */
void pair_map_put(pair_map *m, uint64_t key, int32_t value);
void pair_map_free(pair_map *m);

/* bytes -> value >= 0; the bytes must outlive the map. Initialise with {0}. */
typedef struct str_entry {
    const char *s;
    uint32_t len;
    int32_t value;
} str_entry;
typedef struct str_map {
    str_entry *slot; /* s NULL: free */
    uint32_t n, cap;
} str_map;

void str_map_reserve(str_map *m, uint32_t n);
int32_t str_map_get(const str_map *m, const char *s, size_t len);
/* Adds a key that is not there yet. */
void str_map_add(str_map *m, const char *s, size_t len, int32_t value);
void str_map_free(str_map *m);

#endif
