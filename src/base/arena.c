/* Arenas: a chain of blocks, each served from front to back.
 *
 * Invariants: `head` is the block being filled, `first` the oldest one, which survives a reset.
 * Bytes at and beyond a block's `used` mark are zero, so allocation only moves the mark.
 * Reading order: block_new, arena_alloc, then the helpers, then the heap wrappers. */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_fault.h"

enum { BLOCK_BYTES = 64 * 1024, ALIGN_SMALL = 16, ALIGN_LARGE = 64, LARGE_BYTES = 4096 };

typedef struct block {
    struct block *prev;
    size_t used, cap;
    char *data;
} block;

struct arena {
    block *head, *first;
    char *tag;
    size_t bytes_used;
};

static atomic_bool ends_in_json;

void arena_end_in_json(bool json) {
    atomic_store(&ends_in_json, json);
}

/* Tags are names, which JSON takes as they are. */
_Noreturn static void out_of_memory(const char *who, size_t bytes) {
    const char *hint =
        "use a machine with more memory, or less of it: athanor plan says what a run needs";
    if (atomic_load(&ends_in_json))
        printf("{\"error\": {\"kind\": \"%s\", \"message\": \"out of memory: %s needs %zu more "
               "bytes\", "
               "\"hint\": \"%s\", \"where\": \"%s\"}}\n",
               status_kind(ST_MEMORY), who, bytes, hint, who);
    else
        fprintf(stderr, "athanor: error: out of memory: %s needs %zu more bytes\n  hint: %s\n", who,
                bytes, hint);
    exit(ST_MEMORY);
}

static block *block_new(const char *tag, size_t cap, block *prev) {
    block *b = file_fault_alloc() ? NULL : calloc(1, sizeof *b);
    if (!b || !(b->data = calloc(1, cap))) out_of_memory(tag, cap);
    b->cap = cap;
    b->prev = prev;
    return b;
}

arena *arena_new(const char *tag) {
    arena *a = xcalloc(1, sizeof *a);
    a->tag = xstrdup(tag);
    a->head = a->first = block_new(tag, BLOCK_BYTES, NULL);
    return a;
}

static void free_blocks_above(arena *a, const block *keep) {
    while (a->head != keep) {
        block *prev = a->head->prev;
        free(a->head->data);
        free(a->head);
        a->head = prev;
    }
}

void arena_free(arena *a) {
    if (!a) return;
    free_blocks_above(a, NULL);
    free(a->tag);
    free(a);
}

void arena_reset(arena *a) {
    free_blocks_above(a, a->first);
    memset(a->first->data, 0, a->first->used);
    a->first->used = 0;
    a->bytes_used = 0;
}

/* Bytes to skip in `b` so that the next one is aligned. */
static size_t padding(const block *b, size_t align) {
    return (align - ((uintptr_t)b->data + b->used) % align) % align;
}

void *arena_alloc(arena *a, size_t bytes) {
    size_t align = bytes >= LARGE_BYTES ? ALIGN_LARGE : ALIGN_SMALL;
    if (bytes > SIZE_MAX / 2) out_of_memory(a->tag, bytes);
    if (bytes == 0) bytes = 1; /* distinct pointers, never one past a block */
    block *b = a->head;
    size_t pad = padding(b, align);
    if (bytes > b->cap - b->used || pad > b->cap - b->used - bytes) {
        size_t cap = bytes + ALIGN_LARGE > BLOCK_BYTES ? bytes + ALIGN_LARGE : BLOCK_BYTES;
        b = a->head = block_new(a->tag, cap, b);
        pad = padding(b, align);
    }
    void *p = b->data + b->used + pad;
    b->used += pad + bytes;
    a->bytes_used += pad + bytes;
    return p;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *p = arena_alloc(a, len + 1);
    memcpy(p, s, len);
    return p;
}

void *arena_grow(arena *a, void *items, int32_t n, int32_t *cap, size_t item_bytes) {
    if (n < *cap) return items;
    *cap = *cap ? *cap * 2 : 32;
    void *fresh = arena_alloc(a, (size_t)*cap * item_bytes);
    if (n) memcpy(fresh, items, (size_t)n * item_bytes);
    return fresh;
}

char *arena_strdup(arena *a, const char *s) {
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(arena *a, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0, "bad format \"%s\"", fmt);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void *arena_memdup(arena *a, const void *p, size_t bytes) {
    void *q = arena_alloc(a, bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

size_t arena_bytes_used(const arena *a) {
    return a->bytes_used;
}

void *xmalloc(size_t bytes) {
    void *p = file_fault_alloc() ? NULL : malloc(bytes ? bytes : 1);
    if (!p) out_of_memory("the heap", bytes);
    return p;
}

void *xcalloc(size_t n, size_t bytes) {
    void *p = file_fault_alloc() ? NULL : calloc(n ? n : 1, bytes ? bytes : 1);
    if (!p) out_of_memory("the heap", n > SIZE_MAX / (bytes ? bytes : 1) ? SIZE_MAX : n * bytes);
    return p;
}

void *xrealloc(void *p, size_t bytes) {
    void *q = file_fault_alloc() ? NULL : realloc(p, bytes ? bytes : 1);
    if (!q) out_of_memory("the heap", bytes);
    return q;
}

char *xstrdup(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(xmalloc(n), s, n);
}
