/* A growing byte string. Invariant: data is NULL, or cap > len and data[len] == 0. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Room for n more bytes and the NUL. */
static void reserve(strbuf *b, size_t n) {
    CHECK(n < SIZE_MAX / 4 && b->len < SIZE_MAX / 4, "string of %zu + %zu bytes", b->len, n);
    size_t need = b->len + n + 1;
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap *= 2;
    b->data = xrealloc(b->data, cap);
    b->cap = cap;
}

char *strbuf_extend(strbuf *b, size_t n) {
    reserve(b, n);
    b->len += n;
    b->data[b->len] = '\0';
    return b->data + b->len - n;
}

void strbuf_truncate(strbuf *b, size_t len) {
    CHECK(len <= b->len, "%zu bytes cut to %zu", b->len, len);
    b->len = len;
    if (b->data) b->data[len] = '\0';
}

void strbuf_append(strbuf *b, const void *bytes, size_t n) {
    char *to = strbuf_extend(b, n);
    if (n) memcpy(to, bytes, n);
}

void strbuf_append_visible(strbuf *b, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned char next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* U+0080 to U+009F in UTF-8 */
            strbuf_printf(b, "\\x%02x", next);
            i++;
        } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
            strbuf_printf(b, "^%c", c ^ 0x40);
        } else {
            strbuf_putc(b, (char)c);
        }
    }
}

void strbuf_puts(strbuf *b, const char *s) {
    strbuf_append(b, s, strlen(s));
}

void strbuf_putc(strbuf *b, char c) {
    strbuf_append(b, &c, 1);
}

void strbuf_printf(strbuf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0, "bad format \"%s\"", fmt);
    reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

const char *strbuf_cstr(const strbuf *b) {
    return b->data ? b->data : "";
}

void strbuf_clear(strbuf *b) {
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void strbuf_free(strbuf *b) {
    free(b->data);
    *b = (strbuf){0};
}
