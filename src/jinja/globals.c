/* Global functions. */
#include <string.h>

#include "jinja/run.h"

static status raise_exception(jrun *r, const jcall *c, jv *out) {
    TRY(jv_to_str(r, c->p[0], out));
    return jrun_fail(r, "%.*s", out->n < 900 ? (int)out->n : 900, out->u.s);
}

static status strftime_now(jrun *r, const jcall *c, jv *out) {
    char format[512], buf[1024];
    jv f;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &f));
    if (!r->limits.now) return jrun_fail(r, "the template asks for the time, which is not given");
    if (f.n + 2 > sizeof(format) || memchr(f.u.s, 0, f.n)) {
        return jrun_fail(r, "a time format of more than 500 bytes, or with a NUL");
    }
    TRY(jrun_spend(r, 2 * (int64_t)f.n));
    format[0] = 'x'; /* so that an empty result can be told from one too long */
    memcpy(format + 1, f.u.s, f.n);
    format[f.n + 1] = 0;
    size_t n = strftime(buf, sizeof(buf), format, r->limits.now);
    if (n == 0) return jrun_fail(r, "a time of more than 1000 bytes");
    size_t start = jtext_begin(r);
    jtext_add(r, buf + 1, n - 1);
    return jtext_take(r, start, out);
}

enum { MAX_RANGE = 100000 }; /* of Jinja's sandbox */

static status range_items(jrun *r, int64_t from, int64_t to, int64_t step, jv *out) {
    jseq *s = jseq_new(r, JSEQ_RANGE);
    s->range = (jrange){from, to, step};
    if (step == 0) return jrun_fail(r, "range() arg 3 must not be zero");
    double span = ((double)to - (double)from) / (double)step;
    if (span > MAX_RANGE) {
        return jrun_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                         MAX_RANGE);
    }
    *out = jv_seq(s);
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        TRY(jrun_spend(r, 1));
        jseq_push(r, s, jv_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return ST_OK;
}

static status range(jrun *r, const jcall *c, jv *out) {
    int64_t from, to, step;
    TRY(jarg_int(r, c, 0, 0, &from));
    TRY(jarg_int(r, c, 1, from, &to));
    TRY(jarg_int(r, c, 2, 1, &step));
    if (c->p[1].kind == JV_ABSENT) from = 0;
    return range_items(r, from, to, step, out);
}

/* Entries of a mapping, or pairs. */
static status add_entries(jrun *r, jv from, jdict *d) {
    const jseq *pairs, *pair;
    if (from.kind == JV_DICT) {
        const jdict *s = from.u.dict;
        for (int32_t i = 0; i < s->n; i++) TRY(jdict_set(r, d, s->key[i], s->value[i]));
        return ST_OK;
    }
    TRY(jv_iterate(r, from, &pairs));
    for (int32_t i = 0; i < pairs->n; i++) {
        TRY(jv_iterate(r, pairs->item[i], &pair));
        if (pair->n != 2) return jrun_fail(r, "a mapping is made of pairs");
        TRY(jdict_set(r, d, pair->item[0], pair->item[1]));
    }
    return ST_OK;
}

static status make_dict(jrun *r, const jcall *c, jv *out) {
    const jargs *a = c->args;
    jdict *d = jdict_new(r);
    if (a->n_pos > 1) return jrun_fail(r, "%s expected at most 1 argument", c->name);
    if (a->n_pos == 1) TRY(add_entries(r, a->pos[0], d));
    for (int32_t i = 0; i < a->n_kw; i++) TRY(jdict_set(r, d, a->kw_name[i], a->kw[i]));
    *out = jv_dict(d);
    return ST_OK;
}

static status make_namespace(jrun *r, const jcall *c, jv *out) {
    TRY(make_dict(r, c, out));
    const jdict *d = out->u.dict;
    for (int32_t i = 0; i < d->n; i++) {
        if (d->key[i].kind != JV_STRING || d->key[i].n == 0 || d->key[i].u.s[0] != '_') continue;
        return jrun_fail(r, "a namespace has no attributes that begin with an underscore");
    }
    out->kind = JV_NAMESPACE;
    return ST_OK;
}

const jbuiltin jglobal_rows[] = {
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {"range", range, "start,stop,step", 1},
    {"namespace", make_namespace, NULL, 0},
    {"dict", make_dict, NULL, 0},
    {0},
};
