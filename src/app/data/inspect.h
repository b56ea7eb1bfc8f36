/* The inspector: tokens as a model gets them, with what is learned of them and who wrote them.
 *
 * `data show` gathers an inspection, from a set of token shards (inspect_set.c) or a step of a run
 * (data_show_step.c), and draws it three ways: in a terminal, as a page, as JSON. Nothing is shown
 * as the tokenizer's decoder would write it: each token is its own bytes, and bytes that make no
 * character are shown as bytes.
 *
 * Reading order: this file; inspect.c (counts, JSON), inspect_bytes.c (what stands for bytes),
 * inspect_text.c, inspect_page.c with inspect_style.c. */
#ifndef APP_DATA_INSPECT_H
#define APP_DATA_INSPECT_H

#include <jansson.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "data/shard/shards.h"
#include "tok/tok.h"

/* What a row is within its sample. */
typedef enum inspect_label {
    LABEL_NONE,
    LABEL_CHOSEN,
    LABEL_REJECTED,
    LABEL_DESIRABLE,
    LABEL_UNDESIRABLE,
    LABEL_MISMATCHED, /* the prompt with the answer of another sample (kto) */
} inspect_label;
const char *inspect_label_name(inspect_label l); /* "" for none */

/* Who wrote a token: a mark_role, or a text without roles. */
enum { INSPECT_TEXT = MARK_ROLES, INSPECT_ROLES };
const char *inspect_role_name(int role);
/* Of a mark. A role that no mark of ours has is taken as the template's: the byte is out of a file. */
static inline int inspect_role(uint8_t mark) {
    int role = (mark & (MARK_END - 1)) >> MARK_ROLE_SHIFT;
    return role < INSPECT_ROLES ? role : ROLE_TEMPLATE;
}

/* A document, or a part of one, in a row. */
typedef struct inspect_span {
    int first, end;
    const char *title; /* "chats.jsonl:3" */
} inspect_span;

/* A document of a set, or a row of a step. */
typedef struct inspect_row {
    const char *title;
    inspect_label label;
    int32_t *ids; /* [n] */
    uint8_t
        *marks; /* [n] shards.h; in sets of texts of the role INSPECT_TEXT. MARK_TRAINED: it is a
                       target here */
    int n;
    uint64_t more; /* tokens of the document behind these, which are not shown */
    int room;      /* tokens of a row of a step; 0: a document */
    inspect_span *spans;
    int n_spans;
} inspect_row;

/* A hard stop (data/chat/checks.h) that data came across: one that was accepted when the set was
 * built, or one that a build would stop at. */
typedef struct inspect_stop {
    const char *name, *what;
    const char *place; /* of the first conversation that has it, as titles of documents are */
    uint64_t count;    /* conversations; 0: it is about the set as a whole */
    int64_t document;  /* the number of that first one; -1: it is not in the set */
} inspect_stop;

/* What is learned from at once: a row, or two. */
typedef struct inspect_sample {
    uint64_t number;
    const inspect_stop *stop; /* it is shown for that; NULL: for none */
    inspect_row row[2];
    int n_rows;
} inspect_sample;

typedef struct inspect_counts {
    uint64_t documents, tokens, trained;
    uint64_t role_tokens[INSPECT_ROLES];
    uint64_t role_documents[INSPECT_ROLES]; /* that have tokens of this role */
} inspect_counts;

/* A line of the audit of the mixture. */
typedef struct inspect_source {
    const char *name;
    inspect_counts c;
} inspect_source;

typedef struct inspection {
    arena *a;
    const tok *t;
    const char *title, *about; /* of what; totals in a sentence */
    bool marks;                /* there are conversations among it */
    bool step;                 /* rows of a step */
    inspect_stop *stop;
    int n_stops, cap_stops;
    bool built; /* the set exists, its stops were accepted */
    inspect_sample *sample;
    int n, cap;
    uint64_t left_out; /* samples that are not shown */
    inspect_source *source;
    int n_sources, cap_sources;
} inspection;

typedef struct inspect_style {
    bool color;  /* for a terminal that has colours */
    bool tokens; /* each token by itself */
} inspect_style;

/* ---- inspect.c ---- */

/* A name from outside, which must not command a terminal. */
const char *inspect_visible(arena *a, const char *text);
/* The end of the stretch that begins at token `first`: tokens of the same document, role and mask,
 * special or not. They are drawn alike. */
int inspect_stretch(const inspection *x, const inspect_row *r, int first);
/* The document that begins there; NULL: none. */
const inspect_span *inspect_span_at(const inspect_row *r, int at);
/* Whether another one wrote it than the token before, or a document begins there. Special tokens
 * stay on the line of the text that they stand beside. */
bool inspect_begins_line(const inspect_row *r, int at);
static inline double inspect_percent(uint64_t part, uint64_t whole) {
    return whole ? 100 * (double)part / (double)whole : 0;
}
void inspect_count(inspect_counts *c, const uint8_t *marks, int64_t n);
/* The line of the audit for that source, made where there is none yet. */
inspect_counts *inspect_source_of(inspection *x, const char *name);
json_t *inspect_row_json(const inspection *x, const inspect_row *r);
json_t *inspect_audit_json(const inspection *x);
/* Adds the stops in the chat.json of a set, where there is one. */
status inspect_read_stops(inspection *x, const char *dir, err *e) ATH_MUST_USE;
/* "two_bos: this conversation ...; 3 conversations, the first is chats.jsonl:7" */
void inspect_put_stop(strbuf *out, const inspect_stop *s);
json_t *inspect_stops_json(const inspection *x);

/* ---- inspect_bytes.c ---- */

/* Tokens first .. end - 1 that make whole characters together, as few as possible: one, mostly. The
 * search ends at `limit`. Where none makes them whole: one token. */
int inspect_cell(const inspection *x, const inspect_row *r, int first, int limit);
/* The bytes of tokens first .. end - 1. */
void inspect_bytes(const inspection *x, const inspect_row *r, int first, int end, strbuf *out);

/* What stands at the beginning of some bytes. */
typedef enum glyph_kind {
    GLYPH_TEXT, /* a character */
    GLYPH_LINE, /* a line feed */
    GLYPH_TAB,
    GLYPH_HIDDEN, /* a character that cannot be seen, or that moves others: its number is shown */
    GLYPH_BYTE,   /* a byte that is no character */
} glyph_kind;
typedef struct glyph {
    glyph_kind kind;
    int len;
    uint32_t cp; /* the character, or the byte */
} glyph;
glyph glyph_at(const char *s, size_t n);

/* ---- drawings ---- */

/* inspect_text.c: for a terminal or a file of text. */
void inspect_text_legend(strbuf *out, const inspection *x, const inspect_style *st);
void inspect_text_stops(strbuf *out, const inspection *x, const inspect_style *st);
void inspect_text_head(strbuf *out, const inspection *x, const inspect_style *st);
void inspect_text_sample(strbuf *out, const inspection *x, const inspect_sample *s,
                         const inspect_style *st);
void inspect_text_audit(strbuf *out, const inspection *x);
/* Only the row's text, each line behind a margin. */
void inspect_text_row(strbuf *out, const inspection *x, const inspect_row *r,
                      const inspect_style *st);

/* inspect_page.c: one file of HTML that needs no other, and no network. */
void inspect_page(strbuf *out, const inspection *x);
extern const char inspect_css[], inspect_js[];

#endif
