/* Rules of a SentencePiece normaliser in the making: a precompiled_charsmap. */
#ifndef TOK_FORMAT_CHARSMAP_MAKE_H
#define TOK_FORMAT_CHARSMAP_MAKE_H

#include "base/arena.h"
#include "base/strbuf.h"

typedef struct charsmap_rule {
    const char *from, *to; /* NUL-terminated; `from` not empty */
} charsmap_rule;

/* Appends the binary form: a 32-bit size, a double array as Darts-clone lays it out, then the
 * replacements. Rules with the same `from` count once. */
void charsmap_make(charsmap_rule *rule, int32_t n, strbuf *out);
/* The rules of normal form KC: every character that changes, and every canonical decomposition,
 * whole or in part, to its character. Marks in another order than the canonical one are not put
 * right, which rules on prefixes cannot do. */
void charsmap_nfkc(strbuf *out);

#endif
