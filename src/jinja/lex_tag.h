/* Shared by lex.c and lex_tag.c. */
#ifndef JINJA_LEX_TAG_H
#define JINJA_LEX_TAG_H

#include "jinja/lex.h"

/* Tokens of the tag that begins at *at, whose inside begins at `inside`; *at becomes where text
 * goes on. */
status jlex_tag(jlex *x, uint32_t *at, bool prints, uint32_t inside) ATH_MUST_USE;

status jlex_fail(jlex *x, uint32_t at, const char *what);
jtok *jlex_push(jlex *x, jtok_kind kind, uint32_t at);
/* Where white space from `at` on ends. */
uint32_t jlex_blanks(const jlex *x, uint32_t at);

#endif
