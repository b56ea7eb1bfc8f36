/* Text with the places its bytes come from; see piece.h. */
#include "tok/text/piece.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void text_reset(tok_text *t, bool tracked) {
    strbuf_clear(&t->s);
    t->tracked = tracked;
}

void text_free(tok_text *t) {
    strbuf_free(&t->s);
    free(t->from);
    *t = (tok_text){0};
}

/* Room for the places of n more bytes; returns where they go. */
static tok_span *grow(tok_text *t, size_t n) {
    if (t->s.len + n > t->cap_from) {
        t->cap_from = 2 * (t->s.len + n);
        t->from = xrealloc(t->from, sizeof(*t->from) * t->cap_from);
    }
    return t->from + t->s.len;
}

void text_add(tok_text *t, const char *s, size_t n, tok_span from) {
    if (t->tracked) {
        tok_span *to = grow(t, n);
        for (size_t i = 0; i < n; i++) to[i] = from;
    }
    strbuf_append(&t->s, s, n);
}

void text_copy(tok_text *t, const tok_piece *p, size_t start, size_t end) {
    if (end == start) return;
    if (t->tracked) memcpy(grow(t, end - start), p->from + start, (end - start) * sizeof(tok_span));
    strbuf_append(&t->s, p->s + start, end - start);
}

tok_piece text_piece(const tok_text *t, bool first) {
    return (tok_piece){strbuf_cstr(&t->s), t->s.len, t->tracked ? t->from : NULL, first};
}
