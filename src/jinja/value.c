/* Values: what needs no render, and building them in its arena. */
#include "jinja/value.h"

#include <string.h>

#include "jinja/run.h"
#include "base/utf8.h"
#include "jinja/jinja.h"

bool jv_is_word(jv v, const char *word) {
    return v.kind == JV_STRING && v.n == strlen(word) && memcmp(v.u.s, word, v.n) == 0;
}

bool jv_truth(jv v) {
    switch ((jv_kind)v.kind) {
        case JV_ABSENT:
        case JV_UNDEFINED:
        case JV_NONE: return false;
        case JV_BOOL: return v.u.b;
        case JV_INT: return v.u.i != 0;
        case JV_FLOAT: return v.u.f != 0;
        case JV_STRING: return v.n > 0;
        case JV_SEQ: return v.u.seq->kind == JSEQ_GENERATOR || v.u.seq->n > 0;
        case JV_DICT: return v.u.dict->n > 0;
        case JV_LOOP:
        case JV_NAMESPACE:
        case JV_MACRO:
        case JV_FUNCTION: return true;
    }
    return true;
}

const char *jv_type(jv v) {
    static const char *const seqs[] = {"list",        "tuple",      "range",    "dict_keys",
                                       "dict_values", "dict_items", "generator"};
    static const char *const names[] = {"Undefined",   "Undefined", "NoneType", "bool", "int",
                                        "float",       "str",       "list",     "dict", "Namespace",
                                        "LoopContext", "Macro",     "function"};
    return v.kind == JV_SEQ ? seqs[v.u.seq->kind] : names[v.kind];
}

int64_t jv_length(jv v) {
    switch (v.kind) {
        case JV_UNDEFINED: return 0;
        case JV_STRING: return jv_chars(v);
        case JV_SEQ: return v.u.seq->kind == JSEQ_GENERATOR ? -1 : v.u.seq->n;
        case JV_DICT: return v.u.dict->n;
        default: return -1;
    }
}

int64_t jv_chars(jv s) {
    int64_t n = 0;
    for (uint32_t i = 0; i < s.n; i++) n += ((uint8_t)s.u.s[i] & 0xC0) != 0x80;
    return n;
}

size_t jv_byte_of(jv s, int64_t index) {
    size_t at = 0;
    while (index-- > 0 && at < s.n) at += utf8_size(s.u.s[at]);
    return at;
}

bool jv_is_index(jv s, int64_t *index) {
    *index = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        if (s.u.s[i] < '0' || s.u.s[i] > '9') return false;
        if (i < 9) *index = *index * 10 + s.u.s[i] - '0';
    }
    return s.n > 0 && s.n < 10;
}

jv jv_trimmed(jv s, bool left, bool right) {
    const char *p = s.u.s;
    size_t n = s.n;
    jinja_strip(&p, &n, left, right);
    return jv_part(s, (size_t)(p - s.u.s), (size_t)(p - s.u.s) + n);
}

/* ---- texts ---- */

/* Whether a piece can still be added; counts it. */
static bool has_room(jrun *r, int64_t bytes) {
    r->left -= 1 + 4 * jcost_copy(bytes);
    if (r->left < 0 || bytes > r->limits.memory_bytes - (int64_t)r->scratch.len) r->full = true;
    return !r->full;
}

void jtext_add(jrun *r, const char *s, size_t n) {
    if (has_room(r, (int64_t)n)) strbuf_append(&r->scratch, s, n);
}

/* Copies what is there already, so that the pieces double. */
void jtext_add_times(jrun *r, jv s, int64_t times) {
    int64_t total;
    if (s.n == 0 || times <= 0) return;
    if (__builtin_mul_overflow((int64_t)s.n, times, &total)) total = INT64_MAX / 8;
    if (!has_room(r, total)) return;
    char *to = strbuf_extend(&r->scratch, (size_t)total);
    memcpy(to, s.u.s, s.n);
    for (int64_t done = s.n, n; done < total; done += n) {
        n = done < total - done ? done : total - done;
        memcpy(to + done, to, (size_t)n);
    }
}

void jtext_add_escaped(jrun *r, jv s, jtext_escape *escape, const void *how) {
    size_t from = 0; /* of the characters that stay, up to `at` */
    char buf[16];
    r->left -= 4 * jcost_walk(s.n);
    for (size_t at = 0, n; at < s.n && !r->full; at += n) {
        const char *as = escape(how, utf8_next(s.u.s + at, &n), buf);
        if (!as) continue;
        jtext_add(r, s.u.s + from, at - from);
        jtext_puts(r, as);
        from = at + n;
    }
    jtext_add(r, s.u.s + from, s.n - from);
}

void jtext_puts(jrun *r, const char *s) {
    jtext_add(r, s, strlen(s));
}

status jtext_check(jrun *r) {
    TRY(jrun_spend(r, 0));
    return r->full ? jrun_fail(r, "a text becomes too long") : ST_OK;
}

status jtext_take(jrun *r, size_t start, jv *out) {
    size_t n = r->scratch.len - start;
    if (n > INT32_MAX) r->full = true;
    TRY(jtext_check(r));
    char *s = arena_alloc(r->mem, n);
    if (n > 0) memcpy(s, r->scratch.data + start, n);
    strbuf_truncate(&r->scratch, start);
    *out = jv_bytes(s, n);
    return jrun_spend(r, 1 + jcost_copy((int64_t)n));
}

/* ---- sequences and mappings ---- */

jseq *jseq_new(jrun *r, jseq_kind kind) {
    jseq *s = ARENA_NEW(r->mem, jseq);
    s->kind = kind;
    return s;
}

void jseq_push(jrun *r, jseq *s, jv v) {
    s->item = arena_grow(r->mem, s->item, s->n, &s->cap, sizeof(jv));
    s->item[s->n++] = v;
}

jv jseq_pair(jrun *r, jv a, jv b) {
    jseq *s = jseq_new(r, JSEQ_TUPLE);
    s->item = ARENA_ARRAY(r->mem, jv, 2);
    s->item[0] = a;
    s->item[1] = b;
    s->n = s->cap = 2;
    return jv_seq(s);
}

/* The range whose items those of g are from `from` on, each `step`-th, n of them. */
static bool pick_range(jrange g, int64_t from, int64_t step, int64_t n, jrange *out) {
    int64_t first, last, end;
    return !__builtin_mul_overflow(g.step, step, &out->step) &&
           !__builtin_mul_overflow(g.step, from, &first) &&
           !__builtin_add_overflow(g.start, first, &out->start) &&
           !__builtin_add_overflow(from, n * step, &end) &&
           !__builtin_mul_overflow(g.step, end, &last) &&
           !__builtin_add_overflow(g.start, last, &out->stop);
}

status jseq_pick(jrun *r, const jseq *s, int64_t from, int64_t step, int64_t n, jv *out) {
    jseq *part = jseq_new(r, s->kind);
    *out = jv_seq(part);
    part->n = part->cap = (int32_t)n;
    if (s->kind == JSEQ_RANGE && !pick_range(s->range, from, step, n, &part->range)) {
        return jrun_fail(r, "a number does not fit in 64 bits");
    }
    if (step == 1 && n > 0) { /* items are never changed, so they can be shared */
        part->item = s->item + from;
        return ST_OK;
    }
    part->item = ARENA_ARRAY(r->mem, jv, n);
    for (int64_t i = 0; i < n; i++) part->item[i] = s->item[from + i * step];
    return ST_OK;
}

jdict *jdict_new(jrun *r) {
    return ARENA_NEW(r->mem, jdict);
}

/* Whether a value can be a key; Python's word for that is hashable. */
static status check_key(jrun *r, jv key) {
    if (key.kind == JV_DICT || jv_is_seq(key, JSEQ_LIST)) {
        return jrun_fail(r, "unhashable type: '%s'", jv_type(key));
    }
    return ST_OK;
}

status jdict_find(jrun *r, const jdict *d, jv key, jv **value) {
    *value = NULL;
    TRY(check_key(r, key));
    TRY(jrun_spend(r, d->n / 8));
    for (int32_t i = 0; i < d->n; i++) {
        bool same = false;
        if (key.kind != JV_STRING)
            TRY(jv_equal(r, d->key[i], key, &same));
        else if (d->key[i].kind == JV_STRING)
            TRY(jtext_equal(r, d->key[i], key, &same));
        if (!same) continue;
        *value = &d->value[i];
        return ST_OK;
    }
    return ST_OK;
}

status jdict_set(jrun *r, jdict *d, jv key, jv value) {
    jv *old;
    TRY(jdict_find(r, d, key, &old));
    if (old) {
        *old = value;
        return ST_OK;
    }
    d->key = arena_grow(r->mem, d->key, d->n, &d->key_cap, sizeof(jv));
    d->value = arena_grow(r->mem, d->value, d->n, &d->value_cap, sizeof(jv));
    d->key[d->n] = key;
    d->value[d->n++] = value;
    return ST_OK;
}

/* ---- undefined and bound values ---- */

static jv undef_with(jrun *r, jundef u) {
    return (jv){.kind = JV_UNDEFINED, .u.undef = arena_memdup(r->mem, &u, sizeof(u))};
}

jv jundef_of(jrun *r, jv of, jv name, bool forbidden) {
    return undef_with(r, (jundef){.name = name, .of = of, .forbidden = forbidden});
}

jv jundef_why(jrun *r, const char *why, bool lenient) {
    return undef_with(r, (jundef){.why = why, .lenient = lenient});
}

jv jbound_new(jrun *r, const jbuiltin *fn, jv self) {
    jbound b = {fn, self};
    return (jv){.kind = JV_FUNCTION, .u.bound = arena_memdup(r->mem, &b, sizeof(b))};
}

/* ---- from JSON ---- */

static status from_object(jrun *r, const json_t *j, jv *out) {
    jdict *d = jdict_new(r);
    d->key_cap = d->value_cap = (int32_t)json_object_size(j);
    d->key = ARENA_ARRAY(r->mem, jv, d->key_cap);
    d->value = ARENA_ARRAY(r->mem, jv, d->value_cap);
    *out = jv_dict(d);
    void *it = json_object_iter((json_t *)j);
    for (; it; it = json_object_iter_next((json_t *)j, it)) {
        const char *key = json_object_iter_key(it);
        d->key[d->n] = jv_bytes(key, json_object_iter_key_len(it));
        TRY(jv_from_json(r, json_object_iter_value(it), &d->value[d->n]));
        d->n++;
    }
    return ST_OK;
}

static status from_array(jrun *r, const json_t *j, jv *out) {
    jseq *s = jseq_new(r, JSEQ_LIST);
    s->cap = (int32_t)json_array_size(j);
    s->item = ARENA_ARRAY(r->mem, jv, s->cap);
    *out = jv_seq(s);
    for (; s->n < s->cap; s->n++) {
        TRY(jv_from_json(r, json_array_get(j, (size_t)s->n), &s->item[s->n]));
    }
    return ST_OK;
}

status jv_from_json(jrun *r, const json_t *j, jv *out) {
    status st = ST_OK;
    TRY(jrun_spend(r, 1));
    switch (json_typeof(j)) {
        case JSON_NULL: *out = jv_none(); return ST_OK;
        case JSON_TRUE:
        case JSON_FALSE: *out = jv_bool(json_is_true(j)); return ST_OK;
        case JSON_INTEGER: *out = jv_int(json_integer_value(j)); return ST_OK;
        case JSON_REAL: *out = jv_float(json_real_value(j)); return ST_OK;
        case JSON_STRING:
            if (json_string_length(j) > INT32_MAX) return jrun_fail(r, "a string of 2 GiB or more");
            *out = jv_bytes(json_string_value(j), json_string_length(j));
            return ST_OK;
        default: break;
    }
    TRY(jrun_enter(r));
    st = json_is_object(j) ? from_object(r, j, out) : from_array(r, j, out);
    r->depth--;
    return st;
}
