/* Base64 with the alphabet + / and padding. */
#ifndef TOK_TEXT_BASE64_H
#define TOK_TEXT_BASE64_H

#include "base/strbuf.h"

void base64_append(strbuf *out, const void *bytes, size_t n);
/* Writes at most 3 * (n + 3) / 4 bytes; returns how many, -1 when the text is not base64 (spaces
 * are not, missing padding is allowed). */
int64_t base64_decode(const char *s, size_t n, uint8_t *out);

#endif
