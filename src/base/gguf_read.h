/* Taking pieces off the front of a GGUF file; every take checks that the bytes are there. */
#ifndef BASE_GGUF_READ_H
#define BASE_GGUF_READ_H

#include "base/gguf.h"

typedef struct gguf_cursor {
    const char *bytes;
    size_t len, at;
    const char *label; /* of the file in errors */
    err *e;
} gguf_cursor;

status gguf_take_bytes(gguf_cursor *c, size_t n, const char **bytes) ATH_MUST_USE;
status gguf_take_u32(gguf_cursor *c, uint32_t *x) ATH_MUST_USE;
status gguf_take_u64(gguf_cursor *c, uint64_t *x) ATH_MUST_USE;
status gguf_take_text(gguf_cursor *c, gguf_text *s) ATH_MUST_USE;
/* The name of a key or tensor, in the arena: 1 to max bytes, no control characters. `what` is what
 * it is the name of. */
status gguf_take_name(gguf_cursor *c, arena *mem, const char *what, size_t max,
                      const char **name) ATH_MUST_USE;

/* "LABEL: what is wrong", ST_FORMAT, with the hint that the file is damaged. */
status gguf_bad(const gguf_cursor *c, const char *fmt, ...) ATH_PRINTF(2, 3);
/* The same for a count or length that there are no bytes for. */
status gguf_cut_short(const gguf_cursor *c);

#endif
