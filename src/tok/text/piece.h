/* Text on its way through the stages, and where each byte of it came from.
 *
 * Normalizers and pre-tokenizers change text: what a token covers is then a stretch of the caller's
 * text, not of the text at hand. When offsets are asked for, every byte at hand carries the stretch
 * of the caller's text that it stands for: at first that of its whole character, later whatever the
 * stages made of it (the rules are those of Hugging Face tokenizers' NormalizedString). When not,
 * `from` is NULL throughout and nothing is spent on it. */
#ifndef TOK_TEXT_PIECE_H
#define TOK_TEXT_PIECE_H

#include "base/strbuf.h"
#include "tok/tok.h"

typedef struct tok_piece {
    const char *s;
    size_t len;
    const tok_span
        *from;  /* [len], in bytes of the caller's text; NULL: offsets are not asked for */
    bool first; /* begins where the caller's text begins */
} tok_piece;

static inline tok_piece piece_slice(const tok_piece *p, size_t start, size_t end) {
    return (tok_piece){p->s + start, end - start, p->from ? p->from + start : NULL,
                       p->first && start == 0};
}

/* A text in the making. Initialise with {0}; `from` grows beside the bytes when it is tracked. */
typedef struct tok_text {
    strbuf s;
    tok_span *from;
    size_t cap_from;
    bool tracked;
} tok_text;

void text_reset(tok_text *t, bool tracked); /* empty; keeps the memory */
void text_free(tok_text *t);
/* Appends bytes that all stand for `from` (ignored when not tracked). */
void text_add(tok_text *t, const char *s, size_t n, tok_span from);
/* Appends p[start, end) with the places it has. */
void text_copy(tok_text *t, const tok_piece *p, size_t start, size_t end);
/* The text as a piece, valid until it grows. */
tok_piece text_piece(const tok_text *t, bool first);
/* What a byte of a piece stands for; {0, 0} when not tracked. */
static inline tok_span piece_from(const tok_piece *p, size_t i) {
    return p->from ? p->from[i] : (tok_span){0, 0};
}

#endif
