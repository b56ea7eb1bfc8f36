/* Expressions, by rising precedence: choice, or, and, not, comparison, + -, ~, * / // %, **,
 * unary, then what stands behind a primary: attribute, item, call, filter, test. */
#include "jinja/parse.h"

#include <string.h>

#include "jinja/builtin.h"

/* ---- primaries ---- */

static status parse_parens(jparse *p, jnode **out);

static jnode *constant(jparse *p, const jtok *at, jv value) {
    jnode *n = jparse_node(p, JN_CONST, at);
    n->value = value;
    return n;
}

static const struct {
    const char *word;
    jv value;
} constants[] = {
    {"true", {.kind = JV_BOOL, .u.b = true}},
    {"True", {.kind = JV_BOOL, .u.b = true}},
    {"false", {.kind = JV_BOOL}},
    {"False", {.kind = JV_BOOL}},
    {"none", {.kind = JV_NONE}},
    {"None", {.kind = JV_NONE}},
};

static status parse_name(jparse *p, bool with_attr, jnode **out) {
    const jtok *t = p->tok++;
    for (int i = 0; i < ARRAY_LEN(constants); i++) {
        if (!jparse_is_name(t, constants[i].word)) continue;
        *out = constant(p, t, constants[i].value);
        return ST_OK;
    }
    jnode *n = *out = jparse_node(p, JN_NAME, t);
    n->symbol = jparse_symbol(p, jv_bytes(t->s, t->len));
    if (n->symbol == p->t->sym_varargs) p->varargs = true;
    if (n->symbol == p->t->sym_kwargs) p->kwargs = true;
    if (with_attr && jparse_skip(p, JT_DOT)) {
        const jtok *attr = p->tok;
        TRY(jparse_expect(p, JT_NAME, "the name of an attribute"));
        n->kind = JN_NS_ATTR;
        n->value = jv_bytes(attr->s, attr->len);
    }
    return ST_OK;
}

/* Strings side by side are one. */
static void parse_string(jparse *p, jnode **out) {
    const jtok *first = p->tok;
    size_t n = 0;
    for (const jtok *t = first; t->kind == JT_STRING; t++) n += t->len;
    char *s = arena_alloc(p->mem, n);
    *out = constant(p, first, jv_bytes(s, n));
    for (; p->tok->kind == JT_STRING; p->tok++) {
        memcpy(s, p->tok->s, p->tok->len);
        s += p->tok->len;
    }
}

/* Whether another item follows in brackets, and passes what stands before it: a comma, which may
 * stand behind the last one, too, or the bracket that ends them. */
static status next_item(jparse *p, bool first, jtok_kind close, bool *more) {
    if (!first && p->tok->kind != close) TRY(jparse_expect(p, JT_COMMA, "a comma"));
    *more = !jparse_skip(p, close);
    return ST_OK;
}

/* A list, or a mapping. */
static status parse_items(jparse *p, jnode_kind kind, jtok_kind close, jnode **out) {
    jnode *all = *out = jparse_node(p, kind, p->tok++), *n;
    for (bool more;;) {
        TRY(next_item(p, all->kid.n == 0, close, &more));
        if (!more) return ST_OK;
        TRY(jparse_expr(p, true, &n));
        jkids_add(p, &all->kid, n);
        if (kind == JN_LIST) continue;
        TRY(jparse_expect(p, JT_COLON, "a colon"));
        TRY(jparse_expr(p, true, &n));
        jkids_add(p, &all->kid, n);
    }
}

static status parse_primary(jparse *p, bool with_attr, jnode **out) {
    const jtok *t = p->tok;
    switch (t->kind) {
        case JT_NAME: return parse_name(p, with_attr, out);
        case JT_STRING: parse_string(p, out); return ST_OK;
        case JT_INT: *out = constant(p, p->tok++, jv_int(t->u.i)); return ST_OK;
        case JT_FLOAT: *out = constant(p, p->tok++, jv_float(t->u.f)); return ST_OK;
        case JT_LPAREN: return parse_parens(p, out);
        case JT_LBRACKET: return parse_items(p, JN_LIST, JT_RBRACKET, out);
        case JT_LBRACE: return parse_items(p, JN_DICT, JT_RBRACE, out);
        default: return jparse_unexpected(p, "an expression");
    }
}

/* ---- tuples and targets ---- */

typedef struct tuple_how {
    bool target, with_attr, with_choice, in_parens;
    const char *end;
} tuple_how;

static bool tuple_ends(const jparse *p, const char *end) {
    jtok_kind k = p->tok->kind;
    return k == JT_VAR_END || k == JT_BLOCK_END || k == JT_RPAREN ||
           (end && jparse_is_name(p->tok, end));
}

static status parse_tuple(jparse *p, const tuple_how *how, jnode **out) {
    const jtok *first = p->tok;
    jkids kids = {0};
    bool is_tuple = false;
    for (;;) {
        jnode *n;
        if (tuple_ends(p, how->end)) break;
        if (how->target)
            TRY(parse_primary(p, how->with_attr, &n));
        else
            TRY(jparse_expr(p, how->with_choice, &n));
        jkids_add(p, &kids, n);
        if (!jparse_skip(p, JT_COMMA)) break;
        is_tuple = true;
    }
    if (!is_tuple && kids.n == 1) {
        *out = kids.item[0];
        return ST_OK;
    }
    if (kids.n == 0 && !how->in_parens) return jparse_unexpected(p, "an expression");
    *out = jparse_node(p, JN_TUPLE, first);
    (*out)->kid = kids;
    return ST_OK;
}

status jparse_tuple(jparse *p, bool with_choice, const char *end, jnode **out) {
    return parse_tuple(p, &(tuple_how){.with_choice = with_choice, .end = end}, out);
}

static status parse_parens(jparse *p, jnode **out) {
    p->tok++;
    TRY(parse_tuple(p, &(tuple_how){.with_choice = true, .in_parens = true}, out));
    return jparse_expect(p, JT_RPAREN, ")");
}

static bool assignable(const jnode *n) {
    if (n->kind == JN_NAME || n->kind == JN_NS_ATTR) return true;
    if (n->kind != JN_TUPLE) return false;
    for (int32_t i = 0; i < n->kid.n; i++) {
        if (!assignable(n->kid.item[i])) return false;
    }
    return true;
}

status jparse_target(jparse *p, bool with_attr, const char *end, jnode **out) {
    const jtok *first = p->tok;
    TRY(parse_tuple(p, &(tuple_how){.target = true, .with_attr = with_attr, .end = end}, out));
    return assignable(*out) ? ST_OK : jparse_fail(p, first, "this cannot be assigned to");
}

/* ---- calls, attributes and items ---- */

static status parse_keyword(jparse *p, jcall_args *a, int32_t *cap) {
    const jtok *name = p->tok;
    jnode *value;
    p->tok += 2;
    TRY(jparse_expr(p, true, &value));
    a->kw_name = arena_grow(p->mem, a->kw_name, a->kw.n, cap, sizeof(jv));
    a->kw_name[a->kw.n] = jv_bytes(name->s, name->len);
    jkids_add(p, &a->kw, value);
    return ST_OK;
}

static status parse_argument(jparse *p, jcall_args *a, int32_t *cap) {
    const jtok *first = p->tok;
    jnode *n;
    bool late = a->star_star != NULL, named = first->kind == JT_NAME && first[1].kind == JT_ASSIGN;
    if (jparse_skip(p, JT_MUL)) {
        if (a->star || late) return jparse_fail(p, first, "this argument stands too late");
        return jparse_expr(p, true, &a->star);
    }
    if (late || (!named && first->kind != JT_POW && (a->star || a->kw.n > 0))) {
        return jparse_fail(p, first, "this argument stands too late");
    }
    if (jparse_skip(p, JT_POW)) return jparse_expr(p, true, &a->star_star);
    if (named) return parse_keyword(p, a, cap);
    TRY(jparse_expr(p, true, &n));
    jkids_add(p, &a->pos, n);
    return ST_OK;
}

static status parse_args(jparse *p, jcall_args **out) {
    jcall_args *a = *out = ARENA_NEW(p->mem, jcall_args);
    int32_t cap = 0;
    bool first = true, more;
    TRY(jparse_expect(p, JT_LPAREN, "("));
    for (;; first = false) {
        TRY(next_item(p, first, JT_RPAREN, &more));
        if (!more) return ST_OK;
        TRY(parse_argument(p, a, &cap));
    }
}

static bool slice_part_ends(const jparse *p) {
    return p->tok->kind == JT_RBRACKET || p->tok->kind == JT_COMMA;
}

/* What stands in brackets behind a value. */
static status parse_index(jparse *p, jnode **out) {
    const jtok *first = p->tok;
    jnode *start = NULL;
    if (first->kind != JT_COLON) {
        TRY(jparse_expr(p, true, &start));
        if (p->tok->kind != JT_COLON) {
            *out = start;
            return ST_OK;
        }
    }
    p->tok++;
    jnode *n = *out = jparse_node(p, JN_SLICE, first);
    n->a = start;
    if (!slice_part_ends(p) && p->tok->kind != JT_COLON) TRY(jparse_expr(p, true, &n->b));
    if (jparse_skip(p, JT_COLON) && !slice_part_ends(p)) TRY(jparse_expr(p, true, &n->c));
    return ST_OK;
}

static status parse_subscript(jparse *p, jnode **n) {
    const jtok *t = p->tok++;
    jnode *item = jparse_node(p, JN_ITEM, t);
    item->a = *n;
    *n = item;
    if (t->kind == JT_LBRACKET) {
        TRY(parse_index(p, &item->b));
        return jparse_expect(p, JT_RBRACKET, "]");
    }
    if (p->tok->kind == JT_INT) {
        item->b = constant(p, p->tok, jv_int(p->tok->u.i));
        p->tok++;
        return ST_OK;
    }
    const jtok *name = p->tok;
    TRY(jparse_expect(p, JT_NAME, "a name or number"));
    item->kind = JN_ATTR;
    item->value = jv_bytes(name->s, name->len);
    return ST_OK;
}

static status parse_call(jparse *p, jnode **n) {
    jnode *call = jparse_node(p, JN_CALL, p->tok);
    call->a = *n;
    *n = call;
    return parse_args(p, &call->args);
}

static status parse_postfix(jparse *p, jnode **n) {
    for (;;) {
        jtok_kind k = p->tok->kind;
        if (k == JT_DOT || k == JT_LBRACKET)
            TRY(parse_subscript(p, n));
        else if (k == JT_LPAREN)
            TRY(parse_call(p, n));
        else
            return ST_OK;
    }
}

/* ---- filters and tests ---- */

/* The name of a filter or test and its place in the table. */
static status parse_builtin(jparse *p, const jbuiltin_table *table, jnode *n) {
    const jtok *name = p->tok;
    TRY(jparse_expect(p, JT_NAME, table->what));
    n->value = jv_bytes(name->s, name->len);
    n->builtin = jbuiltin_find(table, n->value);
    if (!n->builtin && p->branches == 0) {
        return jparse_fail(p, name, "there is no %s \"%.*s\"", table->what,
                           name->len < 80 ? (int)name->len : 80, name->s);
    }
    return ST_OK;
}

status jparse_filters(jparse *p, jnode *in, bool inline_name, jnode **out) {
    *out = in;
    while (inline_name || jparse_skip(p, JT_PIPE)) {
        jnode *n = jparse_node(p, JN_FILTER, p->tok);
        inline_name = false;
        n->a = *out;
        *out = n;
        TRY(parse_builtin(p, &jbuiltin_filters, n));
        if (p->tok->kind == JT_LPAREN) TRY(parse_args(p, &n->args));
    }
    return ST_OK;
}

/* Whether the token begins an argument of a test without brackets. */
static bool begins_test_arg(const jtok *t) {
    switch (t->kind) {
        case JT_STRING:
        case JT_INT:
        case JT_FLOAT:
        case JT_LBRACKET:
        case JT_LBRACE: return true;
        case JT_NAME:
            return !jparse_is_name(t, "else") && !jparse_is_name(t, "or") &&
                   !jparse_is_name(t, "and");
        default: return false;
    }
}

static status parse_test(jparse *p, jnode **in) {
    const jtok *is = p->tok++;
    bool negated = jparse_skip_name(p, "not");
    jnode *n = jparse_node(p, JN_TEST, is);
    n->a = *in;
    *in = n;
    TRY(parse_builtin(p, &jbuiltin_tests, n));
    if (p->tok->kind == JT_LPAREN) {
        TRY(parse_args(p, &n->args));
    } else if (begins_test_arg(p->tok)) {
        if (jparse_is_name(p->tok, "is")) {
            return jparse_fail(p, p->tok, "several tests with \"is\" cannot be chained");
        }
        jnode *arg;
        TRY(parse_primary(p, false, &arg));
        TRY(parse_postfix(p, &arg));
        n->args = ARENA_NEW(p->mem, jcall_args);
        jkids_add(p, &n->args->pos, arg);
    }
    if (negated) {
        *in = jparse_node(p, JN_NOT, is);
        (*in)->a = n;
    }
    return ST_OK;
}

static status parse_filter_expr(jparse *p, jnode **n) {
    for (;;) {
        if (p->tok->kind == JT_PIPE)
            TRY(jparse_filters(p, *n, false, n));
        else if (jparse_is_name(p->tok, "is"))
            TRY(parse_test(p, n));
        else if (p->tok->kind == JT_LPAREN)
            TRY(parse_call(p, n));
        else
            return ST_OK;
    }
}

/* ---- operators ---- */

static status parse_unary(jparse *p, bool with_filter, jnode **out) {
    const jtok *t = p->tok;
    TRY(jparse_enter(p));
    if (t->kind == JT_SUB || t->kind == JT_ADD) {
        jnode *n = jparse_node(p, t->kind == JT_SUB ? JN_NEG : JN_POS, t);
        p->tok++;
        TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else {
        TRY(parse_primary(p, false, out));
    }
    TRY(parse_postfix(p, out));
    if (with_filter) TRY(parse_filter_expr(p, out));
    p->depth--;
    return ST_OK;
}

typedef status operand_fn(jparse *p, jnode **out);

/* Operands with the operators of one precedence between them, from the left: a word, or else one of
 * four tokens. */
static status parse_left(jparse *p, operand_fn *operand, const char *word, const uint8_t *ops,
                         jnode_kind kind, jnode **out) {
    TRY(operand(p, out));
    for (;;) {
        const jtok *t = p->tok;
        if (word ? !jparse_is_name(t, word) : !memchr(ops, t->kind, 4)) return ST_OK;
        jnode *n = jparse_node(p, kind, t);
        n->op = t->kind;
        n->a = *out;
        p->tok++;
        TRY(operand(p, &n->b));
        *out = n;
    }
}

static status parse_operand(jparse *p, jnode **out) {
    return parse_unary(p, true, out);
}
static status parse_pow(jparse *p, jnode **out) {
    static const uint8_t ops[4] = {JT_POW, JT_POW, JT_POW, JT_POW};
    return parse_left(p, parse_operand, NULL, ops, JN_BINARY, out);
}
static status parse_mul(jparse *p, jnode **out) {
    static const uint8_t ops[4] = {JT_MUL, JT_DIV, JT_FLOORDIV, JT_MOD};
    return parse_left(p, parse_pow, NULL, ops, JN_BINARY, out);
}

static status parse_concat(jparse *p, jnode **out) {
    const jtok *first = p->tok;
    jkids kids = {0};
    do {
        jnode *n;
        TRY(parse_mul(p, &n));
        jkids_add(p, &kids, n);
    } while (jparse_skip(p, JT_TILDE));
    *out = kids.item[0];
    if (kids.n == 1) return ST_OK;
    *out = jparse_node(p, JN_CONCAT, first);
    (*out)->kid = kids;
    return ST_OK;
}

static status parse_add(jparse *p, jnode **out) {
    static const uint8_t ops[4] = {JT_ADD, JT_SUB, JT_ADD, JT_SUB};
    return parse_left(p, parse_concat, NULL, ops, JN_BINARY, out);
}

/* The comparison at the current token, passed; 0 when there is none. */
static int comparison(jparse *p) {
    jtok_kind k = p->tok->kind;
    if (k >= JT_EQ && k <= JT_GE) {
        p->tok++;
        return (int)k;
    }
    if (jparse_skip_name(p, "in")) return JN_OP_IN;
    if (!jparse_is_name(p->tok, "not") || !jparse_is_name(p->tok + 1, "in")) return 0;
    p->tok += 2;
    return JN_OP_NOT_IN;
}

static status parse_compare(jparse *p, jnode **out) {
    const jtok *at = p->tok;
    jkids kids = {0};
    int op;
    TRY(parse_add(p, out));
    while ((op = comparison(p)) != 0) {
        jnode *n = jparse_node(p, JN_OPERAND, p->tok);
        n->op = (uint8_t)op;
        TRY(parse_add(p, &n->a));
        jkids_add(p, &kids, n);
    }
    if (kids.n == 0) return ST_OK;
    jnode *n = jparse_node(p, JN_COMPARE, at);
    n->a = *out;
    n->kid = kids;
    *out = n;
    return ST_OK;
}

static status parse_not(jparse *p, jnode **out) {
    const jtok *at = p->tok;
    if (!jparse_skip_name(p, "not")) return parse_compare(p, out);
    TRY(jparse_enter(p));
    jnode *n = jparse_node(p, JN_NOT, at);
    TRY(parse_not(p, &n->a));
    p->depth--;
    *out = n;
    return ST_OK;
}

static status parse_and(jparse *p, jnode **out) {
    return parse_left(p, parse_not, "and", NULL, JN_AND, out);
}
static status parse_or(jparse *p, jnode **out) {
    return parse_left(p, parse_and, "or", NULL, JN_OR, out);
}

static status parse_choice(jparse *p, jnode **out) {
    TRY(parse_or(p, out));
    while (jparse_is_name(p->tok, "if")) {
        jnode *n = jparse_node(p, JN_CHOICE, p->tok++);
        n->b = *out;
        TRY(parse_or(p, &n->a));
        if (jparse_skip_name(p, "else")) TRY(jparse_expr(p, true, &n->c));
        *out = n;
    }
    return ST_OK;
}

status jparse_expr(jparse *p, bool with_choice, jnode **out) {
    TRY(jparse_enter(p));
    TRY(with_choice ? parse_choice(p, out) : parse_or(p, out));
    p->depth--;
    return ST_OK;
}
