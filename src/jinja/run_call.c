/* Calls: arguments, the tables of builtins, macros. */
#include <stdio.h>
#include <string.h>

#include "jinja/run.h"

/* ---- tables ---- */

const jbuiltin_table jbuiltin_filters = {"filter", {jfilter_rows, jfilter_seq_rows}};
const jbuiltin_table jbuiltin_tests = {"test", {jtest_rows}};

const jbuiltin *jbuiltin_row(const jbuiltin *rows, jv name) {
    for (const jbuiltin *b = rows; b->name; b++) {
        if (jv_is_word(name, b->name)) return b;
    }
    return NULL;
}

const jbuiltin *jbuiltin_find(const jbuiltin_table *t, jv name) {
    for (int i = 0; t->rows[i]; i++) {
        const jbuiltin *b = jbuiltin_row(t->rows[i], name);
        if (b) return b;
    }
    return NULL;
}

/* ---- arguments ---- */

static status add_keywords(jrun *r, jv mapping, jdict *kw) {
    TRY(jrun_require(r, mapping));
    if (mapping.kind != JV_DICT) {
        return jrun_fail(r, "argument after ** must be a mapping, not %s", jv_type(mapping));
    }
    const jdict *d = mapping.u.dict;
    for (int32_t i = 0; i < d->n; i++) {
        jv *old;
        if (d->key[i].kind != JV_STRING) return jrun_fail(r, "keywords must be strings");
        TRY(jdict_find(r, kw, d->key[i], &old));
        if (old) return jrun_fail(r, "two values for one keyword argument");
        TRY(jdict_set(r, kw, d->key[i], d->value[i]));
    }
    return ST_OK;
}

status jrun_args(jrun *r, const jcall_args *a, jargs *out) {
    jseq *pos = jseq_new(r, JSEQ_TUPLE);
    jdict *kw = jdict_new(r);
    jv v;
    for (int32_t i = 0; i < a->pos.n; i++) {
        TRY(jrun_eval(r, a->pos.item[i], &v));
        jseq_push(r, pos, v);
    }
    for (int32_t i = 0; i < a->kw.n; i++) {
        TRY(jrun_eval(r, a->kw.item[i], &v));
        TRY(jdict_set(r, kw, a->kw_name[i], v));
    }
    if (a->star) {
        const jseq *more;
        TRY(jrun_eval(r, a->star, &v));
        TRY(jv_iterate(r, v, &more));
        TRY(jrun_spend(r, more->n));
        for (int32_t i = 0; i < more->n; i++) jseq_push(r, pos, more->item[i]);
    }
    if (a->star_star) {
        TRY(jrun_eval(r, a->star_star, &v));
        TRY(add_keywords(r, v, kw));
    }
    *out = (jargs){pos->item, kw->key, kw->value, pos->n, kw->n};
    return ST_OK;
}

/* The number of the parameter with this name in "a,b,c", -1 when there is none. */
static int param_index(const char *params, jv name) {
    int i = 0;
    for (const char *w = params; *w; i++) {
        size_t n = strcspn(w, ",");
        if (n == name.n && memcmp(w, name.u.s, n) == 0) return i;
        w += n + (w[n] == ',');
    }
    return -1;
}

static int count_params(const char *params) {
    int n = *params != 0;
    for (const char *p = params; *p; p++) n += *p == ',';
    return n;
}

static status bind_params(jrun *r, const jbuiltin *b, const jargs *args, jv *p) {
    int max = count_params(b->params);
    if (args->n_pos > max) {
        return jrun_fail(r, "%s takes at most %d arguments, not %d", b->name, max,
                         (int)args->n_pos);
    }
    for (int32_t i = 0; i < args->n_pos; i++) p[i] = args->pos[i];
    for (int32_t i = 0; i < args->n_kw; i++) {
        int at = param_index(b->params, args->kw_name[i]);
        if (at < 0 || p[at].kind != JV_ABSENT) {
            return jrun_fail(r, "%s does not take the argument '%.*s' here", b->name,
                             JV_SHOWN(args->kw_name[i]));
        }
        p[at] = args->kw[i];
    }
    for (int i = 0; i < (b->needs & ~OF_TEXT); i++) {
        if (p[i].kind == JV_ABSENT) return jrun_fail(r, "%s lacks an argument", b->name);
    }
    return ST_OK;
}

status jbuiltin_call(jrun *r, const jbuiltin *b, jv self, const jargs *args, jv *out) {
    jcall c = {.self = self, .args = args, .name = b->name};
    if (b->params) TRY(bind_params(r, b, args, c.p));
    TRY(jrun_enter(r));
    TRY(jrun_spend(r, 1));
    if (b->needs & OF_TEXT) TRY(jv_to_str(r, self, &c.self));
    status st = b->fn(r, &c, out);
    r->depth--;
    return st;
}

status jarg_int(jrun *r, const jcall *c, int i, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (c->p[i].kind == JV_ABSENT) return ST_OK;
    TRY(jrun_require(r, c->p[i]));
    if (!jv_is_int(c->p[i])) {
        return jrun_fail(r, "%s needs an integer, not '%s'", c->name, jv_type(c->p[i]));
    }
    *out = jv_as_int(c->p[i]);
    return ST_OK;
}

status jarg_str(jrun *r, const jcall *c, int i, jv fallback, jv *out) {
    *out = fallback;
    if (c->p[i].kind == JV_ABSENT) return ST_OK;
    TRY(jrun_require(r, c->p[i]));
    if (c->p[i].kind != JV_STRING) {
        return jrun_fail(r, "%s needs a string, not '%s'", c->name, jv_type(c->p[i]));
    }
    *out = c->p[i];
    return ST_OK;
}

/* ---- macros ---- */

/* Keyword arguments that are not parameters. */
static status extra_keywords(jrun *r, const jmacro_def *m, const jargs *args, int32_t given,
                             jdict *extra) {
    for (int32_t i = 0; i < args->n_kw; i++) {
        bool known = false;
        for (int32_t k = given; k < m->n_params && !known; k++) {
            TRY(jv_equal(r, m->param_name[k], args->kw_name[i], &known));
        }
        if (known) continue;
        if (!m->takes_kwargs) {
            return jrun_fail(r, "the macro '%.*s' takes no keyword argument '%.*s'",
                             JV_SHOWN(m->name), JV_SHOWN(args->kw_name[i]));
        }
        TRY(jdict_set(r, extra, args->kw_name[i], args->kw[i]));
    }
    return ST_OK;
}

/* The value of a parameter that no position gives. */
static status macro_param(jrun *r, const jmacro_def *m, int32_t k, const jargs *args, jv *out) {
    for (int32_t i = 0; i < args->n_kw; i++) {
        bool same;
        TRY(jv_equal(r, m->param_name[k], args->kw_name[i], &same));
        if (!same) continue;
        *out = args->kw[i];
        return ST_OK;
    }
    if (m->fallback.item[k]) return jrun_eval(r, m->fallback.item[k], out);
    *out = jundef_of(r, (jv){0}, m->param_name[k], false);
    return ST_OK;
}

static status bind_macro(jrun *r, const jmacro_def *m, const jargs *args, jscope *scope) {
    int32_t given = args->n_pos < m->n_params ? args->n_pos : m->n_params;
    jdict *extra = jdict_new(r);
    jseq *rest = jseq_new(r, JSEQ_TUPLE);
    for (int32_t k = 0; k < m->n_params; k++) {
        jv v;
        if (k < given)
            v = args->pos[k];
        else
            TRY(macro_param(r, m, k, args, &v));
        TRY(jscope_set(r, scope, m->param[k], v));
    }
    TRY(extra_keywords(r, m, args, given, extra));
    for (int32_t i = given; i < args->n_pos; i++) jseq_push(r, rest, args->pos[i]);
    if (rest->n > 0 && !m->takes_varargs) {
        return jrun_fail(r, "the macro '%.*s' takes not more than %d arguments", JV_SHOWN(m->name),
                         (int)m->n_params);
    }
    if (m->takes_kwargs) TRY(jscope_set(r, scope, r->t->sym_kwargs, jv_dict(extra)));
    if (m->takes_varargs) TRY(jscope_set(r, scope, r->t->sym_varargs, jv_seq(rest)));
    return ST_OK;
}

static status call_macro(jrun *r, const jmacro *m, const jargs *args, jv *out) {
    jscope *scope = jscope_in(r, m->scope), *outer = r->scope;
    jv hole = r->hole;
    r->scope = scope;
    TRY(bind_macro(r, m->def, args, scope));
    r->scope = outer;
    TRY(jrun_capture(r, m->def->body, scope, out));
    r->hole = hole;
    return ST_OK;
}

status jrun_call(jrun *r, jv callee, const jargs *args, jv *out) {
    if (callee.kind == JV_FUNCTION) {
        return jbuiltin_call(r, callee.u.bound->fn, callee.u.bound->self, args, out);
    }
    if (callee.kind == JV_MACRO) return call_macro(r, callee.u.macro, args, out);
    TRY(jrun_require(r, callee));
    if (callee.kind == JV_LOOP) return jrun_fail(r, "recursive loops are not supported");
    return jrun_fail(r, "'%s' object is not callable", jv_type(callee));
}
