/* A growing byte string on the heap, always NUL-terminated after its length. Initialise with {0}.
 */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct strbuf {
    char *data; /* NULL until the first append; use strbuf_cstr for a C string */
    size_t len, cap;
} strbuf;

void strbuf_append(strbuf *b, const void *bytes, size_t n);
/* Appends n bytes for the caller to fill; returns where they are. */
char *strbuf_extend(strbuf *b, size_t n);
void strbuf_truncate(strbuf *b, size_t len);
/* The same with control characters other than line feeds and tabs in a form that can be seen
 * ("^[", "\\x9b"): a terminal would obey them. */
void strbuf_append_visible(strbuf *b, const char *text, size_t n);
void strbuf_puts(strbuf *b, const char *s);
void strbuf_putc(strbuf *b, char c);
void strbuf_printf(strbuf *b, const char *fmt, ...) ATH_PRINTF(2, 3);
const char *strbuf_cstr(const strbuf *b);
void strbuf_clear(strbuf *b); /* keeps the memory */
void strbuf_free(strbuf *b);

#endif
