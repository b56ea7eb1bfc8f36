/* Looking for a text in a text. Places are counted in characters. */
#include <string.h>

#include "jinja/str.h"

/* The part of a string that the arguments `start` and `end` (parameters 1 and 2) leave. */
typedef struct window {
    jv part;
    int64_t start; /* in characters */
    bool open;     /* false: the start lies beyond the end, so that nothing is found, not even "" */
} window;

static status optional_int(jrun *r, const jcall *c, int i, jv *out) {
    int64_t value;
    *out = jv_none();
    if (c->p[i].kind == JV_ABSENT || c->p[i].kind == JV_NONE) return ST_OK;
    TRY(jarg_int(r, c, i, 0, &value));
    *out = jv_int(value);
    return ST_OK;
}

static status cut_window(jrun *r, const jcall *c, window *w) {
    jv start, stop;
    *w = (window){.part = c->self, .open = true};
    TRY(optional_int(r, c, 1, &start));
    TRY(optional_int(r, c, 2, &stop));
    if (start.kind == JV_NONE && stop.kind == JV_NONE) return ST_OK;
    int64_t n, len = jv_chars(c->self);
    TRY(jrun_spend(r, jcost_walk(c->self.n)));
    TRY(jslice_range(r, len, start, stop, 1, &w->start, &n));
    w->open = !(start.kind == JV_INT && start.u.i > len);
    if (stop.kind == JV_INT) {
        int64_t end = stop.u.i < 0 ? stop.u.i + len : stop.u.i;
        w->open = w->open && w->start <= (end < 0 ? 0 : end);
    }
    size_t from = jv_byte_of(c->self, w->start);
    jv rest = jv_part(c->self, from, c->self.n);
    w->part = jv_part(rest, 0, jv_byte_of(rest, n));
    return ST_OK;
}

static status find_place(jrun *r, const jcall *c, bool last, int64_t *place) {
    window w;
    jv one;
    int64_t at;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &one));
    TRY(cut_window(r, c, &w));
    TRY(jtext_find(r, w.part, one, last, &at));
    *place = -1;
    if (at < 0 || !w.open) return ST_OK;
    *place = w.start + jv_chars(jv_part(w.part, 0, (size_t)at));
    return jrun_spend(r, jcost_search(at));
}

/* find, rfind, index, rindex */
status jstr_find(jrun *r, const jcall *c, jv *out) {
    int64_t place;
    TRY(find_place(r, c, c->name[0] == 'r', &place));
    if (place < 0 && strstr(c->name, "index")) return jrun_fail(r, "substring not found");
    *out = jv_int(place);
    return ST_OK;
}

status jstr_count(jrun *r, const jcall *c, jv *out) {
    window w;
    jv one;
    int64_t n = 0;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &one));
    TRY(cut_window(r, c, &w));
    if (one.n == 0) {
        n = w.open ? jv_chars(w.part) + 1 : 0;
        TRY(jrun_spend(r, jcost_search(w.part.n)));
    } else {
        for (jv rest = w.part;; n++) {
            int64_t at;
            TRY(jtext_find(r, rest, one, false, &at));
            if (at < 0) break;
            rest = jv_part(rest, (size_t)at + one.n, rest.n);
        }
    }
    *out = jv_int(n);
    return ST_OK;
}

status jstr_has_affix(jrun *r, jv s, jv affix, bool at_end, bool *yes) {
    *yes = false;
    if (affix.n > s.n) return ST_OK;
    return jtext_equal(r, at_end ? jv_part(s, s.n - affix.n, s.n) : jv_part(s, 0, affix.n), affix,
                       yes);
}

/* startswith, endswith */
status jstr_affix(jrun *r, const jcall *c, jv *out) {
    bool at_end = c->name[0] == 'e';
    jseq one = {.item = (jv *)&c->p[0], .n = 1};
    const jseq *all = jv_is_seq(c->p[0], JSEQ_TUPLE) ? c->p[0].u.seq : &one;
    window w;
    bool yes = false;
    TRY(cut_window(r, c, &w));
    for (int32_t i = 0; i < all->n && !yes; i++) {
        TRY(jrun_spend(r, 1));
        TRY(jrun_require(r, all->item[i]));
        if (all->item[i].kind != JV_STRING) {
            return jrun_fail(r, "%s first arg must be str or a tuple of str, not %s", c->name,
                             jv_type(all->item[i]));
        }
        if (w.open) TRY(jstr_has_affix(r, w.part, all->item[i], at_end, &yes));
    }
    *out = jv_bool(yes);
    return ST_OK;
}
