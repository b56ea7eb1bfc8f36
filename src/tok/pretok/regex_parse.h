/* What the two files of the parser share: its state, reading characters, escapes and classes. */
#ifndef TOK_PRETOK_REGEX_PARSE_H
#define TOK_PRETOK_REGEX_PARSE_H

#include <string.h>

#include "base/utf8.h"
#include "tok/pretok/regex.h"

typedef struct rx_parser {
    rx_tree *t;
    const char *begin, *p, *end;
    bool fold, dotall, extended, multiline; /* the options in force */
    int depth;
    bool behind; /* inside a look behind */
    err *e;
} rx_parser;

/* "the pattern is not usable at character N: ..." */
status rx_wrong(rx_parser *x, const char *fmt, ...) ATH_PRINTF(2, 3);

static inline bool rx_at(const rx_parser *x, const char *s) {
    size_t n = strlen(s);
    return (size_t)(x->end - x->p) >= n && memcmp(x->p, s, n) == 0;
}

static inline bool rx_skip(rx_parser *x, const char *s) {
    if (!rx_at(x, s)) return false;
    x->p += strlen(s);
    return true;
}

static inline uint32_t rx_next_char(rx_parser *x) {
    size_t len;
    uint32_t cp = utf8_next(x->p, &len);
    x->p += len;
    return cp;
}

static inline rx_ranges rx_new_ranges(const rx_parser *x) {
    return (rx_ranges){.mem = x->t->scratch};
}

/* regex_class.c. An escape that stands for one character, after its backslash. */
status rx_char_escape(rx_parser *x, uint32_t *cp) ATH_MUST_USE;
/* An escape that stands for a class, if there is one at the backslash. */
status rx_class_escape(rx_parser *x, rx_ranges *r, bool in_class, bool *found) ATH_MUST_USE;
/* A class after its [. */
status rx_parse_class(rx_parser *x, rx_ranges *out) ATH_MUST_USE;

#endif
