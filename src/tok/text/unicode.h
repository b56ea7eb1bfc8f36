/* UTF-8, and the character classes that pre-tokenizer patterns are made of.
 *
 * One byte of class bits per code point (unicode_table.c, generated), an ASCII byte costs one load.
 * A code point has at most one bit; controls, formats, private and unassigned ones have none. The
 * rarer properties are in unicode_sets.h. */
#ifndef TOK_TEXT_UNICODE_H
#define TOK_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum uni_bits {
    UNI_UPPER = 1,    /* \p{Lu} \p{Lt} */
    UNI_LOWER = 2,    /* \p{Ll} */
    UNI_CASELESS = 4, /* \p{Lm} \p{Lo} */
    UNI_MARK = 8,     /* \p{M} */
    UNI_DIGIT = 16,   /* \p{N} */
    UNI_BLANK = 32,   /* \s: White_Space */
    UNI_PUNCT = 64,   /* \p{P} */
    UNI_SYMBOL = 128, /* \p{S} */
    UNI_LETTERS = UNI_UPPER | UNI_LOWER | UNI_CASELESS,
};

extern const uint8_t uni_byte[256]; /* the bits of an ASCII byte; 0 for others */
extern const uint8_t uni_index[];   /* unicode_table.c */
extern const uint8_t uni_block[];

static inline unsigned uni_bits(uint32_t cp) {
    return cp < 0x110000 ? uni_block[uni_index[cp >> 7] * 128u + (cp & 127)] : 0;
}

typedef enum uni_class { UNI_OTHER, UNI_LETTER, UNI_NUMBER, UNI_SPACE } uni_class;

/* \p{L}, \p{N}, \s or none of them. */
static inline uni_class uni_class_of(uint32_t cp) {
    unsigned bits = uni_bits(cp);
    if (bits & UNI_LETTERS) return UNI_LETTER;
    return bits & UNI_DIGIT ? UNI_NUMBER : bits & UNI_BLANK ? UNI_SPACE : UNI_OTHER;
}

/* \w of the Rust `regex` crate, which decides `single_word` of added tokens. */
bool uni_is_word(uint32_t cp);

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
