/* Rendering: limits, variables, statements. */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jinja/lex.h"

/* ---- limits and errors ---- */

static status failed_here(jrun *r) {
    int line, column;
    jlex_where(r->t->src, r->at, &line, &column);
    return err_where(r->e, "line %d, column %d", line, column);
}

status jrun_fail(jrun *r, const char *fmt, ...) {
    char what[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    err_set(r->e, ST_FORMAT, "%s", what);
    failed_here(r);
    return ST_FORMAT; /* also when nobody asked for the details */
}

status jrun_spend(jrun *r, int64_t steps) {
    r->left = steps > r->left / 4 ? -1 : r->left - 4 * steps;
    if (r->left < 0) {
        return jrun_fail(r, "the template takes more than %lld steps", (long long)r->limits.steps);
    }
    if (arena_bytes_used(r->mem) > (size_t)r->limits.memory_bytes) {
        return jrun_fail(r, "the values of the template take more than %lld bytes",
                         (long long)r->limits.memory_bytes);
    }
    return ST_OK;
}

status jrun_enter(jrun *r) {
    if (r->depth >= r->limits.depth) {
        return jrun_fail(r, "more than %d calls or values inside one another", (int)r->depth);
    }
    r->depth++;
    return ST_OK;
}

status jrun_require(jrun *r, jv v) {
    if (v.kind != JV_UNDEFINED) return ST_OK;
    const jundef *u = v.u.undef;
    jv name;
    if (!u) return jrun_fail(r, "a value is undefined");
    if (u->why) return jrun_fail(r, "%s", u->why);
    TRY(jv_to_str(r, u->name, &name));
    int n = name.n < 200 ? (int)name.n : 200;
    if (u->forbidden) {
        return jrun_fail(r, "access to attribute '%.*s' of '%s' object is unsafe", n, name.u.s,
                         jv_type(u->of));
    }
    if (u->of.kind == JV_ABSENT) return jrun_fail(r, "'%.*s' is undefined", n, name.u.s);
    if (u->name.kind == JV_STRING) {
        return jrun_fail(r, "'%s object' has no attribute '%.*s'", jv_type(u->of), n, name.u.s);
    }
    return jrun_fail(r, "'%s object' has no element %.*s", jv_type(u->of), n, name.u.s);
}

status jrun_use(jrun *r, jv v) {
    bool lenient = v.kind == JV_UNDEFINED && v.u.undef && v.u.undef->lenient;
    return r->t->strict && !lenient ? jrun_require(r, v) : ST_OK;
}

status jrun_truth(jrun *r, jv v, bool *yes) {
    *yes = jv_truth(v);
    return jrun_use(r, v);
}

/* ---- variables ---- */

jscope *jscope_in(jrun *r, jscope *parent) {
    jscope *s = ARENA_NEW(r->mem, jscope);
    s->parent = parent;
    return s;
}

status jscope_set(jrun *r, jscope *s, int32_t symbol, jv value) {
    TRY(jrun_spend(r, s->n / 16));
    for (int32_t i = 0; i < s->n; i++) {
        if (s->symbol[i] != symbol) continue;
        s->value[i] = value;
        return ST_OK;
    }
    s->symbol = arena_grow(r->mem, s->symbol, s->n, &s->symbol_cap, sizeof(int32_t));
    s->value = arena_grow(r->mem, s->value, s->n, &s->value_cap, sizeof(jv));
    s->symbol[s->n] = symbol;
    s->value[s->n++] = value;
    return ST_OK;
}

/* A variable that no scope has: of the caller, or a global function. */
static status lookup_outside(jrun *r, int32_t symbol, jv *out) {
    jv name = r->t->symbol[symbol];
    const json_t *j = json_object_getn(r->context, name.u.s, name.n);
    const jbuiltin *global = jbuiltin_row(jglobal_rows, name);
    if (j)
        TRY(jv_from_json(r, j, out));
    else if (global)
        *out = jbound_new(r, global, jv_none());
    else
        *out = jundef_of(r, (jv){0}, name, false);
    return jscope_set(r, &r->root, symbol, *out); /* found faster next time */
}

status jrun_lookup(jrun *r, int32_t symbol, jv *out) {
    int64_t seen = 0;
    for (const jscope *s = r->scope; s; s = s->parent) {
        for (int32_t i = 0; i < s->n; i++) {
            if (s->symbol[i] != symbol) continue;
            *out = s->value[i];
            return jrun_spend(r, (seen + i) / 16);
        }
        seen += 1 + s->n;
    }
    TRY(jrun_spend(r, seen / 16));
    return lookup_outside(r, symbol, out);
}

static status assign_attr(jrun *r, const jnode *target, jv value) {
    jv space;
    TRY(jrun_lookup(r, target->symbol, &space));
    if (space.kind != JV_NAMESPACE) {
        jrun_fail(r, "an attribute can only be set on a namespace");
        return err_hint(r->e, "make one: {%% set ns = namespace() %%}");
    }
    if (target->value.n > 0 && target->value.u.s[0] == '_') {
        return jrun_fail(r, "a namespace has no attributes that begin with an underscore");
    }
    return jdict_set(r, space.u.dict, target->value, value);
}

static status assign_tuple(jrun *r, const jnode *target, jv value) {
    const jseq *items;
    TRY(jv_iterate(r, value, &items));
    if (items->n != target->kid.n) {
        return jrun_fail(r, "%d values for %d names", (int)items->n, (int)target->kid.n);
    }
    for (int32_t i = 0; i < items->n; i++) TRY(jrun_assign(r, target->kid.item[i], items->item[i]));
    return ST_OK;
}

status jrun_assign(jrun *r, const jnode *target, jv value) {
    if (target->kind == JN_TUPLE) return assign_tuple(r, target, value);
    if (target->kind == JN_NS_ATTR) return assign_attr(r, target, value);
    return jscope_set(r, r->scope, target->symbol, value);
}

/* ---- statements ---- */

static status write_text(jrun *r, const char *s, size_t n) {
    strbuf_append(r->out, s, n);
    if (r->out->len - r->out_start > (size_t)r->limits.output_bytes) {
        return jrun_fail(r, "the template writes more than %lld bytes",
                         (long long)r->limits.output_bytes);
    }
    return jrun_spend(r, jcost_copy((int64_t)n));
}

static status print_value(jrun *r, jv v) {
    if (v.kind == JV_STRING) return write_text(r, v.u.s, v.n);
    size_t start = jtext_begin(r);
    TRY(jv_add_str(r, v));
    TRY(jtext_check(r));
    status st = write_text(r, strbuf_cstr(&r->scratch) + start, r->scratch.len - start);
    strbuf_truncate(&r->scratch, start);
    return st;
}

status jrun_capture(jrun *r, const jnode *block, jscope *scope, jv *out) {
    jscope *outer = r->scope;
    size_t start = r->out->len;
    r->scope = scope;
    r->captures++;
    TRY(jrun_block(r, block));
    r->captures--;
    r->scope = outer;
    size_t text = jtext_begin(r);
    if (r->out->len > start) jtext_add(r, r->out->data + start, r->out->len - start);
    strbuf_truncate(r->out, start);
    return jtext_take(r, text, out);
}

/* The text of a block through its filters. */
static status filtered_block(jrun *r, const jnode *n, jv *out) {
    jv hole = r->hole;
    TRY(jrun_capture(r, n->d, jscope_in(r, r->scope), out));
    if (!n->b || r->flow != JFLOW_NEXT) return ST_OK;
    r->hole = *out;
    TRY(jrun_eval(r, n->b, out));
    r->hole = hole;
    return ST_OK;
}

static status run_if(jrun *r, const jnode *n) {
    int32_t i = 0;
    for (; i + 1 < n->kid.n; i += 2) {
        jv cond;
        bool yes;
        TRY(jrun_eval(r, n->kid.item[i], &cond));
        TRY(jrun_truth(r, cond, &yes));
        if (yes) return jrun_block(r, n->kid.item[i + 1]);
    }
    return i < n->kid.n ? jrun_block(r, n->kid.item[i]) : ST_OK;
}

static status run_set(jrun *r, const jnode *n) {
    jv value;
    if (n->kind == JN_SET) {
        TRY(jrun_eval(r, n->b, &value));
    } else {
        TRY(filtered_block(r, n, &value));
        if (r->flow != JFLOW_NEXT) return ST_OK;
    }
    r->at = n->at;
    return jrun_assign(r, n->a, value);
}

static status run_filter_block(jrun *r, const jnode *n) {
    jv text;
    TRY(filtered_block(r, n, &text));
    if (r->flow != JFLOW_NEXT) return ST_OK;
    r->at = n->at;
    if (text.kind != JV_STRING) {
        return jrun_fail(r, "the filters of a block must give a text, not %s", jv_type(text));
    }
    return print_value(r, text);
}

static status run_with(jrun *r, const jnode *n) {
    jscope *outer = r->scope, *inner = jscope_in(r, outer);
    for (int32_t i = 0; i < n->kid.n; i += 2) { /* values do not see the names beside them */
        jv value;
        TRY(jrun_eval(r, n->kid.item[i + 1], &value));
        r->scope = inner;
        TRY(jrun_assign(r, n->kid.item[i], value));
        r->scope = outer;
    }
    r->scope = inner;
    TRY(jrun_block(r, n->d));
    r->scope = outer;
    return ST_OK;
}

static status run_macro(jrun *r, const jnode *n) {
    jmacro m = {n->macro, r->scope};
    jv v = {.kind = JV_MACRO, .u.macro = arena_memdup(r->mem, &m, sizeof(m))};
    for (jscope *s = r->scope; s && !s->kept; s = s->parent) s->kept = true;
    return jscope_set(r, r->scope, n->macro->symbol, v);
}

static status run_generation(jrun *r, const jnode *n) {
    jscope *outer = r->scope;
    size_t start = r->out->len - r->out_start;
    bool record = r->spans && r->generations == 0;
    if (r->spans && r->captures > 0) {
        return jrun_fail(r, "a generation block inside a macro or a set block has no place in "
                            "the output that could be marked");
    }
    r->scope = jscope_in(r, outer);
    r->generations++;
    TRY(jrun_block(r, n->d));
    r->generations--;
    r->scope = outer;
    jinja_span span = {start, r->out->len - r->out_start};
    if (record) VEC_PUSH(r->spans->span, r->spans->n, r->spans->cap, span);
    return ST_OK;
}

static status run_print(jrun *r, const jnode *n) {
    jv v;
    TRY(jrun_eval(r, n->a, &v));
    r->at = n->at;
    return print_value(r, v);
}

static status run_statement(jrun *r, const jnode *n) {
    r->at = n->at;
    TRY(jrun_spend(r, 1));
    switch ((jnode_kind)n->kind) {
        case JN_TEXT: return write_text(r, n->value.u.s, n->value.n);
        case JN_PRINT: return run_print(r, n);
        case JN_IF: return run_if(r, n);
        case JN_FOR: return jrun_for(r, n);
        case JN_SET:
        case JN_SET_BLOCK: return run_set(r, n);
        case JN_FILTER_BLOCK: return run_filter_block(r, n);
        case JN_WITH: return run_with(r, n);
        case JN_MACRO: return run_macro(r, n);
        case JN_GENERATION: return run_generation(r, n);
        case JN_BREAK: r->flow = JFLOW_BREAK; return ST_OK;
        case JN_CONTINUE: r->flow = JFLOW_CONTINUE; return ST_OK;
        default: CHECK(false, "an expression where a statement stands"); return ST_FAILED;
    }
}

status jrun_block(jrun *r, const jnode *block) {
    TRY(jrun_enter(r));
    for (int32_t i = 0; i < block->kid.n && r->flow == JFLOW_NEXT; i++) {
        TRY(run_statement(r, block->kid.item[i]));
    }
    r->depth--;
    return ST_OK;
}

/* ---- a render ---- */

static jinja_limits with_defaults(const jinja_limits *given) {
    jinja_limits l = given ? *given : (jinja_limits){0};
    if (l.steps <= 0) l.steps = 20000000;
    if (l.steps > INT64_MAX / 8) l.steps = INT64_MAX / 8;
    if (l.output_bytes <= 0) l.output_bytes = 64 << 20;
    if (l.memory_bytes <= 0) l.memory_bytes = 512 << 20;
    if (l.depth <= 0) l.depth = 1000;
    return l;
}

status jinja_render(const jinja_template *t, const json_t *context, const jinja_limits *limits,
                    strbuf *out, jinja_spans *generation, err *e) {
    jrun r = {
        .t = t,
        .context = context,
        .limits = with_defaults(limits),
        .mem = arena_new("chat render"),
        .out = out,
        .out_start = out->len,
        .spans = generation,
        .e = e,
    };
    int64_t n_spans = generation ? generation->n : 0;
    r.left = 4 * r.limits.steps;
    r.scope = &r.root;
    status st = jrun_block(&r, t->root);
    if (st != ST_OK) {
        strbuf_truncate(out, r.out_start);
        if (generation) generation->n = n_spans;
    }
    strbuf_free(&r.scratch);
    arena_free(r.mem);
    return st;
}
