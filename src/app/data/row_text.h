/* The text of one training row, with the loss mask and the borders of documents to be seen.
 *
 * A token is learned when the position before it has it as its target; the first token of a row
 * never is. On a terminal what is not learned is dim, elsewhere it stands in "[[" and "]]"; a
 * document that begins within the row is preceded by a line of its own. */
#ifndef APP_ROW_TEXT_H
#define APP_ROW_TEXT_H

#include "data/order/loader.h"
#include "tok/tok.h"

typedef struct row_text {
    const tok *tok;
    int T;
    const int32_t *ids, *targets; /* [T], as loader_fill gives them */
    const loader_span *spans;
    int n_spans;
    bool color;
} row_text;

/* Appends it, each line after `margin`; control characters other than line feeds become "." so that
 * a corpus cannot command a terminal. */
status row_text_append(const row_text *r, const char *margin, strbuf *out, err *e) ATH_MUST_USE;

#endif
