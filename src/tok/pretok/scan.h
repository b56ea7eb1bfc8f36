/* What the matchers are made of: looking at one character, and running over characters of some
 * classes. Text is valid UTF-8, so nothing is checked twice; an ASCII byte costs one load. */
#ifndef TOK_PRETOK_SCAN_H
#define TOK_PRETOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/text/unicode.h"

/* Class bits and length of the character at i; at the end 0 and 0. */
static inline unsigned scan_at(const char *s, size_t n, size_t i, size_t *len) {
    if (i >= n) {
        *len = 0;
        return 0;
    }
    if ((uint8_t)s[i] < 0x80) {
        *len = 1;
        return uni_byte[(uint8_t)s[i]];
    }
    return uni_bits(utf8_next(s + i, len));
}

/* End of the run of characters that have one of the bits. */
static inline size_t scan_run(const char *s, size_t n, size_t i, unsigned bits) {
    for (;;) {
        while (i < n && (uni_byte[(uint8_t)s[i]] & bits)) i++;
        if (i >= n || (uint8_t)s[i] < 0x80) return i;
        size_t len;
        if (!(uni_bits(utf8_next(s + i, &len)) & bits)) return i;
        i += len;
    }
}

/* End of the run of characters that have none of the bits. */
static inline size_t scan_run_not(const char *s, size_t n, size_t i, unsigned bits) {
    size_t len;
    while (i < n && !(scan_at(s, n, i, &len) & bits)) i += len;
    return i;
}

static inline bool scan_is_newline(char c) {
    return c == '\r' || c == '\n';
}

/* Up to `max` characters that have one of the bits. */
static inline size_t scan_some(const char *s, size_t n, size_t i, unsigned bits, int max) {
    size_t len;
    for (int k = 0; k < max && (scan_at(s, n, i, &len) & bits); k++) i += len;
    return i;
}

/* `\s+(?!\S)|\s+` for the run [i, end): all but its last character, unless the text ends or there
 * is only one. */
static inline size_t scan_space_gpt2(const char *s, size_t n, size_t i, size_t end) {
    if (end == n) return end;
    size_t last = utf8_before(s, end);
    return last > i ? last : end;
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+` at i: up to the last newline of the run if it has one. */
static inline size_t scan_space_cl100k(const char *s, size_t n, size_t i) {
    size_t end = scan_run(s, n, i, UNI_BLANK);
    for (size_t j = end; j > i; j--) {
        if (scan_is_newline(s[j - 1])) return j;
    }
    return scan_space_gpt2(s, n, i, end);
}

/* 's 't 're 've 'm 'll 'd at the apostrophe s[i]; 0 when none. With `fold` in any case, where
 * U+017F (long s) folds to s. */
static inline size_t scan_contraction(const char *s, size_t n, size_t i, bool fold) {
    size_t left = n - i - 1;
    if (left == 0) return 0;
    char fold_bit = fold ? 0x20 : 0;
    char a = s[i + 1] | fold_bit, b = left > 1 ? (char)(s[i + 2] | fold_bit) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    if (fold && left > 1 && memcmp(s + i + 1, "\xC5\xBF", 2) == 0) return i + 3;
    return 0;
}

#endif
