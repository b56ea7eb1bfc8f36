/* Methods of strings: finding, cutting, stripping, replacing, padding; the table is at the end. Places
 * are counted in characters. */
#include <string.h>

#include "base/utf8.h"
#include "jinja/lex.h"
#include "jinja/run.h"

/* ---- looking for a text in a text ---- */

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
static status str_find(jrun *r, const jcall *c, jv *out) {
    int64_t place;
    TRY(find_place(r, c, c->name[0] == 'r', &place));
    if (place < 0 && strstr(c->name, "index")) return jrun_fail(r, "substring not found");
    *out = jv_int(place);
    return ST_OK;
}

static status str_count(jrun *r, const jcall *c, jv *out) {
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

static status has_affix(jrun *r, jv s, jv affix, bool at_end, bool *yes) {
    *yes = false;
    if (affix.n > s.n) return ST_OK;
    return jtext_equal(r, at_end ? jv_part(s, s.n - affix.n, s.n) : jv_part(s, 0, affix.n), affix,
                       yes);
}

/* startswith, endswith */
static status str_affix(jrun *r, const jcall *c, jv *out) {
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
        if (w.open) TRY(has_affix(r, w.part, all->item[i], at_end, &yes));
    }
    *out = jv_bool(yes);
    return ST_OK;
}

/* ---- cutting at white space ---- */

/* The length of the space at a byte, 0 when there is none. */
static size_t space_at(jv s, size_t at) {
    size_t n;
    return at < s.n && jtext_is_space(utf8_next(s.u.s + at, &n)) ? n : 0;
}

/* From the left, or from the right: then the parts come out last first. */
static void split_blanks(jrun *r, jv s, int64_t max, bool right, jseq *parts) {
    for (;;) {
        s = jv_trimmed(s, !right, right);
        if (s.n == 0) return;
        if (max-- == 0) break;
        size_t end = right ? s.n : 0, n;
        if (right)
            while (end > 0 && !space_at(s, utf8_before(s.u.s, end))) end = utf8_before(s.u.s, end);
        else
            for (; end < s.n && !space_at(s, end); end += n) n = utf8_size(s.u.s[end]);
        jv before = jv_part(s, 0, end), behind = jv_part(s, end, s.n);
        jseq_push(r, parts, right ? behind : before);
        s = right ? before : behind;
    }
    jseq_push(r, parts, s);
}

/* ---- cutting at a separator ---- */

static status split_at(jrun *r, jv s, jv sep, int64_t max, bool right, jseq *parts) {
    for (; max != 0; max--) {
        int64_t at;
        TRY(jtext_find(r, s, sep, right, &at));
        if (at < 0) break;
        jv before = jv_part(s, 0, (size_t)at), behind = jv_part(s, (size_t)at + sep.n, s.n);
        jseq_push(r, parts, right ? behind : before);
        s = right ? before : behind;
    }
    jseq_push(r, parts, s);
    return ST_OK;
}

static void turn(jseq *s) {
    for (int32_t i = 0, k = s->n - 1; i < k; i++, k--) {
        jv tmp = s->item[i];
        s->item[i] = s->item[k];
        s->item[k] = tmp;
    }
}

static status split(jrun *r, const jcall *c, bool right, jv *out) {
    jseq *parts = jseq_new(r, JSEQ_LIST);
    int64_t max;
    jv sep;
    TRY(jarg_int(r, c, 1, -1, &max));
    if (max < 0) max = INT64_MAX;
    if (c->p[0].kind == JV_ABSENT || c->p[0].kind == JV_NONE) {
        TRY(jrun_spend(r, jcost_walk(c->self.n)));
        split_blanks(r, c->self, max, right, parts);
    } else {
        TRY(jarg_str(r, c, 0, jv_none(), &sep));
        if (sep.n == 0) return jrun_fail(r, "empty separator");
        TRY(split_at(r, c->self, sep, max, right, parts));
    }
    if (right) turn(parts);
    *out = jv_seq(parts);
    return jrun_spend(r, parts->n);
}

/* split, rsplit */
static status str_split(jrun *r, const jcall *c, jv *out) {
    return split(r, c, c->name[0] == 'r', out);
}

/* ---- in three, and at line ends ---- */

/* partition, rpartition */
static status str_partition(jrun *r, const jcall *c, jv *out) {
    bool right = c->name[0] == 'r';
    jcall once = *c;
    jv parts, sep;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &sep)); /* a None would split at blanks */
    once.p[1] = jv_int(1);
    TRY(split(r, &once, right, &parts));
    const jseq *p = parts.u.seq;
    jv s = c->self, nothing = jv_part(s, 0, 0);
    jseq *three = jseq_new(r, JSEQ_TUPLE);
    bool found = p->n == 2;
    jseq_push(r, three, found ? p->item[0] : right ? nothing : s);
    jseq_push(r, three, found ? sep : nothing);
    jseq_push(r, three, found ? p->item[1] : right ? s : nothing);
    *out = jv_seq(three);
    return ST_OK;
}

static bool ends_line(uint32_t cp) {
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

status jstr_lines(jrun *r, jv s, bool keep_ends, jseq **out) {
    jseq *lines = *out = jseq_new(r, JSEQ_LIST);
    size_t start = 0;
    TRY(jrun_spend(r, jcost_walk(s.n)));
    for (size_t at = 0, n; at < s.n; at += n) {
        uint32_t cp = utf8_next(s.u.s + at, &n);
        if (!ends_line(cp)) continue;
        if (cp == '\r' && at + 1 < s.n && s.u.s[at + 1] == '\n') n = 2;
        jseq_push(r, lines, jv_part(s, start, keep_ends ? at + n : at));
        start = at + n;
    }
    if (start < s.n) jseq_push(r, lines, jv_part(s, start, s.n));
    return jrun_spend(r, lines->n);
}

static status str_splitlines(jrun *r, const jcall *c, jv *out) {
    jseq *lines;
    TRY(jstr_lines(r, c->self, jarg_truth(c, 0), &lines));
    *out = jv_seq(lines);
    return ST_OK;
}

/* ---- stripping ---- */

static bool in_set(jv set, const char *s, size_t n) {
    for (size_t at = 0, len; at < set.n; at += len) {
        len = utf8_size(set.u.s[at]);
        if (len == n && memcmp(set.u.s + at, s, n) == 0) return true;
    }
    return false;
}

/* strip, lstrip, rstrip, trim */
status jstr_strip(jrun *r, const jcall *c, jv *out) {
    bool left = c->name[0] != 'r', right = c->name[0] != 'l';
    jv s = c->self, chars = c->p[0];
    size_t from = 0, to = s.n;
    if (chars.kind == JV_ABSENT || chars.kind == JV_NONE) {
        *out = jv_trimmed(s, left, right);
        return jrun_spend(r, jcost_walk(s.n - out->n));
    }
    TRY(jrun_require(r, chars));
    if (chars.kind != JV_STRING) return jrun_fail(r, "strip arg must be None or str");
    while (left && from < to && in_set(chars, s.u.s + from, utf8_size(s.u.s[from]))) {
        TRY(jrun_spend(r, 1 + jcost_walk(chars.n)));
        from += utf8_size(s.u.s[from]);
    }
    while (right && to > from) {
        size_t before = utf8_before(s.u.s, to);
        TRY(jrun_spend(r, 1 + jcost_walk(chars.n)));
        if (!in_set(chars, s.u.s + before, to - before)) break;
        to = before;
    }
    *out = jv_part(s, from, to);
    return ST_OK;
}

/* removeprefix, removesuffix */
static status str_remove(jrun *r, const jcall *c, jv *out) {
    bool has, suffix = strcmp(c->name, "removesuffix") == 0;
    jv s = c->self, affix;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &affix));
    TRY(has_affix(r, s, affix, suffix, &has));
    *out = !has ? s : suffix ? jv_part(s, 0, s.n - affix.n) : jv_part(s, affix.n, s.n);
    return ST_OK;
}

/* ---- replacing and joining ---- */

/* Between all characters, when what is replaced is empty. */
static void replace_nothing(jrun *r, jv s, jv with, int64_t count) {
    for (size_t at = 0, n; at <= s.n && !r->full; at += n) {
        if (count-- != 0)
            jtext_add_str(r, with);
        else
            count = 0;
        if (at == s.n) break;
        n = utf8_size(s.u.s[at]);
        jtext_add(r, s.u.s + at, n);
    }
}

status jstr_replace(jrun *r, jv s, jv old, jv with, int64_t count, jv *out) {
    size_t start = jtext_begin(r);
    jv rest = s;
    if (count < 0) count = INT64_MAX;
    if (old.n == 0) replace_nothing(r, s, with, count);
    while (old.n > 0) {
        int64_t at = -1;
        if (count-- != 0) TRY(jtext_find(r, rest, old, false, &at));
        jtext_add(r, rest.u.s, at < 0 ? rest.n : (size_t)at);
        if (at < 0) break;
        jtext_add_str(r, with);
        rest = jv_part(rest, (size_t)at + old.n, rest.n);
    }
    TRY(jtext_take(r, start, out));
    out->safe = s.safe;
    return ST_OK;
}

static status str_replace(jrun *r, const jcall *c, jv *out) {
    jv old, with;
    int64_t count;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &old));
    TRY(jarg_str(r, c, 1, JV_WORD(""), &with));
    TRY(jarg_int(r, c, 2, -1, &count));
    return jstr_replace(r, c->self, old, with, count, out);
}

static status str_join(jrun *r, const jcall *c, jv *out) {
    const jseq *items;
    TRY(jv_iterate(r, c->p[0], &items));
    size_t start = jtext_begin(r);
    for (int32_t i = 0; i < items->n; i++) {
        if (i > 0) jtext_add_str(r, c->self);
        if (items->item[i].kind != JV_STRING) {
            TRY(jrun_require(r, items->item[i]));
            return jrun_fail(r, "sequence item %d: expected str instance, %s found", (int)i,
                             jv_type(items->item[i]));
        }
        jtext_add_str(r, items->item[i]);
        TRY(jrun_spend(r, 1));
    }
    return jtext_take(r, start, out);
}

/* ---- padding ---- */

status jstr_pad(jrun *r, jv s, int64_t width, int side, jv fill, jv *out) {
    int64_t have = jv_chars(s), lack = width > have ? width - have : 0;
    *out = s;
    TRY(jrun_spend(r, jcost_search(s.n)));
    if (jv_chars(fill) != 1) {
        return jrun_fail(r, "The fill character must be exactly one character long");
    }
    if (lack == 0) return ST_OK;
    int64_t left = side > 0 ? lack : side < 0 ? 0 : lack / 2 + (lack & width & 1);
    size_t start = jtext_begin(r);
    jtext_add_times(r, fill, left);
    jtext_add_str(r, s);
    jtext_add_times(r, fill, lack - left);
    TRY(jtext_take(r, start, out));
    out->safe = s.safe;
    return ST_OK;
}

/* center, ljust, rjust */
static status str_pad(jrun *r, const jcall *c, jv *out) {
    int64_t width;
    jv fill;
    TRY(jarg_int(r, c, 0, 0, &width));
    TRY(jarg_str(r, c, 1, JV_WORD(" "), &fill));
    return jstr_pad(r, c->self, width,
                    c->name[0] == 'r'   ? 1
                    : c->name[0] == 'l' ? -1
                                        : 0,
                    fill, out);
}

static status str_zfill(jrun *r, const jcall *c, jv *out) {
    int64_t width;
    jv s = c->self, digits;
    uint32_t sign = s.n > 0 && (s.u.s[0] == '-' || s.u.s[0] == '+');
    TRY(jarg_int(r, c, 0, 0, &width));
    TRY(jstr_pad(r, jv_part(s, sign, s.n), width > 0 ? width - sign : 0, 1, JV_WORD("0"), &digits));
    size_t start = jtext_begin(r);
    jtext_add(r, s.u.s, sign);
    jtext_add_str(r, digits);
    return jtext_take(r, start, out);
}

/* ---- the table ---- */

static status str_format(jrun *r, const jcall *c, jv *out) {
    return jstr_braces(r, c->self, c->args, out);
}

const jbuiltin jmethod_str_rows[] = {
    {"split", str_split, "sep,maxsplit", 0},
    {"strip", jstr_strip, "chars", 0},
    {"lstrip", jstr_strip, "chars", 0},
    {"rstrip", jstr_strip, "chars", 0},
    {"startswith", str_affix, "prefix,start,end", 1},
    {"endswith", str_affix, "suffix,start,end", 1},
    {"replace", str_replace, "old,new,count", 2},
    {"join", str_join, "iterable", 1},
    {"upper", jstr_upper, "", 0},
    {"lower", jstr_lower, "", 0},
    {"capitalize", jstr_capitalize, "", 0},
    {"title", jstr_title, "", 0},
    {"swapcase", jstr_swapcase, "", 0},
    {"casefold", jstr_casefold, "", 0},
    {"find", str_find, "sub,start,end", 1},
    {"rfind", str_find, "sub,start,end", 1},
    {"index", str_find, "sub,start,end", 1},
    {"rindex", str_find, "sub,start,end", 1},
    {"count", str_count, "sub,start,end", 1},
    {"rsplit", str_split, "sep,maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "sep", 1},
    {"rpartition", str_partition, "sep", 1},
    {"removeprefix", str_remove, "prefix", 1},
    {"removesuffix", str_remove, "suffix", 1},
    {"center", str_pad, "width,fillchar", 1},
    {"ljust", str_pad, "width,fillchar", 1},
    {"rjust", str_pad, "width,fillchar", 1},
    {"zfill", str_zfill, "width", 1},
    {"format", str_format, NULL, 0},
    {"isalpha", jstr_isalpha, "", 0},
    {"isalnum", jstr_isalnum, "", 0},
    {"isdigit", jstr_isdecimal, "", 0},
    {"isdecimal", jstr_isdecimal, "", 0},
    {"isnumeric", jstr_isnumeric, "", 0},
    {"isspace", jstr_isspace, "", 0},
    {"isascii", jstr_isascii, "", 0},
    {"islower", jstr_islower, "", 0},
    {"isupper", jstr_isupper, "", 0},
    {0},
};
