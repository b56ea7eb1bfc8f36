#include "io/foreign/foreign.h"

#include <stdio.h>
#include <string.h>

/* Bytes of rows x cols elements, if that many are left. */
static bool span_bytes(const foreign_cursor *c, int64_t rows, int64_t cols, size_t *bytes) {
    int64_t n;
    if (rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &n) ||
        __builtin_mul_overflow(n, (int64_t)dtype_bytes(c->dt), &n) || (uint64_t)n > c->left)
        return false;
    *bytes = (size_t)n;
    return true;
}

bool foreign_skip(foreign_cursor *c, int64_t elems) {
    size_t bytes;
    if (!span_bytes(c, elems, 1, &bytes)) return false;
    c->at += bytes;
    c->left -= bytes;
    return true;
}

bool foreign_take(foreign_cursor *c, const char *name, int64_t rows, int64_t cols) {
    const uint8_t *data = c->at;
    size_t bytes;
    if (!span_bytes(c, rows, cols ? cols : 1, &bytes)) return false;
    c->at += bytes;
    c->left -= bytes;
    c->tensors = arena_grow(c->a, c->tensors, c->n, &c->cap, sizeof *c->tensors);
    c->tensors[c->n++] = (st_tensor){.name = arena_strdup(c->a, name),
                                     .dt = c->dt,
                                     .rank = cols ? 2 : 1,
                                     .dims = {rows, cols},
                                     .data = data};
    return true;
}

bool foreign_take_layers(foreign_cursor *c, const char *pattern, int64_t layers, int64_t rows,
                         int64_t cols) {
    const char *at = strstr(pattern, "%d");
    CHECK(at, "'%s' has no place for the layer", pattern);
    for (int64_t l = 0; l < layers; l++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s%lld%s", (int)(at - pattern), pattern, (long long)l,
                 at + 2);
        if (!foreign_take(c, name, rows, cols)) return false;
    }
    return true;
}

status foreign_finish(const foreign_cursor *c, bool whole, size_t len, const char *label,
                      const char *hint, err *e) {
    if (whole && c->left == 0) return ST_OK;
    err_set(e, ST_FORMAT, "%s has %zu bytes, %s than its header asks for", label, len,
            whole ? "more" : "fewer");
    err_hint(e, "%s", hint);
    return err_where(e, "%s", label);
}
