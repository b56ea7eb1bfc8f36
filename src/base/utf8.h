/* UTF-8: decoding, encoding, checking. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at s (n > 0 bytes left). Returns its length in bytes, 0 when the bytes are
 * not valid UTF-8 (over-long, surrogate, beyond U+10FFFF, truncated). */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Length of the character of valid UTF-8 that begins with this byte. */
static inline size_t utf8_size(char lead) {
    uint8_t b = (uint8_t)lead;
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}
/* The character of valid UTF-8 at s, and its length. */
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
/* Start of the character of valid UTF-8 that ends at `end` (> 0). */
static inline size_t utf8_before(const char *s, size_t end) {
    do end--;
    while (((uint8_t)s[end] & 0xC0) == 0x80);
    return end;
}
/* Writes 1 to 4 bytes, returns how many. */
int utf8_encode(uint32_t cp, char out[4]);
/* Length of the longest valid prefix. */
size_t utf8_valid_prefix(const char *s, size_t n);
/* Bytes at the end of s (0 to 3) that begin a character which further bytes could complete. */
int utf8_open_tail(const char *s, size_t n);

#endif
