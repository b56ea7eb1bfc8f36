/* Tokens to a tree: parse.c has the statements, parse_expr.c the expressions; as jinja2's parser,
 * function by function, with a bound on nesting. */
#ifndef JINJA_PARSE_H
#define JINJA_PARSE_H

#include "jinja/ast.h"
#include "jinja/jinja.h"
#include "jinja/lex.h"

typedef struct jparse {
    arena *mem;
    jinja_template *t;
    const char *src;
    const jtok *tok; /* the current one; the last is JT_END */
    int32_t depth;
    int32_t branches;     /* ifs around this place: an unknown filter may never be called */
    int32_t loops;        /* around this place, inside the macro or generation block */
    bool varargs, kwargs; /* were named in the macro being parsed */
    json_t *symbols;      /* numbers of names */
    int32_t cap_symbols;
    err *e;
} jparse;

/* parse.c */
status jparse_fail(jparse *p, const jtok *at, const char *fmt, ...) ATH_PRINTF(3, 4);
/* Fails: `what` should stand here. */
status jparse_unexpected(jparse *p, const char *what) ATH_MUST_USE;
status jparse_expect(jparse *p, jtok_kind kind, const char *what) ATH_MUST_USE;
bool jparse_is_name(const jtok *t, const char *word);
bool jparse_skip_name(jparse *p, const char *word);
bool jparse_skip(jparse *p, jtok_kind kind);
int32_t jparse_symbol(jparse *p, jv name);
jnode *jparse_node(jparse *p, jnode_kind kind, const jtok *at);
/* Nests one deeper; every success is undone with p->depth--. */
status jparse_enter(jparse *p) ATH_MUST_USE;

void jkids_add(jparse *p, jkids *k, jnode *n);

/* parse_expr.c */
status jparse_expr(jparse *p, bool with_choice, jnode **out) ATH_MUST_USE;
/* One expression or several with commas; `end` (may be NULL) is a word that ends them. */
status jparse_tuple(jparse *p, bool with_choice, const char *end, jnode **out) ATH_MUST_USE;
/* What for, set and with assign to. */
status jparse_target(jparse *p, bool with_attr, const char *end, jnode **out) ATH_MUST_USE;
/* Filters with their pipes behind a node; `inline_name`: the first one has no pipe. */
status jparse_filters(jparse *p, jnode *in, bool inline_name, jnode **out) ATH_MUST_USE;

#endif
