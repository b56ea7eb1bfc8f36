/* The character classes that pre-tokenizer patterns are made of.
 *
 * One byte of class bits per code point (unicode_table.c, generated), an ASCII byte costs one load.
 * A code point has at most one bit; controls, formats, private and unassigned ones have none. The
 * rarer properties are in unicode_sets.h. */
#ifndef TOK_TEXT_UNICODE_H
#define TOK_TEXT_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"

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

#endif
