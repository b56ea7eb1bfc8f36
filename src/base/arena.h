/* Memory by lifetime: an arena is freed as a whole; nothing in it is freed alone.
 *
 * Five lifetimes exist: process, run, step, request, scratch. A function that allocates takes the
 * arena as its first argument; what it returns lives as long as that arena. Host memory that runs
 * out ends the process with one sentence and status 4, so allocations never return NULL. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct arena arena;

/* That sentence is one JSON object on standard output, as of other errors under --json. */
void arena_end_in_json(bool json);

arena *arena_new(const char *tag);
void arena_free(arena *a); /* NULL is fine */
/* Forgets everything allocated, keeps the first block. */
void arena_reset(arena *a);
/* Zeroed bytes, aligned to 16 (64 when bytes >= 4096). bytes 0 gives a valid pointer. */
void *arena_alloc(arena *a, size_t bytes);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *fmt, ...) ATH_PRINTF(2, 3);
void *arena_memdup(arena *a, const void *p, size_t bytes);
size_t arena_bytes_used(const arena *a);

/* Room for item n of an array that grows by doubling; the old array stays until the arena ends. */
void *arena_grow(arena *a, void *items, int32_t n, int32_t *cap, size_t item_bytes);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

/* Heap wrappers with the same promise (never NULL). Free with free(). */
void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);
char *xstrdup(const char *s);

/* Grows a heap array: VEC_PUSH(v.items, v.n, v.cap, item). */
#define VEC_PUSH(items, n, cap, item)                                                              \
    do {                                                                                           \
        if ((n) == (cap)) {                                                                        \
            (cap) = (cap) ? (cap)*2 : 16;                                                          \
            (items) = xrealloc((items), sizeof(*(items)) * (size_t)(cap));                         \
        }                                                                                          \
        (items)[(n)++] = (item);                                                                   \
    } while (0)

#endif
