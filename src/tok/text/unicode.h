/* UTF-8 and the three character classes that pre-tokenizer patterns are made of. */
#ifndef TOK_TEXT_UNICODE_H
#define TOK_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum uni_class { UNI_OTHER, UNI_LETTER, UNI_NUMBER, UNI_SPACE } uni_class;

/* \p{L}, \p{N}, \s or none of them. */
uni_class uni_class_of(uint32_t cp);
/* \w of the Rust `regex` crate, which decides `single_word` of added tokens. */
bool uni_is_word(uint32_t cp);

/* Decodes the character at s (n > 0 bytes left). Returns its length in bytes, 0 when the bytes are
 * not valid UTF-8 (over-long, surrogate, beyond U+10FFFF, truncated). */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Writes 1 to 4 bytes, returns how many. */
int utf8_encode(uint32_t cp, char out[4]);
/* Length of the longest valid prefix. */
size_t utf8_valid_prefix(const char *s, size_t n);
/* Bytes at the end of s (0 to 3) that begin a character which further bytes could complete. */
int utf8_open_tail(const char *s, size_t n);

#endif
