/* Filters of sequences and mappings. What Jinja gives as a generator is one here, too: it can be
 * gone through once. */
#include <string.h>

#include "jinja/run.h"
#include "jinja/lex.h"

/* ---- attributes of items ---- */

static status step_into(jrun *r, jv part, jv fallback, jv *item) {
    TRY(jrun_spend(r, 1));
    TRY(jrun_item(r, *item, part, item));
    bool given = fallback.kind != JV_ABSENT && fallback.kind != JV_NONE;
    if (item->kind == JV_UNDEFINED && given) *item = fallback;
    return ST_OK;
}

/* Follows "a.b.0" or an index; absent or None gives the item itself. What is undefined on the way becomes `fallback`,
 * if there is one. */
static status follow_or(jrun *r, jv item, jv path, jv fallback, jv *out) {
    *out = item;
    if (path.kind == JV_ABSENT || path.kind == JV_NONE) return ST_OK;
    if (path.kind != JV_STRING) return step_into(r, path, fallback, out);
    for (uint32_t at = 0; at <= path.n;) {
        const char *dot = memchr(path.u.s + at, '.', path.n - at);
        uint32_t end = dot ? (uint32_t)(dot - path.u.s) : path.n;
        jv part = jv_part(path, at, end);
        int64_t index;
        TRY(step_into(r, jv_is_index(part, &index) ? jv_int(index) : part, fallback, out));
        at = end + 1;
    }
    return ST_OK;
}

static status follow(jrun *r, jv item, jv path, jv *out) {
    return follow_or(r, item, path, (jv){0}, out);
}

/* What an item is sorted or compared by: an attribute of it, texts in lower case unless asked. */
static status sort_key(jrun *r, jv item, jv attribute, bool case_sensitive, jv *out) {
    TRY(follow(r, item, attribute, out));
    if (!case_sensitive && out->kind == JV_STRING)
        return jstr_lower(r, &(jcall){.self = *out}, out);
    return ST_OK;
}

/* The same for several attributes, "a,b": a tuple. */
static status sort_keys(jrun *r, jv item, jv attribute, bool case_sensitive, jv *out) {
    if (attribute.kind != JV_STRING || !memchr(attribute.u.s, ',', attribute.n)) {
        return sort_key(r, item, attribute, case_sensitive, out);
    }
    jseq *keys = jseq_new(r, JSEQ_TUPLE);
    for (uint32_t at = 0; at <= attribute.n;) {
        const char *comma = memchr(attribute.u.s + at, ',', attribute.n - at);
        uint32_t end = comma ? (uint32_t)(comma - attribute.u.s) : attribute.n;
        jv key;
        TRY(sort_key(r, item, jv_part(attribute, at, end), case_sensitive, &key));
        jseq_push(r, keys, key);
        at = end + 1;
    }
    *out = jv_seq(keys);
    return ST_OK;
}

/* ---- list, first, last, join ---- */

static status copy_items(jrun *r, jv v, jseq **out) {
    const jseq *items;
    TRY(jv_iterate(r, v, &items));
    TRY(jrun_spend(r, items->n));
    *out = jseq_new(r, JSEQ_LIST);
    if (items->n > 0) {
        (*out)->item = arena_memdup(r->mem, items->item, sizeof(jv) * (size_t)items->n);
    }
    (*out)->n = (*out)->cap = items->n;
    return ST_OK;
}

static status filter_list(jrun *r, const jcall *c, jv *out) {
    jseq *s;
    TRY(copy_items(r, c->self, &s));
    *out = jv_seq(s);
    return ST_OK;
}

static status filter_first(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    TRY(jv_iterate(r, c->self, &items));
    *out =
        items->n > 0 ? items->item[0] : jundef_why(r, "No first item, sequence was empty.", false);
    return ST_OK;
}

static status filter_last(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    if (jv_is_seq(c->self, JSEQ_GENERATOR)) {
        return jrun_fail(r, "'generator' object is not reversible");
    }
    TRY(jv_iterate(r, c->self, &items));
    *out = items->n > 0 ? items->item[items->n - 1]
                        : jundef_why(r, "No last item, sequence was empty.", false);
    return ST_OK;
}

static status filter_join(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    jv between = JV_WORD(""), item;
    TRY(jv_iterate(r, c->self, &items));
    if (c->p[0].kind != JV_ABSENT) TRY(jv_to_str(r, c->p[0], &between));
    size_t start = jtext_begin(r);
    for (int32_t i = 0; i < items->n; i++) {
        TRY(follow(r, items->item[i], c->p[1], &item));
        if (i > 0) jtext_add_str(r, between);
        TRY(jv_add_str(r, item));
        TRY(jrun_spend(r, 1));
    }
    return jtext_take(r, start, out);
}

static status filter_reverse(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    TRY(jv_iterate(r, c->self, &items));
    TRY(jrun_spend(r, items->n));
    if (c->self.kind == JV_STRING) {
        size_t start = jtext_begin(r);
        for (int32_t i = items->n; i > 0; i--) jtext_add_str(r, items->item[i - 1]);
        return jtext_take(r, start, out);
    }
    jseq *s = jseq_new(r, JSEQ_GENERATOR);
    for (int32_t i = items->n; i > 0; i--) jseq_push(r, s, items->item[i - 1]);
    *out = jv_seq(s);
    return ST_OK;
}

/* ---- mappings ---- */

static status filter_items(jrun *r, const jcall *c, jv *out) {
    jseq *s = jseq_new(r, JSEQ_GENERATOR);
    *out = jv_seq(s);
    if (c->self.kind == JV_UNDEFINED) return ST_OK;
    if (c->self.kind != JV_DICT) return jrun_fail(r, "Can only get item pairs from a mapping.");
    const jdict *d = c->self.u.dict;
    TRY(jrun_spend(r, d->n));
    for (int32_t i = 0; i < d->n; i++) jseq_push(r, s, jseq_pair(r, d->key[i], d->value[i]));
    return ST_OK;
}

static status filter_dictsort(jrun *r, const jcall *c, jv *out) {
    jv by;
    TRY(jrun_require(r, c->self));
    TRY(jarg_str(r, c, 1, JV_WORD("key"), &by));
    if (c->self.kind != JV_DICT) return jrun_fail(r, "dictsort needs a mapping");
    if (!jv_is_word(by, "key") && !jv_is_word(by, "value")) {
        return jrun_fail(r, "You can only sort by either \"key\" or \"value\"");
    }
    const jdict *d = c->self.u.dict;
    TRY(jrun_spend(r, d->n));
    jseq *s = jseq_new(r, JSEQ_LIST), *keys = jseq_new(r, JSEQ_LIST);
    for (int32_t i = 0; i < d->n; i++) {
        jv key = jv_is_word(by, "key") ? d->key[i] : d->value[i];
        TRY(sort_key(r, key, jv_none(), jarg_truth(c, 0), &key));
        jseq_push(r, keys, key);
        jseq_push(r, s, jseq_pair(r, d->key[i], d->value[i]));
    }
    *out = jv_seq(s);
    return jv_sort(r, keys->item, s->item, s->n, jarg_truth(c, 2));
}

/* ---- order ---- */

static status filter_sort(jrun *r, const jcall *c, jv *out) {
    jseq *s, *keys = jseq_new(r, JSEQ_LIST);
    TRY(copy_items(r, c->self, &s));
    for (int32_t i = 0; i < s->n; i++) {
        jv key;
        TRY(sort_keys(r, s->item[i], c->p[2], jarg_truth(c, 1), &key));
        jseq_push(r, keys, key);
    }
    *out = jv_seq(s);
    return jv_sort(r, keys->item, s->item, s->n, jarg_truth(c, 0));
}

static status filter_unique(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    jseq *s = jseq_new(r, JSEQ_GENERATOR);
    jdict *seen = jdict_new(r);
    TRY(jv_iterate(r, c->self, &items));
    for (int32_t i = 0; i < items->n; i++) {
        jv key, *old;
        TRY(jrun_spend(r, 1));
        TRY(sort_key(r, items->item[i], c->p[1], jarg_truth(c, 0), &key));
        TRY(jdict_find(r, seen, key, &old));
        if (old) continue;
        TRY(jdict_set(r, seen, key, jv_none()));
        jseq_push(r, s, items->item[i]);
    }
    *out = jv_seq(s);
    return ST_OK;
}

/* min, max */
static status filter_extreme(jrun *r, const jcall *c, jv *out) {
    int sign = strcmp(c->name, "max") == 0 ? 1 : -1;
    const jseq *items;
    jv best = {0}, key;
    int order;
    TRY(jv_iterate(r, c->self, &items));
    *out = jundef_why(r, "No aggregated item, sequence was empty.", false);
    for (int32_t i = 0; i < items->n; i++) {
        TRY(sort_key(r, items->item[i], c->p[1], jarg_truth(c, 0), &key));
        if (i > 0) {
            TRY(jv_order(r, key, best, &order));
            if (order * sign <= 0) continue;
        }
        best = key;
        *out = items->item[i];
    }
    return ST_OK;
}

static status filter_sum(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    TRY(jv_iterate(r, c->self, &items));
    *out = c->p[1].kind == JV_ABSENT ? jv_int(0) : c->p[1];
    for (int32_t i = 0; i < items->n; i++) {
        jv item;
        TRY(jrun_spend(r, 1));
        TRY(follow(r, items->item[i], c->p[0], &item));
        if (item.kind == JV_STRING) return jrun_fail(r, "sum of texts");
        TRY(jrun_binary(r, JT_ADD, *out, item, out));
    }
    return ST_OK;
}

/* ---- map, select, reject ---- */

static status map_attribute(jrun *r, const jcall *c, jv item, jv *out) {
    const jargs *a = c->args;
    jv fallback = {0}, path = {0};
    for (int32_t i = 0; i < a->n_kw; i++) {
        if (jv_is_word(a->kw_name[i], "default"))
            fallback = a->kw[i];
        else if (jv_is_word(a->kw_name[i], "attribute"))
            path = a->kw[i];
    }
    if (path.kind == JV_ABSENT || a->n_kw > 1 + (fallback.kind != JV_ABSENT)) {
        return jrun_fail(r, "map takes attribute and default, or the name of a filter");
    }
    return follow_or(r, item, path, fallback, out);
}

static status map_filter(jrun *r, const jcall *c, const jbuiltin *filter, jv item, jv *out) {
    jargs rest = *c->args;
    rest.pos++;
    rest.n_pos--;
    return jbuiltin_call(r, filter, item, &rest, out);
}

static status filter_map(jrun *r, const jcall *c, jv *out) {
    const jbuiltin *filter = NULL;
    const jargs *a = c->args;
    const jseq *items;
    jseq *s = jseq_new(r, JSEQ_GENERATOR);
    if (a->n_pos > 0) filter = jbuiltin_find(&jbuiltin_filters, a->pos[0]);
    if (a->n_pos > 0 && !filter) return jrun_fail(r, "map names a filter that there is not");
    if (a->n_pos == 0 && a->n_kw == 0) return jrun_fail(r, "map requires a filter argument");
    *out = jv_seq(s);
    bool some;
    TRY(jrun_truth(r, c->self, &some));
    if (!some) return ST_OK; /* None, too, has no items here */
    TRY(jv_iterate(r, c->self, &items));
    for (int32_t i = 0; i < items->n; i++) {
        jv v = jv_undefined();
        TRY(jrun_spend(r, 1));
        if (filter)
            TRY(map_filter(r, c, filter, items->item[i], &v));
        else
            TRY(map_attribute(r, c, items->item[i], &v));
        jseq_push(r, s, v);
    }
    *out = jv_seq(s);
    return ST_OK;
}

/* select, reject, selectattr, rejectattr: items whose value (an attribute of them with by_attr) passes a test, or is true without one. */
static status filter_select(jrun *r, const jcall *c, jv *out) {
    bool keep = c->name[0] == 's', by_attr = strstr(c->name, "attr") != NULL;
    const jargs *a = c->args;
    const jseq *items;
    jseq *s = jseq_new(r, JSEQ_GENERATOR);
    jargs rest = *a;
    if (by_attr && a->n_pos == 0) return jrun_fail(r, "Missing parameter for attribute name");
    int32_t off = by_attr ? 1 : 0;
    const jbuiltin *test = NULL;
    bool tests = a->n_pos > off;
    if (off + tests > 0) rest.pos += off + tests;
    rest.n_pos -= off + tests;
    *out = jv_seq(s);
    bool yes;
    TRY(jrun_truth(r, c->self, &yes));
    if (!yes) return ST_OK;
    TRY(jv_iterate(r, c->self, &items));
    if (tests && items->n > 0) {
        test = jbuiltin_find(&jbuiltin_tests, a->pos[off]);
        if (!test) return jrun_fail(r, "a filter names a test that there is not");
    }
    for (int32_t i = 0; i < items->n; i++) {
        jv v = items->item[i];
        TRY(jrun_spend(r, 1));
        if (by_attr) TRY(follow(r, v, a->pos[0], &v));
        if (test) TRY(jbuiltin_call(r, test, v, &rest, &v));
        TRY(jrun_truth(r, v, &yes));
        if (yes == keep) jseq_push(r, s, items->item[i]);
    }
    return ST_OK;
}

/* ---- parts ---- */

static status filter_batch(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    jseq *s = jseq_new(r, JSEQ_GENERATOR), *part = NULL;
    int64_t size;
    TRY(jarg_int(r, c, 0, 1, &size));
    if (size < 1) return jrun_fail(r, "batch needs a size of at least 1");
    TRY(jv_iterate(r, c->self, &items));
    TRY(jrun_spend(r, items->n));
    for (int32_t i = 0; i < items->n; i++) {
        if (i % size == 0) {
            part = jseq_new(r, JSEQ_LIST);
            jseq_push(r, s, jv_seq(part));
        }
        jseq_push(r, part, items->item[i]);
    }
    bool fill = part && c->p[1].kind != JV_ABSENT && c->p[1].kind != JV_NONE;
    if (fill) TRY(jrun_spend(r, size));
    while (fill && part->n < size) jseq_push(r, part, c->p[1]);
    *out = jv_seq(s);
    return ST_OK;
}

const jbuiltin jfilter_seq_rows[] = {
    {"list", filter_list, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"join", filter_join, "d,attribute", 0},
    {"reverse", filter_reverse, "", 0},
    {"items", filter_items, "", 0},
    {"dictsort", filter_dictsort, "case_sensitive,by,reverse", 0},
    {"sort", filter_sort, "reverse,case_sensitive,attribute", 0},
    {"unique", filter_unique, "case_sensitive,attribute", 0},
    {"min", filter_extreme, "case_sensitive,attribute", 0},
    {"max", filter_extreme, "case_sensitive,attribute", 0},
    {"sum", filter_sum, "attribute,start", 0},
    {"map", filter_map, NULL, 0},
    {"select", filter_select, NULL, 0},
    {"reject", filter_select, NULL, 0},
    {"selectattr", filter_select, NULL, 0},
    {"rejectattr", filter_select, NULL, 0},
    {"batch", filter_batch, "linecount,fill_with", 1},
    {0},
};
