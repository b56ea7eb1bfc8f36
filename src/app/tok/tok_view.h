/* What `tok report` shows, gathered once and drawn three ways: a table, JSON, a picture. */
#ifndef APP_TOK_VIEW_H
#define APP_TOK_VIEW_H

#include <jansson.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "tok/tok_report.h"

typedef enum view_kind { VIEW_FILE, VIEW_GROUP, VIEW_ALL } view_kind;

typedef struct view_row {
    view_kind kind;
    const char *name;
} view_row;

typedef struct view_tok {
    const char *path, *name; /* name: short, and unlike the others */
    const tok *t;
    tok_vocab_report vocab;
    tok_ids digits; /* of VIEW_DIGITS */
} view_tok;

typedef struct tok_view {
    view_tok *tok;
    int n_toks;
    view_row *row;
    int n_rows, cap_rows;
    const char *group; /* "script", or the field that names the group */
    tok_tally *tally;  /* [toks, rows] */
    double seconds;
} tok_view;

#define VIEW_DIGITS "342792"

static inline const tok_tally *view_tally(const tok_view *v, int tok_index, int row) {
    return &v->tally[tok_index * v->n_rows + row];
}
int view_count_rows(const tok_view *v, view_kind kind);
/* What is said of a tokenizer on a row; shares are between 0 and 1. */
typedef enum view_figure {
    VIEW_VOCAB,
    VIEW_TOKENS,
    VIEW_FERTILITY, /* tokens per word */
    VIEW_PCW,       /* share of words with two or more tokens */
    VIEW_BYTES_PER_TOKEN,
    VIEW_TOKENS_PER_CHAR,
    VIEW_COVERAGE, /* share of the bytes that did not become the unknown token */
    VIEW_UNKNOWN,  /* the other bytes */
    VIEW_USED,     /* share of the vocabulary */
    VIEW_EXACT,    /* share of the documents that decode to the same bytes */
} view_figure;
/* NaN where there is nothing to divide by. */
double view_value(const tok_view *v, view_figure f, int tok_index, int row);
/* Whether the figures say anything: no text was refused, and at most 0.1 % became unknown. */
bool view_comparable(const tok_tally *s);

/* tok_view.c */
json_t *tok_view_json(const tok_view *v, bool lists);
/* tok_view_table.c: at most 100 columns; `color`: a terminal's bold and dim. */
void tok_view_table(strbuf *out, const tok_view *v, bool color);
/* tok_view_svg.c */
void tok_view_svg(strbuf *out, const tok_view *v);

#endif
