/* Methods of mappings, lists, tuples and loops. Those that would change their object are there,
 * but forbidden. */
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
