/* What Python does with values of any kind: iterate, compare, order, look inside. */
#include <string.h>

#include "jinja/run.h"
#include "base/utf8.h"

/* ---- iteration ---- */

static status characters(jrun *r, jv s, jseq **out) {
    jseq *list = *out = jseq_new(r, JSEQ_LIST);
    TRY(jrun_spend(r, s.n));
    s.safe = false;
    for (size_t at = 0; at < s.n;) {
        size_t n = utf8_size(s.u.s[at]);
        jseq_push(r, list, jv_part(s, at, at + n));
        at += n;
    }
    return ST_OK;
}

static jseq *keys_of(jrun *r, const jdict *d) {
    jseq *s = jseq_new(r, JSEQ_KEYS);
    s->item = d->key;
    s->n = s->cap = d->n;
    return s;
}

status jv_iterate(jrun *r, jv v, const jseq **out) {
    jseq *s = NULL;
    TRY(jrun_use(r, v));
    if (v.kind == JV_UNDEFINED && (!v.u.undef || !v.u.undef->forbidden)) {
        s = jseq_new(r, JSEQ_LIST);
    } else if (v.kind == JV_STRING) {
        TRY(characters(r, v, &s));
    } else if (v.kind == JV_DICT) {
        s = keys_of(r, v.u.dict);
    } else if (jv_is_seq(v, JSEQ_GENERATOR)) {
        s = jseq_new(r, JSEQ_LIST);
        s->n = s->cap = v.u.seq->n - v.u.seq->at;
        if (s->n > 0) s->item = v.u.seq->item + v.u.seq->at;
        v.u.seq->at = v.u.seq->n;
    } else if (v.kind == JV_SEQ) {
        s = v.u.seq;
    } else {
        TRY(jrun_require(r, v));
        return jrun_fail(r, "'%s' object is not iterable", jv_type(v));
    }
    *out = s;
    return ST_OK;
}

/* ---- equality ---- */

static status seqs_equal(jrun *r, const jseq *a, const jseq *b, bool *equal) {
    if (a->kind != b->kind || a->n != b->n) return ST_OK;
    if (a->kind >= JSEQ_VALUES) { /* no comparison of their own */
        *equal = a == b;
        return ST_OK;
    }
    for (int32_t i = 0; i < a->n; i++) {
        TRY(jv_equal(r, a->item[i], b->item[i], equal));
        if (!*equal) return ST_OK;
    }
    *equal = true;
    return ST_OK;
}

static status dicts_equal(jrun *r, const jdict *a, const jdict *b, bool *equal) {
    if (a->n != b->n) return ST_OK;
    for (int32_t i = 0; i < a->n; i++) {
        jv *other;
        TRY(jdict_find(r, b, a->key[i], &other));
        *equal = false;
        if (other) TRY(jv_equal(r, a->value[i], *other, equal));
        if (!*equal) return ST_OK;
    }
    *equal = true;
    return ST_OK;
}

static status nested_equal(jrun *r, jv a, jv b, bool *equal) {
    TRY(jrun_enter(r));
    status st = a.kind == JV_SEQ ? seqs_equal(r, a.u.seq, b.u.seq, equal)
                                 : dicts_equal(r, a.u.dict, b.u.dict, equal);
    r->depth--;
    return st;
}

status jtext_equal(jrun *r, jv a, jv b, bool *equal) {
    *equal = a.n == b.n && a.u.s == b.u.s;
    if (*equal || a.n != b.n) return ST_OK;
    *equal = memcmp(a.u.s, b.u.s, a.n) == 0;
    return jrun_spend(r, jcost_copy(a.n));
}

status jv_equal(jrun *r, jv a, jv b, bool *equal) {
    *equal = false;
    TRY(jrun_spend(r, 1));
    TRY(jrun_use(r, a));
    TRY(jrun_use(r, b));
    if (jv_is_int(a) && jv_is_int(b)) {
        *equal = jv_as_int(a) == jv_as_int(b);
    } else if (jv_is_number(a) && jv_is_number(b)) {
        *equal = jv_as_float(a) == jv_as_float(b);
    } else if (a.kind != b.kind) {
        return ST_OK;
    } else if (a.kind == JV_STRING) {
        return jtext_equal(r, a, b, equal);
    } else if (a.kind == JV_NONE || a.kind == JV_UNDEFINED) {
        *equal = true;
    } else if (a.kind == JV_SEQ || a.kind == JV_DICT) {
        return nested_equal(r, a, b, equal);
    } else {
        *equal = a.u.loop == b.u.loop; /* the same object */
    }
    return ST_OK;
}

/* ---- order ---- */

static status seq_order(jrun *r, const jseq *a, const jseq *b, int *order) {
    for (int32_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        TRY(jv_equal(r, a->item[i], b->item[i], &equal));
        if (!equal) return jv_order(r, a->item[i], b->item[i], order);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return ST_OK;
}

static int text_order(jv a, jv b) {
    int c = memcmp(a.u.s, b.u.s, a.n < b.n ? a.n : b.n);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int number_order(jv a, jv b) {
    if (jv_is_int(a) && jv_is_int(b)) {
        return (jv_as_int(a) > jv_as_int(b)) - (jv_as_int(a) < jv_as_int(b));
    }
    double x = jv_as_float(a), y = jv_as_float(b);
    return (x > y) - (x < y);
}

status jv_order(jrun *r, jv a, jv b, int *order) {
    bool lists = jv_is_seq(a, JSEQ_LIST) && jv_is_seq(b, JSEQ_LIST);
    TRY(jrun_spend(r, 1));
    if (jv_is_number(a) && jv_is_number(b)) {
        *order = number_order(a, b);
        return ST_OK;
    }
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        *order = text_order(a, b);
        return jrun_spend(r, jcost_copy(a.n < b.n ? a.n : b.n));
    }
    if (lists || (jv_is_seq(a, JSEQ_TUPLE) && jv_is_seq(b, JSEQ_TUPLE))) {
        TRY(jrun_enter(r));
        status st = seq_order(r, a.u.seq, b.u.seq, order);
        r->depth--;
        return st;
    }
    TRY(jrun_require(r, a));
    TRY(jrun_require(r, b));
    return jrun_fail(r, "'%s' and '%s' have no order", jv_type(a), jv_type(b));
}

/* ---- looking inside ---- */

/* Each place where the last occurrence might begin, from the end. */
static status find_last(jrun *r, jv all, jv one, int64_t *at) {
    for (size_t end = (size_t)all.n - one.n + 1; end > 0; end = (size_t)*at) {
        const char *p = memrchr(all.u.s, one.u.s[0], end);
        *at = p ? p - all.u.s : -1;
        if (!p) break;
        TRY(jrun_spend(r, 1 + jcost_copy(one.n)));
        if (memcmp(p, one.u.s, one.n) == 0) return ST_OK;
    }
    *at = -1;
    return ST_OK;
}

status jtext_find(jrun *r, jv all, jv one, bool last, int64_t *at) {
    *at = last ? all.n : 0;
    if (one.n == 0) return ST_OK;
    *at = -1;
    if (one.n > all.n) return ST_OK;
    if (last) {
        TRY(find_last(r, all, one, at));
        return jrun_spend(r, jcost_search(*at < 0 ? all.n : all.n - *at));
    }
    const char *p = memmem(all.u.s, all.n, one.u.s, one.n);
    if (p) *at = p - all.u.s;
    return jrun_spend(r, 1 + jcost_search(one.n + (p ? *at : all.n)));
}

status jv_contains(jrun *r, jv all, jv one, bool *yes) {
    const jseq *items;
    *yes = false;
    if (all.kind == JV_STRING) {
        TRY(jrun_require(r, one));
        if (one.kind != JV_STRING) {
            return jrun_fail(r, "'in <string>' requires string as left operand, not %s",
                             jv_type(one));
        }
        int64_t at;
        TRY(jtext_find(r, all, one, false, &at));
        *yes = at >= 0;
        return ST_OK;
    }
    if (all.kind == JV_DICT) {
        jv *value;
        TRY(jdict_find(r, all.u.dict, one, &value));
        *yes = value != NULL;
        return ST_OK;
    }
    if (all.kind != JV_SEQ && all.kind != JV_UNDEFINED) {
        return jrun_fail(r, "argument of type '%s' is not iterable", jv_type(all));
    }
    TRY(jv_iterate(r, all, &items));
    for (int32_t i = 0; i < items->n && !*yes; i++) TRY(jv_equal(r, items->item[i], one, yes));
    return ST_OK;
}

/* ---- sorting ---- */

typedef struct sort_job {
    jv *key, *item, *key_tmp, *item_tmp;
    bool reverse;
} sort_job;

/* Whether the item at j of the right half comes before the one at i of the left. */
static status right_first(jrun *r, const sort_job *s, int32_t i, int32_t j, bool *yes) {
    int order;
    TRY(jv_order(r, s->key[j], s->key[i], &order));
    *yes = s->reverse ? order > 0 : order < 0;
    return ST_OK;
}

static status merge(jrun *r, sort_job *s, int32_t from, int32_t mid, int32_t to) {
    int32_t i = from, j = mid;
    for (int32_t k = from; k < to; k++) {
        bool right = i >= mid;
        if (i < mid && j < to) TRY(right_first(r, s, i, j, &right));
        int32_t pick = right ? j++ : i++;
        s->key_tmp[k] = s->key[pick];
        s->item_tmp[k] = s->item[pick];
    }
    memcpy(s->key + from, s->key_tmp + from, sizeof(jv) * (size_t)(to - from));
    memcpy(s->item + from, s->item_tmp + from, sizeof(jv) * (size_t)(to - from));
    return ST_OK;
}

status jv_sort(jrun *r, jv *key, jv *item, int32_t n, bool reverse) {
    sort_job s = {key, item, ARENA_ARRAY(r->mem, jv, n), ARENA_ARRAY(r->mem, jv, n), reverse};
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from + width < n; from += 2 * width) {
            int64_t to = from + 2 * width < n ? from + 2 * width : n;
            TRY(merge(r, &s, (int32_t)from, (int32_t)(from + width), (int32_t)to));
        }
    }
    return ST_OK;
}
