/* Statements. */
#include "jinja/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* ---- what all of the parser uses ---- */

status jparse_fail(jparse *p, const jtok *at, const char *fmt, ...) {
    char what[400];
    int line, column;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    jlex_where(p->src, at->at, &line, &column);
    err_set(p->e, ST_FORMAT, "%s", what);
    return err_where(p->e, "line %d, column %d", line, column);
}

/* The source of a token, cut, for messages. */
static const char *shown(const jparse *p, const jtok *t, char buf[40]) {
    const char *s = p->src + t->at;
    int n = 0;
    while (n < 24 && s[n] && s[n] != '\n' && (t->kind != JT_NAME || n < (int)t->len)) n++;
    while (n > 0 && utf8_continues(s[n])) n--;
    if (t->kind == JT_END) return "the end of the template";
    snprintf(buf, 40, "\"%.*s\"", n, s);
    return buf;
}

status jparse_unexpected(jparse *p, const char *what) {
    char buf[40];
    return jparse_fail(p, p->tok, "expected %s, got %s", what, shown(p, p->tok, buf));
}

status jparse_expect(jparse *p, jtok_kind kind, const char *what) {
    return jparse_skip(p, kind) ? ST_OK : jparse_unexpected(p, what);
}

bool jparse_is_name(const jtok *t, const char *word) {
    return t->kind == JT_NAME && t->len == strlen(word) && memcmp(t->s, word, t->len) == 0;
}

bool jparse_skip_name(jparse *p, const char *word) {
    if (!jparse_is_name(p->tok, word)) return false;
    p->tok++;
    return true;
}

bool jparse_skip(jparse *p, jtok_kind kind) {
    if (p->tok->kind != kind) return false;
    if (kind != JT_END) p->tok++;
    return true;
}

int32_t jparse_symbol(jparse *p, jv name) {
    const json_t *known = json_object_getn(p->symbols, name.u.s, name.n);
    if (known) return (int32_t)json_integer_value(known);
    jinja_template *t = p->t;
    t->symbol = arena_grow(p->mem, t->symbol, t->n_symbols, &p->cap_symbols, sizeof(jv));
    t->symbol[t->n_symbols] = name;
    json_object_setn_new_nocheck(p->symbols, name.u.s, name.n, json_integer(t->n_symbols));
    return t->n_symbols++;
}

jnode *jparse_node(jparse *p, jnode_kind kind, const jtok *at) {
    jnode *n = ARENA_NEW(p->mem, jnode);
    n->kind = (uint8_t)kind;
    n->at = at->at;
    return n;
}

status jparse_enter(jparse *p) {
    if (p->depth >= JINJA_MAX_NESTING) {
        return jparse_fail(p, p->tok, "more than %d expressions or statements inside one another",
                           JINJA_MAX_NESTING);
    }
    p->depth++;
    return ST_OK;
}

void jkids_add(jparse *p, jkids *k, jnode *n) {
    k->item = arena_grow(p->mem, k->item, k->n, &k->cap, sizeof(jnode *));
    k->item[k->n++] = n;
}

/* ---- blocks of statements ---- */

static status parse_statement(jparse *p, const jtok *tag, jnode **out);

/* Whether the tag at the current token ends a block: one of `ends`, separated by blanks. */
static bool is_end(const jparse *p, const char *ends) {
    const jtok *t = p->tok + 1;
    if (t->kind != JT_NAME) return false;
    for (const char *w = ends; *w;) {
        size_t n = strcspn(w, " ");
        if (n == t->len && memcmp(w, t->s, n) == 0) return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

static status parse_piece(jparse *p, jkids *kids) {
    const jtok *t = p->tok++;
    jnode *n;
    if (t->kind == JT_TEXT) {
        n = jparse_node(p, JN_TEXT, t);
        n->value = jv_bytes(t->s, t->len);
    } else if (t->kind == JT_VAR_BEGIN) {
        n = jparse_node(p, JN_PRINT, t);
        TRY(jparse_tuple(p, true, NULL, &n->a));
        TRY(jparse_expect(p, JT_VAR_END, "the end of the tag, }}"));
    } else {
        TRY(parse_statement(p, t, &n));
    }
    jkids_add(p, kids, n);
    return ST_OK;
}

/* Statements up to the tag that ends them, whose "{%" is passed; NULL: up to the end of the
 * template. */
static status parse_block(jparse *p, const jtok *opener, const char *ends, jnode **out) {
    *out = jparse_node(p, JN_BLOCK, opener);
    TRY(jparse_enter(p));
    while (p->tok->kind != JT_END) {
        if (ends && p->tok->kind == JT_BLOCK_BEGIN && is_end(p, ends)) break;
        TRY(parse_piece(p, &(*out)->kid));
    }
    p->depth--;
    if (ends && p->tok->kind == JT_END) {
        return jparse_fail(p, opener, "the block that begins here has no {%% %.*s %%}",
                           (int)strcspn(ends, " "), ends);
    }
    if (ends) p->tok++;
    return ST_OK;
}

/* The same after the end of the opening tag. */
static status parse_body(jparse *p, const jtok *opener, const char *ends, jnode **out) {
    TRY(jparse_expect(p, JT_BLOCK_END, "the end of the tag, %}"));
    return parse_block(p, opener, ends, out);
}

static status end_tag(jparse *p) {
    return jparse_expect(p, JT_BLOCK_END, "the end of the tag, %}");
}

/* The body of a statement that has one, and its last tag. */
static status parse_rest(jparse *p, const jtok *opener, const char *end, jnode **out) {
    TRY(parse_body(p, opener, end, out));
    p->tok++;
    return end_tag(p);
}

/* ---- statements ---- */

static status parse_if(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_IF, tag);
    bool more = true;
    p->branches++;
    while (more) {
        jnode *cond, *body;
        TRY(jparse_tuple(p, false, NULL, &cond));
        TRY(parse_body(p, tag, "endif elif else", &body));
        jkids_add(p, &n->kid, cond);
        jkids_add(p, &n->kid, body);
        more = jparse_skip_name(p, "elif");
    }
    if (jparse_skip_name(p, "else")) {
        jnode *body;
        TRY(parse_body(p, tag, "endif", &body));
        jkids_add(p, &n->kid, body);
    }
    p->tok++; /* endif */
    p->branches--;
    return end_tag(p);
}

static status parse_for(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_FOR, tag);
    TRY(jparse_target(p, false, "in", &n->a));
    if (!jparse_skip_name(p, "in")) return jparse_fail(p, p->tok, "expected \"in\"");
    TRY(jparse_tuple(p, false, "recursive", &n->b));
    if (jparse_skip_name(p, "if")) TRY(jparse_expr(p, true, &n->c));
    if (jparse_is_name(p->tok, "recursive")) {
        return jparse_fail(p, p->tok, "recursive loops are not supported");
    }
    p->loops++;
    TRY(parse_body(p, tag, "endfor else", &n->d));
    p->loops--;
    if (jparse_skip_name(p, "else")) {
        jnode *other;
        TRY(parse_body(p, tag, "endfor", &other));
        jkids_add(p, &n->kid, other);
    }
    p->tok++; /* endfor */
    return end_tag(p);
}

static status parse_set(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_SET, tag);
    TRY(jparse_target(p, true, NULL, &n->a));
    if (jparse_skip(p, JT_ASSIGN)) {
        TRY(jparse_tuple(p, true, NULL, &n->b));
        return end_tag(p);
    }
    n->kind = JN_SET_BLOCK;
    if (p->tok->kind == JT_PIPE) {
        TRY(jparse_filters(p, jparse_node(p, JN_HOLE, tag), false, &n->b));
    }
    return parse_rest(p, tag, "endset", &n->d);
}

static status parse_filter_block(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_FILTER_BLOCK, tag);
    TRY(jparse_filters(p, jparse_node(p, JN_HOLE, tag), true, &n->b));
    return parse_rest(p, tag, "endfilter", &n->d);
}

static status parse_with(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_WITH, tag), *target, *value;
    while (p->tok->kind != JT_BLOCK_END) {
        if (n->kid.n > 0) TRY(jparse_expect(p, JT_COMMA, "a comma"));
        TRY(jparse_target(p, false, NULL, &target));
        TRY(jparse_expect(p, JT_ASSIGN, "="));
        TRY(jparse_expr(p, true, &value));
        jkids_add(p, &n->kid, target);
        jkids_add(p, &n->kid, value);
    }
    return parse_rest(p, tag, "endwith", &n->d);
}

static status parse_params(jparse *p, jmacro_def *m) {
    int32_t cap_names = 0, cap_params = 0;
    TRY(jparse_expect(p, JT_LPAREN, "( and the parameters"));
    while (p->tok->kind != JT_RPAREN) {
        if (m->n_params > 0) TRY(jparse_expect(p, JT_COMMA, "a comma"));
        const jtok *name = p->tok;
        TRY(jparse_expect(p, JT_NAME, "the name of a parameter"));
        jnode *value = NULL;
        if (jparse_skip(p, JT_ASSIGN)) {
            TRY(jparse_expr(p, true, &value));
        } else if (m->n_params > 0 && m->fallback.item[m->n_params - 1]) {
            return jparse_fail(p, name, "a parameter without default follows one that has one");
        }
        m->param_name = arena_grow(p->mem, m->param_name, m->n_params, &cap_names, sizeof(jv));
        m->param = arena_grow(p->mem, m->param, m->n_params, &cap_params, sizeof(int32_t));
        m->param_name[m->n_params] = jv_bytes(name->s, name->len);
        m->param[m->n_params] = jparse_symbol(p, m->param_name[m->n_params]);
        jkids_add(p, &m->fallback, value);
        m->n_params++;
    }
    p->tok++;
    return ST_OK;
}

static status parse_macro(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_MACRO, tag);
    jmacro_def *m = n->macro = ARENA_NEW(p->mem, jmacro_def);
    bool varargs = p->varargs, kwargs = p->kwargs;
    int32_t loops = p->loops;
    const jtok *name = p->tok;
    TRY(jparse_expect(p, JT_NAME, "the name of the macro"));
    m->name = jv_bytes(name->s, name->len);
    m->symbol = jparse_symbol(p, m->name);
    p->varargs = p->kwargs = false;
    p->loops = 0;
    TRY(parse_params(p, m));
    TRY(parse_rest(p, tag, "endmacro", &m->body));
    m->takes_varargs = p->varargs;
    m->takes_kwargs = p->kwargs;
    p->varargs = varargs;
    p->kwargs = kwargs;
    p->loops = loops;
    return ST_OK;
}

static status parse_generation(jparse *p, const jtok *tag, jnode **out) {
    jnode *n = *out = jparse_node(p, JN_GENERATION, tag);
    int32_t loops = p->loops;
    p->loops = 0;
    p->t->has_generation = true;
    TRY(parse_rest(p, tag, "endgeneration", &n->d));
    p->loops = loops;
    return ST_OK;
}

static status parse_print(jparse *p, const jtok *tag, jnode **out) {
    *out = jparse_node(p, JN_PRINT, tag);
    jnode *all = (*out)->a = jparse_node(p, JN_CONCAT, tag);
    do {
        jnode *value;
        TRY(jparse_expr(p, true, &value));
        jkids_add(p, &all->kid, value);
    } while (jparse_skip(p, JT_COMMA));
    return end_tag(p);
}

static status parse_break(jparse *p, const jtok *tag, jnode **out) {
    bool stops = jparse_is_name(p->tok - 1, "break");
    *out = jparse_node(p, stops ? JN_BREAK : JN_CONTINUE, tag);
    if (p->loops == 0) {
        return jparse_fail(p, tag, "%s outside a loop", stops ? "break" : "continue");
    }
    return end_tag(p);
}

typedef status parse_fn(jparse *p, const jtok *tag, jnode **out);
static const struct {
    const char *word;
    parse_fn *parse; /* NULL: Jinja has it, this does not */
} statements[] = {
    {"if", parse_if},       {"for", parse_for},
    {"set", parse_set},     {"macro", parse_macro},
    {"break", parse_break}, {"continue", parse_break},
    {"with", parse_with},   {"generation", parse_generation},
    {"print", parse_print}, {"filter", parse_filter_block},
    {"include", NULL},      {"import", NULL},
    {"from", NULL},         {"extends", NULL},
    {"block", NULL},        {"call", NULL},
    {"autoescape", NULL},   {"do", NULL},
    {"trans", NULL},        {"debug", NULL},
};

/* A statement after its "{%". */
static status parse_statement(jparse *p, const jtok *tag, jnode **out) {
    const jtok *word = p->tok;
    TRY(jparse_expect(p, JT_NAME, "the name of a statement"));
    for (int i = 0; i < ARRAY_LEN(statements); i++) {
        if (!jparse_is_name(word, statements[i].word)) continue;
        if (statements[i].parse) return statements[i].parse(p, tag, out);
        jparse_fail(p, tag, "the statement \"%s\" is not supported", statements[i].word);
        return err_hint(p->e, "chat templates use if, for, set, macro, with, filter, break, "
                              "continue and generation");
    }
    return jparse_fail(p, tag, "there is no statement \"%.*s\" here",
                       word->len < 80 ? (int)word->len : 80, word->s);
}

/* ---- the template ---- */

static status parse_template(jinja_template *t, const char *text, size_t len, err *e) {
    jlex x = {.mem = t->mem, .verbatim = t->strict, .e = e};
    TRY(jlex_run(&x, text, len));
    jparse p = {
        .mem = t->mem, .t = t, .src = x.src, .tok = x.token, .symbols = json_object(), .e = e};
    t->src = x.src;
    t->text = arena_strndup(t->mem, text, len);
    t->sym_loop = jparse_symbol(&p, JV_WORD("loop"));
    t->sym_varargs = jparse_symbol(&p, JV_WORD("varargs"));
    t->sym_kwargs = jparse_symbol(&p, JV_WORD("kwargs"));
    status st = parse_block(&p, p.tok, NULL, &t->root);
    json_decref(p.symbols);
    return st;
}

static status parse(jinja_template **out, const char *text, size_t len, bool strict, err *e) {
    arena *mem = arena_new("template");
    jinja_template *t = ARENA_NEW(mem, jinja_template);
    t->mem = mem;
    t->strict = strict;
    *out = NULL;
    status st = parse_template(t, text, len, e);
    if (st == ST_OK)
        *out = t;
    else
        jinja_free(t);
    return st;
}

status jinja_parse(jinja_template **out, const char *text, size_t len, err *e) {
    return parse(out, text, len, false, e);
}

status jinja_parse_strict(jinja_template **out, const char *text, size_t len, err *e) {
    return parse(out, text, len, true, e);
}

void jinja_free(jinja_template *t) {
    if (t) arena_free(t->mem);
}

bool jinja_has_generation(const jinja_template *t) {
    return t->has_generation;
}

bool jinja_mentions(const jinja_template *t, const char *text) {
    return strstr(t->text, text) != NULL;
}
