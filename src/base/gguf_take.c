/* The cursor over the bytes of a file. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/gguf_read.h"

status gguf_bad(const gguf_cursor *c, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    err_set(c->e, ST_FORMAT, "%s: %s", c->label, what);
    err_where(c->e, "%s", c->label);
    err_hint(c->e, "the file is damaged or was not copied whole");
    return ST_FORMAT;
}

status gguf_cut_short(const gguf_cursor *c) {
    return gguf_bad(c, "the GGUF metadata ends too early or a length in it is wrong (at byte %zu)",
                    c->at);
}

status gguf_take_bytes(gguf_cursor *c, size_t n, const char **bytes) {
    if (n > c->len - c->at) return gguf_cut_short(c);
    *bytes = c->bytes + c->at;
    c->at += n;
    return ST_OK;
}

status gguf_take_u32(gguf_cursor *c, uint32_t *x) {
    const char *bytes = NULL;
    TRY(gguf_take_bytes(c, 4, &bytes));
    memcpy(x, bytes, 4);
    return ST_OK;
}

status gguf_take_u64(gguf_cursor *c, uint64_t *x) {
    const char *bytes = NULL;
    TRY(gguf_take_bytes(c, 8, &bytes));
    memcpy(x, bytes, 8);
    return ST_OK;
}

status gguf_take_text(gguf_cursor *c, gguf_text *s) {
    uint64_t n;
    TRY(gguf_take_u64(c, &n));
    if (n > c->len) return gguf_cut_short(c);
    s->len = (size_t)n;
    return gguf_take_bytes(c, s->len, &s->text);
}

status gguf_take_name(gguf_cursor *c, arena *mem, const char *what, size_t max, const char **name) {
    gguf_text s = {0};
    size_t at = c->at;
    TRY(gguf_take_text(c, &s));
    if (s.len < 1 || s.len > max)
        return gguf_bad(c, "the name of a %s at byte %zu has %zu bytes (1 to %zu are allowed)",
                        what, at, s.len, max);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char b = (unsigned char)s.text[i];
        if (b < 0x20 || b == 0x7f)
            return gguf_bad(c, "the name of a %s at byte %zu has a control character", what, at);
    }
    *name = arena_strndup(mem, s.text, s.len);
    return ST_OK;
}
