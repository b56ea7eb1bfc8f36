/* The rules of a sentencepiece model ("precompiled_charsmap"): prefix of the text -> replacement.
 *
 * The form is that of sentencepiece: a 32-bit size, a double-array trie (Darts-clone) of that many
 * bytes, then the replacements, each ended by a NUL. The trie comes from a file and is walked with
 * every index checked; a replacement that is not there makes the rule corrupt. */
#ifndef TOK_NORMALIZE_CHARSMAP_H
#define TOK_NORMALIZE_CHARSMAP_H

#include "base/arena.h"

typedef struct norm_charsmap {
    const uint32_t *unit;
    size_t n_units;
    const char *text; /* replacements; ends with a NUL of our own */
    size_t n_text;
    bool begins[256]; /* some rule begins with this byte */
    /* This ASCII character followed by another one, or at the end, has no rule. */
    bool plain[128];
} norm_charsmap;

typedef struct norm_rule {
    size_t len; /* of the prefix; 0: no rule */
    const char *to;
    size_t n_to;
} norm_rule;

/* Copies the rules to `mem`. ST_FORMAT: too short, or not UTF-8. */
status charsmap_read(norm_charsmap **out, arena *mem, const void *bytes, size_t n,
                     err *e) ATH_MUST_USE;
/* The rule of the shortest or the longest prefix of s[0, n). ST_FORMAT: a corrupt rule. */
status charsmap_find(const norm_charsmap *m, const char *s, size_t n, bool longest, norm_rule *rule,
                     err *e) ATH_MUST_USE;

#endif
