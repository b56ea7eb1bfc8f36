/* A template as tokens: text between tags, and what stands in the tags.
 *
 * Whitespace control is done here: the first newline after a block or comment is dropped
 * (trim_blocks), blanks from the start of a line to a block or comment, too (lstrip_blocks), and
 * what '-' and '+' beside a tag ask for. */
#ifndef JINJA_LEX_H
#define JINJA_LEX_H

#include "base/arena.h"

typedef enum jtok_kind {
    JT_END, /* of the template */
    JT_TEXT,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING, /* decoded */
    JT_INT,
    JT_FLOAT,
    JT_ADD,
    JT_SUB,
    JT_MUL,
    JT_DIV,
    JT_FLOORDIV,
    JT_MOD,
    JT_POW,
    JT_TILDE,
    JT_LPAREN,
    JT_RPAREN,
    JT_LBRACKET,
    JT_RBRACKET,
    JT_LBRACE,
    JT_RBRACE,
    JT_EQ,
    JT_NE,
    JT_LT,
    JT_LE,
    JT_GT,
    JT_GE,
    JT_ASSIGN,
    JT_DOT,
    JT_COLON,
    JT_PIPE,
    JT_COMMA,
    JT_SEMICOLON,
} jtok_kind;

typedef struct jtok {
    uint8_t kind;
    uint32_t at;   /* byte of the source where it begins */
    uint32_t len;  /* of s */
    const char *s; /* text, name, string: not NUL-terminated */
    union {
        int64_t i;
        double f;
    } u;
} jtok;

/* What was lexed; everything is in the arena. */
typedef struct jlex {
    arena *mem;
    char *src; /* with newlines normalised and the last one dropped, unless verbatim */
    uint32_t len;
    jtok *token;
    int32_t n, cap;
    bool line_starting;
    bool verbatim; /* no trim_blocks and lstrip_blocks, and the last newline stays */
    err *e;
} jlex;

enum {
    JINJA_MAX_BYTES = 4 << 20, /* of a template */
    JINJA_MAX_NESTING = 200,   /* of brackets, statements, expressions in the source */
};

status jlex_run(jlex *x, const char *text, size_t len) ATH_MUST_USE;
/* "line L, column C" of a byte of the source, counted from 1, columns in characters. */
void jlex_where(const char *src, uint32_t at, int *line, int *column);

/* Python's str.isspace() of a character. */
bool jtext_is_space(uint32_t cp);

#endif
