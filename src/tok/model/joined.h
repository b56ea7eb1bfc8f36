/* Which bytes the tokens of a vocabulary have side by side. Between two others a text can be cut
 * before it is looked at: no token reaches across. */
#ifndef TOK_MODEL_JOINED_H
#define TOK_MODEL_JOINED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bit b of row a: a and then b. Initialise with {0}. */
typedef struct joined_bytes {
    uint32_t row[256][8];
} joined_bytes;

static inline void joined_add(joined_bytes *j, uint8_t a, uint8_t b) {
    j->row[a][b >> 5] |= 1u << (b & 31);
}

static inline bool joined_has(const joined_bytes *j, uint8_t a, uint8_t b) {
    return j->row[a][b >> 5] >> (b & 31) & 1;
}

/* For models of characters: no cut inside one. */
static inline void joined_add_characters(joined_bytes *j) {
    for (int a = 0; a < 256; a++) {
        for (int b = 0x80; b < 0xC0; b++) joined_add(j, (uint8_t)a, (uint8_t)b);
    }
}

static inline void joined_add_token(joined_bytes *j, const char *s, size_t n) {
    for (size_t i = 1; i < n; i++) joined_add(j, (uint8_t)s[i - 1], (uint8_t)s[i]);
}

#endif
