/* UTF-8: decoding, encoding, and the one check of what is UTF-8.
 *
 * Functions of the first group may be given any bytes. Those of the second check nothing, which is
 * fast, and need text that was checked before. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"

/* ---- any bytes ---- */

/* Decodes the character at s (n > 0 bytes left). Returns its length in bytes, 0 when the bytes are
 * not valid UTF-8 (over-long, surrogate, beyond U+10FFFF, truncated). */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Length of the longest valid prefix. */
size_t utf8_valid_prefix(const char *s, size_t n);
/* Bytes at the end of s (0 to 3) that begin a character which further bytes could complete. */
int utf8_open_tail(const char *s, size_t n);
/* Appends the bytes. What is not UTF-8 becomes U+FFFD as Unicode recommends and Python and Rust do
 * it: one for each longest beginning of a character that does not go on. */
void utf8_append(strbuf *out, const char *s, size_t n);

/* Whether a byte continues a character, rather than beginning one. */
static inline bool utf8_continues(char byte) {
    return ((uint8_t)byte & 0xC0) == 0x80;
}
/* Where to cut a text of more than n bytes: at n, or up to 3 bytes before it where n would divide a
 * character. Reads s[n]. */
static inline size_t utf8_cut(const char *s, size_t n) {
    size_t end = n;
    while (end > 0 && n - end < 3 && utf8_continues(s[end])) end--;
    return utf8_continues(s[end]) ? n : end;
}

/* ---- text that is known to be UTF-8 ---- */

/* Length of the character that begins with this byte. */
static inline size_t utf8_size(char lead) {
    uint8_t b = (uint8_t)lead;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
/* Bytes of the mark with which some editors begin UTF-8 (U+FEFF), and which is no part of a text: 3, or 0. */
static inline size_t utf8_mark(const char *s, size_t n) {
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}
/* The character at s, and its length. */
static inline uint32_t utf8_next(const char *s, size_t *len) {
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *len = 2;
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    }
    if (u[0] < 0xF0) {
        *len = 3;
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    }
    *len = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}
/* Start of the character that ends at `end` (> 0). */
static inline size_t utf8_before(const char *s, size_t end) {
    do end--;
    while (utf8_continues(s[end]));
    return end;
}
/* Writes the 1 to 4 bytes of a code point up to U+10FFFF, returns how many. */
int utf8_encode(uint32_t cp, char out[4]);

#endif
