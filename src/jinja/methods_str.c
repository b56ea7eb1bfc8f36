/* Methods of strings: the table, and those that change a text. */
#include <string.h>

#include "jinja/str.h"
#include "base/utf8.h"

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
    TRY(jstr_has_affix(r, s, affix, suffix, &has));
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
    {"split", jstr_split, "sep,maxsplit", 0},
    {"strip", jstr_strip, "chars", 0},
    {"lstrip", jstr_strip, "chars", 0},
    {"rstrip", jstr_strip, "chars", 0},
    {"startswith", jstr_affix, "prefix,start,end", 1},
    {"endswith", jstr_affix, "suffix,start,end", 1},
    {"replace", str_replace, "old,new,count", 2},
    {"join", str_join, "iterable", 1},
    {"upper", jstr_upper, "", 0},
    {"lower", jstr_lower, "", 0},
    {"capitalize", jstr_capitalize, "", 0},
    {"title", jstr_title, "", 0},
    {"swapcase", jstr_swapcase, "", 0},
    {"casefold", jstr_lower, "", 0},
    {"find", jstr_find, "sub,start,end", 1},
    {"rfind", jstr_find, "sub,start,end", 1},
    {"index", jstr_find, "sub,start,end", 1},
    {"rindex", jstr_find, "sub,start,end", 1},
    {"count", jstr_count, "sub,start,end", 1},
    {"rsplit", jstr_split, "sep,maxsplit", 0},
    {"splitlines", jstr_splitlines, "keepends", 0},
    {"partition", jstr_partition, "sep", 1},
    {"rpartition", jstr_partition, "sep", 1},
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
