/* Hash maps of the tokenizer; see map.h. */
#include "tok/text/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/rng.h"

static uint32_t capacity_for(uint32_t n) {
    uint32_t cap = 16;
    while (cap / 2 < n) cap *= 2;
    return cap;
}

static uint32_t pair_slot(const pair_map *m, uint64_t stored) {
    uint32_t i = (uint32_t)mix64(stored) & (m->cap - 1);
    while (m->key[i] != 0 && m->key[i] != stored) i = (i + 1) & (m->cap - 1);
    return i;
}

void pair_map_reserve(pair_map *m, uint32_t n) {
    pair_map bigger = {.cap = capacity_for(n), .n = m->n};
    if (bigger.cap <= m->cap) return;
    bigger.key = xcalloc(bigger.cap, sizeof(uint64_t));
    bigger.value = xcalloc(bigger.cap, sizeof(int32_t));
    for (uint32_t i = 0; i < m->cap; i++) {
        if (m->key[i] == 0) continue;
        uint32_t to = pair_slot(&bigger, m->key[i]);
        bigger.key[to] = m->key[i];
        bigger.value[to] = m->value[i];
    }
    pair_map_free(m);
    *m = bigger;
}

int32_t pair_map_get(const pair_map *m, uint64_t key) {
    if (m->n == 0) return -1;
    uint32_t i = pair_slot(m, key + 1);
    return m->key[i] != 0 ? m->value[i] : -1;
}

void pair_map_put(pair_map *m, uint64_t key, int32_t value) {
    pair_map_reserve(m, m->n + 1);
    uint32_t i = pair_slot(m, key + 1);
    m->n += m->key[i] == 0;
    m->key[i] = key + 1;
    m->value[i] = value;
}

void pair_map_free(pair_map *m) {
    free(m->key);
    free(m->value);
    *m = (pair_map){0};
}

static uint32_t str_slot(const str_map *m, const char *s, size_t len) {
    uint32_t i = (uint32_t)hash_bytes(s, len) & (m->cap - 1);
    while (m->slot[i].s && (m->slot[i].len != len || memcmp(m->slot[i].s, s, len) != 0)) {
        i = (i + 1) & (m->cap - 1);
    }
    return i;
}

void str_map_reserve(str_map *m, uint32_t n) {
    str_map bigger = {.cap = capacity_for(n), .n = m->n};
    if (bigger.cap <= m->cap) return;
    bigger.slot = xcalloc(bigger.cap, sizeof(str_entry));
    for (uint32_t i = 0; i < m->cap; i++) {
        const str_entry *from = &m->slot[i];
        if (from->s) bigger.slot[str_slot(&bigger, from->s, from->len)] = *from;
    }
    str_map_free(m);
    *m = bigger;
}

int32_t str_map_get(const str_map *m, const char *s, size_t len) {
    if (m->n == 0) return -1;
    const str_entry *at = &m->slot[str_slot(m, s, len)];
    return at->s ? at->value : -1;
}

void str_map_add(str_map *m, const char *s, size_t len, int32_t value) {
    str_map_reserve(m, m->n + 1);
    m->slot[str_slot(m, s, len)] = (str_entry){s, (uint32_t)len, value};
    m->n++;
}

void str_map_free(str_map *m) {
    free(m->slot);
    *m = (str_map){0};
}
