/* Parts of a value. a.b is the attribute and, without one, the item; a[b] the item and, without
 * one, the attribute; what is not there is undefined. */
#include <string.h>

#include "base/utf8.h"
#include "jinja/run.h"

static const jbuiltin *methods_of(jv of) {
    static const jbuiltin none[] = {{0}};
    if (of.kind == JV_STRING) return jmethod_str_rows;
    if (of.kind == JV_DICT) return jmethod_dict_rows;
    if (of.kind == JV_LOOP) return jmethod_loop_rows;
    if (jv_is_seq(of, JSEQ_LIST)) return jmethod_list_rows;
    if (jv_is_seq(of, JSEQ_TUPLE)) return jmethod_tuple_rows;
    return none;
}

/* The attribute of an object as Python has it: JV_ABSENT when there is none. */
static status find_attr(jrun *r, jv of, jv name, jv *out) {
    *out = (jv){.kind = JV_ABSENT};
    if (of.kind == JV_NAMESPACE) {
        jv *value;
        TRY(jdict_find(r, of.u.dict, name, &value));
        if (value) *out = *value;
        return ST_OK;
    }
    if (of.kind == JV_LOOP) {
        bool found;
        TRY(jloop_attr(r, of.u.loop, name, out, &found));
        if (found) return ST_OK;
    }
    if (of.kind == JV_MACRO && jv_is_word(name, "name")) *out = of.u.macro->def->name;
    const jbuiltin *method = jbuiltin_row(methods_of(of), name);
    if (method && method->fn)
        *out = jbound_new(r, method, of);
    else if (method)
        *out = jundef_of(r, of, name, true);
    else if (name.n > 4 && memcmp(name.u.s, "__", 2) == 0)
        *out = jundef_of(r, of, name, true);
    return ST_OK;
}

static status index_seq(jrun *r, jv of, int64_t index, jv *out) {
    const jseq *s = of.u.seq;
    if (index < 0) index += s->n;
    if (index >= 0 && index < s->n)
        *out = s->item[index];
    else
        *out = jundef_of(r, of, jv_int(index), false);
    return ST_OK;
}

static status index_text(jrun *r, jv of, int64_t index, jv *out) {
    size_t at = of.n;
    if (index >= 0)
        at = jv_byte_of(of, index);
    else
        while (at > 0 && index < 0) {
            at = utf8_before(of.u.s, at);
            index++;
        }
    if (at < of.n && index >= 0)
        *out = jv_part(of, at, at + utf8_size(of.u.s[at]));
    else
        *out = jundef_of(r, of, jv_int(index), false);
    return jrun_spend(r, jcost_walk((int64_t)(index > 0 ? at : of.n - at)));
}

/* The item of an object: JV_ABSENT when there is none. */
static status find_item(jrun *r, jv of, jv key, jv *out) {
    bool hashable = key.kind != JV_DICT && !jv_is_seq(key, JSEQ_LIST);
    *out = (jv){.kind = JV_ABSENT};
    if (of.kind == JV_DICT && hashable) {
        jv *value;
        TRY(jdict_find(r, of.u.dict, key, &value));
        if (value) *out = *value;
    } else if (of.kind == JV_SEQ && of.u.seq->kind <= JSEQ_RANGE && jv_is_int(key)) {
        return index_seq(r, of, jv_as_int(key), out);
    } else if (of.kind == JV_STRING && jv_is_int(key)) {
        return index_text(r, of, jv_as_int(key), out);
    }
    return ST_OK;
}

status jrun_attr(jrun *r, jv of, jv name, jv *out) {
    TRY(jrun_require(r, of));
    TRY(find_attr(r, of, name, out));
    if (out->kind == JV_ABSENT) TRY(find_item(r, of, name, out));
    if (out->kind == JV_ABSENT) *out = jundef_of(r, of, name, false);
    return ST_OK;
}

status jrun_item(jrun *r, jv of, jv key, jv *out) {
    TRY(jrun_require(r, of));
    TRY(find_item(r, of, key, out));
    if (out->kind == JV_ABSENT && key.kind == JV_STRING) TRY(find_attr(r, of, key, out));
    if (out->kind == JV_ABSENT) *out = jundef_of(r, of, key, false);
    return ST_OK;
}

/* ---- slices ---- */

/* A bound of a slice within [low, high], counted from the end when negative. */
static int64_t clamp(jv v, int64_t len, int64_t low, int64_t high, int64_t fallback) {
    if (v.kind == JV_NONE) return fallback;
    int64_t i = jv_as_int(v);
    if (i < 0) i += len;
    return i < low ? low : i > high ? high : i;
}

status jslice_range(jrun *r, int64_t len, jv start, jv stop, int64_t step, int64_t *from,
                    int64_t *n) {
    if (step == 0) return jrun_fail(r, "slice step cannot be zero");
    if (step > INT32_MAX) step = INT32_MAX;
    if (step < -INT32_MAX) step = -INT32_MAX;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? len : len - 1;
    *from = clamp(start, len, low, high, step > 0 ? low : high);
    int64_t to = clamp(stop, len, low, high, step > 0 ? high : low);
    int64_t span = step > 0 ? to - *from : *from - to, size = step > 0 ? step : -step;
    *n = span > 0 ? (span + size - 1) / size : 0;
    return ST_OK;
}

/* Characters from, from + step, ... of a text. */
static status pick_text(jrun *r, jv s, int64_t from, int64_t step, int64_t n, jv *out) {
    if (n == 0) {
        *out = jv_part(s, 0, 0);
        return ST_OK;
    }
    if (step == 1) {
        size_t start = jv_byte_of(s, from);
        *out = jv_part(s, start, start + jv_byte_of(jv_part(s, start, s.n), n));
        return ST_OK;
    }
    const jseq *chars;
    size_t text = jtext_begin(r);
    TRY(jv_iterate(r, s, &chars));
    for (int64_t i = 0; i < n; i++) jtext_add_str(r, chars->item[from + i * step]);
    TRY(jtext_take(r, text, out));
    out->safe = s.safe;
    return ST_OK;
}

status jrun_slice(jrun *r, jv of, jv start, jv stop, jv step, jv *out) {
    bool ints = (start.kind == JV_NONE || jv_is_int(start)) &&
                (stop.kind == JV_NONE || jv_is_int(stop)) &&
                (step.kind == JV_NONE || jv_is_int(step));
    bool seq = of.kind == JV_SEQ && of.u.seq->kind <= JSEQ_RANGE;
    int64_t by = step.kind == JV_NONE ? 1 : ints ? jv_as_int(step) : 0, from, n;
    TRY(jrun_require(r, of));
    if (!seq && of.kind != JV_STRING) return jrun_fail(r, "'%s' has no slices", jv_type(of));
    if (!ints) return jrun_fail(r, "slice indices must be integers or None");
    int64_t len = jv_length(of);
    TRY(jslice_range(r, len, start, stop, by, &from, &n));
    if (by > INT32_MAX) by = INT32_MAX;
    if (by < -INT32_MAX) by = -INT32_MAX;
    TRY(jrun_spend(r, seq ? (by != 1 ? n : 0) : jcost_walk(of.n)));
    if (!seq) return pick_text(r, of, from, by, n, out);
    return jseq_pick(r, of.u.seq, from, by, n, out);
}
