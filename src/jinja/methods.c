/* Methods of mappings, lists, tuples and loops, and the global functions. Methods that would change
 * their object are there, but forbidden. */
#include <string.h>

#include "jinja/run.h"

/* ---- mappings ---- */

static status dict_get(jrun *r, const jcall *c, jv *out) {
    jv *value;
    TRY(jdict_find(r, c->self.u.dict, c->p[0], &value));
    *out = value ? *value : c->p[1].kind == JV_ABSENT ? jv_none() : c->p[1];
    return ST_OK;
}

/* keys, values, items */
static status dict_view(jrun *r, const jcall *c, jv *out) {
    const jdict *d = c->self.u.dict;
    jseq_kind kind = c->name[0] == 'k' ? JSEQ_KEYS : c->name[0] == 'v' ? JSEQ_VALUES : JSEQ_ITEMS;
    jseq *s = jseq_new(r, kind);
    *out = jv_seq(s);
    TRY(jrun_spend(r, d->n));
    for (int32_t i = 0; i < d->n; i++) {
        jv item = kind == JSEQ_KEYS     ? d->key[i]
                  : kind == JSEQ_VALUES ? d->value[i]
                                        : jseq_pair(r, d->key[i], d->value[i]);
        jseq_push(r, s, item);
    }
    return ST_OK;
}

static status copy_self(jrun *r, const jcall *c, jv *out) {
    (void)r;
    *out = c->self; /* nothing can change it, so it is its own copy */
    return ST_OK;
}

const jbuiltin jmethod_dict_rows[] = {
    {"get", dict_get, "key,default", 1},
    {"items", dict_view, "", 0},
    {"keys", dict_view, "", 0},
    {"values", dict_view, "", 0},
    {"copy", copy_self, "", 0},
    {"clear", NULL, "", 0},
    {"pop", NULL, "", 0},
    {"popitem", NULL, "", 0},
    {"setdefault", NULL, "", 0},
    {"update", NULL, "", 0},
    {0},
};

/* ---- lists and tuples ---- */

static status seq_count(jrun *r, const jcall *c, jv *out) {
    const jseq *s = c->self.u.seq;
    int64_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        bool same;
        TRY(jv_equal(r, s->item[i], c->p[0], &same));
        n += same;
    }
    *out = jv_int(n);
    return ST_OK;
}

static status seq_index(jrun *r, const jcall *c, jv *out) {
    const jseq *s = c->self.u.seq;
    jv start = c->p[1].kind == JV_ABSENT ? jv_none() : c->p[1];
    jv stop = c->p[2].kind == JV_ABSENT ? jv_none() : c->p[2];
    int64_t from, n, ignored;
    TRY(jarg_int(r, c, 1, 0, &ignored));
    TRY(jarg_int(r, c, 2, 0, &ignored));
    TRY(jslice_range(r, s->n, start, stop, 1, &from, &n));
    for (int64_t i = from; i < from + n; i++) {
        bool same;
        TRY(jv_equal(r, s->item[i], c->p[0], &same));
        *out = jv_int(i);
        if (same) return ST_OK;
    }
    return jrun_fail(r, "the value is not in the %s", jv_type(c->self));
}

const jbuiltin jmethod_list_rows[] = {
    {"index", seq_index, "value,start,stop", 1},
    {"count", seq_count, "value", 1},
    {"copy", copy_self, "", 0},
    {"append", NULL, "", 0},
    {"clear", NULL, "", 0},
    {"extend", NULL, "", 0},
    {"insert", NULL, "", 0},
    {"pop", NULL, "", 0},
    {"remove", NULL, "", 0},
    {"reverse", NULL, "", 0},
    {"sort", NULL, "", 0},
    {0},
};

const jbuiltin jmethod_tuple_rows[] = {
    {"index", seq_index, "value,start,stop", 1},
    {"count", seq_count, "value", 1},
    {0},
};

/* ---- loops ---- */

static status loop_cycle(jrun *r, const jcall *c, jv *out) {
    if (c->args->n_pos == 0) return jrun_fail(r, "no items for cycling given");
    *out = c->args->pos[c->self.u.loop->index % c->args->n_pos];
    return ST_OK;
}

static status loop_changed(jrun *r, const jcall *c, jv *out) {
    jloop *l = c->self.u.loop;
    jseq *now = jseq_new(r, JSEQ_TUPLE);
    bool same = false;
    for (int32_t i = 0; i < c->args->n_pos; i++) jseq_push(r, now, c->args->pos[i]);
    if (l->changed.kind != JV_ABSENT) TRY(jv_equal(r, l->changed, jv_seq(now), &same));
    if (!same) l->changed = jv_seq(now);
    *out = jv_bool(!same);
    return ST_OK;
}

const jbuiltin jmethod_loop_rows[] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
    {0},
};

/* ---- global functions ---- */

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
