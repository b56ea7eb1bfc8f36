/* Filters of single values: texts and numbers. filters_seq.c has those of sequences. */
#include "jinja/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/lex.h"

/* ---- texts ---- */

static status filter_string(jrun *r, const jcall *c, jv *out) {
    (void)r;
    *out = c->self;
    return ST_OK;
}

static status filter_safe(jrun *r, const jcall *c, jv *out) {
    (void)r;
    *out = c->self;
    out->safe = true;
    return ST_OK;
}

static const char *html_escape(const void *how, uint32_t cp, char buf[16]) {
    (void)how, (void)buf;
    switch (cp) {
        case '&': return "&amp;";
        case '<': return "&lt;";
        case '>': return "&gt;";
        case '\'': return "&#39;";
        case '"': return "&#34;";
        default: return NULL;
    }
}

status jstr_escape_html(jrun *r, jv s, jv *out) {
    size_t start = jtext_begin(r);
    jtext_add_escaped(r, s, html_escape, NULL);
    TRY(jtext_take(r, start, out));
    out->safe = true;
    return ST_OK;
}

static status filter_forceescape(jrun *r, const jcall *c, jv *out) {
    return jstr_escape_html(r, c->self, out);
}

static status filter_escape(jrun *r, const jcall *c, jv *out) {
    return c->self.safe ? filter_string(r, c, out) : filter_forceescape(r, c, out);
}

static status filter_replace(jrun *r, const jcall *c, jv *out) {
    jv s = c->self, old, with;
    int64_t count;
    TRY(jv_to_str(r, c->p[0], &old));
    TRY(jv_to_str(r, c->p[1], &with));
    if (c->p[2].kind == JV_NONE)
        count = -1;
    else
        TRY(jarg_int(r, c, 2, -1, &count));
    s.safe = false;
    return jstr_replace(r, s, old, with, count, out);
}

static status filter_center(jrun *r, const jcall *c, jv *out) {
    int64_t width;
    TRY(jarg_int(r, c, 0, 80, &width));
    return jstr_pad(r, c->self, width, 0, JV_WORD(" "), out);
}

static status indent_text(jrun *r, const jcall *c, jv *out) {
    int64_t width = 4;
    if (c->p[0].kind == JV_STRING) {
        *out = c->p[0];
        return ST_OK;
    }
    TRY(jarg_int(r, c, 0, 4, &width));
    return jstr_pad(r, JV_WORD(""), width, 1, JV_WORD(" "), out);
}

static status filter_indent(jrun *r, const jcall *c, jv *out) {
    bool first = jarg_truth(c, 1), blank = jarg_truth(c, 2);
    jv indent, s;
    jseq *lines;
    TRY(jrun_require(r, c->self));
    if (c->self.kind != JV_STRING) return jrun_fail(r, "indent needs a string");
    TRY(indent_text(r, c, &indent));
    size_t start = jtext_begin(r);
    jtext_add_str(r, c->self);
    jtext_putc(r, '\n'); /* as Jinja: the last line is one even when empty */
    TRY(jtext_take(r, start, &s));
    TRY(jstr_lines(r, s, false, &lines));
    start = jtext_begin(r);
    if (first) jtext_add_str(r, indent);
    for (int32_t i = 0; i < lines->n; i++) {
        if (i > 0) jtext_putc(r, '\n');
        if (i > 0 && (blank || lines->item[i].n > 0)) jtext_add_str(r, indent);
        jtext_add_str(r, lines->item[i]);
    }
    TRY(jtext_take(r, start, out));
    out->safe = c->self.safe;
    return ST_OK;
}

static status filter_truncate(jrun *r, const jcall *c, jv *out) {
    int64_t length, leeway = 5;
    jv end, s = c->self;
    TRY(jarg_int(r, c, 0, 255, &length));
    TRY(jarg_str(r, c, 2, JV_WORD("..."), &end));
    if (c->p[3].kind != JV_NONE) TRY(jarg_int(r, c, 3, 5, &leeway));
    if (length < jv_chars(end) || leeway < 0) {
        return jrun_fail(r, "truncate to less than its end mark, or with less than no leeway");
    }
    *out = s;
    if (s.kind == JV_STRING) TRY(jrun_spend(r, jcost_walk(s.n)));
    int64_t have = jv_length(s);
    if (have >= 0 && have - leeway <= length) return ST_OK;
    if (s.kind != JV_STRING) return jrun_fail(r, "truncate needs a string");
    jv cut = jv_part(s, 0, jv_byte_of(s, length - jv_chars(end)));
    const char *space = memrchr(cut.u.s, ' ', cut.n);
    if (!jarg_truth(c, 1) && space) cut = jv_part(cut, 0, (size_t)(space - cut.u.s));
    size_t start = jtext_begin(r);
    jtext_add_str(r, cut);
    jtext_add_str(r, end);
    return jtext_take(r, start, out);
}

static status filter_wordcount(jrun *r, const jcall *c, jv *out) {
    jv s = c->self;
    int64_t words = 0;
    bool inside = false;
    TRY(jrun_spend(r, jcost_walk(s.n)));
    for (size_t at = 0, n; at < s.n; at += n) {
        uint32_t cp = utf8_next(s.u.s + at, &n);
        bool word = jtext_is_alnum(cp) || cp == '_';
        words += word && !inside;
        inside = word;
    }
    *out = jv_int(words);
    return ST_OK;
}

static status filter_format(jrun *r, const jcall *c, jv *out) {
    jseq pos = {.item = (jv *)c->args->pos, .n = c->args->n_pos, .kind = JSEQ_TUPLE};
    jdict kw = {.key = (jv *)c->args->kw_name, .value = (jv *)c->args->kw, .n = c->args->n_kw};
    if (pos.n > 0 && kw.n > 0) return jrun_fail(r, "format takes positions or keywords, not both");
    return jstr_format(r, c->self, kw.n > 0 ? jv_dict(&kw) : jv_seq(&pos), out);
}

/* ---- numbers ---- */

/* The number that a text is, as int() and float() of Python read it: digits with single
 * underscores between them, blanks around. */
static bool plain_number(jv s, char buf[64]) {
    size_t n = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        char ch = s.u.s[i];
        bool inside = i > 0 && i + 1 < s.n && s.u.s[i - 1] >= '0' && s.u.s[i - 1] <= '9' &&
                      s.u.s[i + 1] >= '0' && s.u.s[i + 1] <= '9';
        if (ch == '_' && inside) continue;
        if (n + 1 >= 64 || ch == '_' || ch == 0 || ch == 'x' || ch == 'X' || ch == '(')
            return false;
        buf[n++] = ch;
    }
    buf[n] = 0;
    return n > 0 && !strpbrk(buf, " \t\n\r\v\f");
}

static bool text_to_float(jv s, double *out) {
    char buf[64], *end;
    if (!plain_number(s, buf)) return false;
    *out = strtod(buf, &end);
    return *end == 0;
}

/* False also when it does not fit, with errno ERANGE. */
static bool text_to_int(jv s, int base, int64_t *out) {
    char digits[66], *end;
    errno = 0;
    if (base == 10) {
        if (!plain_number(s, digits)) return false;
    } else {
        if (s.n == 0 || s.n >= sizeof(digits)) return false;
        memcpy(digits, s.u.s, s.n);
        digits[s.n] = 0;
    }
    *out = strtoll(digits, &end, base);
    if (*end) errno = 0;
    return *end == 0 && errno == 0;
}

/* Without its fraction. Fails when it has more than 64 bits, where Python's would have them. */
static status float_to_int(jrun *r, double f, int64_t *out) {
    if (!(f >= -0x1p63 && f < 0x1p63)) return jrun_fail(r, "a number does not fit in 64 bits");
    *out = (int64_t)f;
    return ST_OK;
}

static status filter_int(jrun *r, const jcall *c, jv *out) {
    int64_t base, value = 0;
    double f;
    TRY(jrun_require(r, c->self));
    TRY(jarg_int(r, c, 1, 10, &base));
    if (base != 10 && base != 2 && base != 8 && base != 16) {
        return jrun_fail(r, "the base of an integer is 2, 8, 10 or 16 here");
    }
    bool ok = jv_is_int(c->self);
    if (ok) {
        value = jv_as_int(c->self);
    } else if (c->self.kind == JV_FLOAT && !isnan(c->self.u.f)) {
        ok = true;
        TRY(float_to_int(r, c->self.u.f, &value));
    } else if (c->self.kind == JV_STRING) {
        jv s = jv_trimmed(c->self, true, true);
        TRY(jrun_spend(r, JFLOAT_STEPS + jcost_walk(c->self.n - s.n)));
        ok = text_to_int(s, (int)base, &value);
        if (!ok && errno == ERANGE) return jrun_fail(r, "a number does not fit in 64 bits");
        if (!ok && text_to_float(s, &f) && isfinite(f)) {
            ok = true;
            TRY(float_to_int(r, f, &value));
        }
    }
    *out = ok ? jv_int(value) : c->p[0].kind == JV_ABSENT ? jv_int(0) : c->p[0];
    return ST_OK;
}

static status filter_float(jrun *r, const jcall *c, jv *out) {
    double f = 0;
    bool ok = jv_is_number(c->self);
    TRY(jrun_require(r, c->self));
    if (ok) f = jv_as_float(c->self);
    if (c->self.kind == JV_STRING) {
        jv s = jv_trimmed(c->self, true, true);
        TRY(jrun_spend(r, JFLOAT_STEPS + jcost_walk(c->self.n - s.n)));
        ok = text_to_float(s, &f);
    }
    *out = ok ? jv_float(f) : c->p[0].kind == JV_ABSENT ? jv_float(0) : c->p[0];
    return ST_OK;
}

static status filter_abs(jrun *r, const jcall *c, jv *out) {
    TRY(jrun_require(r, c->self));
    if (!jv_is_number(c->self)) return jrun_fail(r, "abs needs a number");
    if (c->self.kind == JV_FLOAT)
        *out = jv_float(fabs(c->self.u.f));
    else if (jv_as_int(c->self) >= 0)
        *out = jv_int(jv_as_int(c->self));
    else
        return jrun_unary(r, JN_NEG, c->self, out);
    return ST_OK;
}

/* To a power of ten, half to even, as Python rounds integers. */
static status round_int(jrun *r, int64_t i, int64_t places, jv *out) {
    *out = jv_int(i);
    if (places >= 0) return ST_OK;
    *out = jv_int(0);
    if (places < -18)
        return ST_OK; /* 64 bits have 19 digits; half of 10^19 is more than they hold */
    int64_t unit = 1, down, up;
    for (int64_t k = places; k < 0; k++) unit *= 10;
    int64_t rest = i % unit;
    if (rest < 0) rest += unit;
    if (__builtin_sub_overflow(i, rest, &down))
        return jrun_fail(r, "a number does not fit in 64 bits");
    *out = jv_int(down);
    bool half_odd = rest == unit - rest && (down / unit) % 2 != 0;
    if (rest < unit - rest || (rest == unit - rest && !half_odd)) return ST_OK;
    if (__builtin_add_overflow(down, unit, &up))
        return jrun_fail(r, "a number does not fit in 64 bits");
    *out = jv_int(up);
    return ST_OK;
}

static status round_float(jrun *r, double f, int64_t places, jv method, jv *out) {
    char buf[400];
    bool common = jv_is_word(method, "common");
    *out = jv_float(f);
    bool no_digits = places > 330 || (places >= 0 && fabs(f) >= 0x1p52); /* that could be rounded */
    if (common && (!isfinite(f) || no_digits)) return ST_OK;
    if (common && places < -308) {
        *out = jv_float(copysign(0, f));
    } else if (common && places < 0) {
        double unit = pow(10, (double)-places);
        *out = jv_float(rint(f / unit) * unit);
    } else if (common) {
        TRY(jrun_spend(r, places / 4));
        snprintf(buf, sizeof(buf), "%.*f", (int)places, f); /* exact, half to even */
        *out = jv_float(strtod(buf, NULL));
    } else {
        double scale = pow(10, (double)places), x = f * scale;
        if (!isfinite(x) || scale == 0) return jrun_fail(r, "a number cannot be rounded so");
        x = jv_is_word(method, "ceil") ? ceil(x) : floor(x);
        *out = jv_float((x == 0 ? 0 : x) / scale); /* Python's are integers, without a -0 */
    }
    return ST_OK;
}

static status filter_round(jrun *r, const jcall *c, jv *out) {
    int64_t places;
    jv method;
    TRY(jarg_int(r, c, 0, 0, &places));
    TRY(jarg_str(r, c, 1, JV_WORD("common"), &method));
    TRY(jrun_require(r, c->self));
    TRY(jrun_spend(r, JFLOAT_STEPS));
    if (!jv_is_number(c->self)) return jrun_fail(r, "round needs a number");
    bool common = jv_is_word(method, "common");
    if (!common && !jv_is_word(method, "ceil") && !jv_is_word(method, "floor")) {
        return jrun_fail(r, "method must be common, ceil or floor");
    }
    if (common && jv_is_int(c->self)) return round_int(r, jv_as_int(c->self), places, out);
    return round_float(r, jv_as_float(c->self), places, method, out);
}

/* ---- any value ---- */

static status filter_default(jrun *r, const jcall *c, jv *out) {
    bool missing = c->self.kind == JV_UNDEFINED || (jarg_truth(c, 1) && !jv_truth(c->self));
    (void)r;
    *out = !missing ? c->self : c->p[0].kind == JV_ABSENT ? JV_WORD("") : c->p[0];
    return ST_OK;
}

static status filter_length(jrun *r, const jcall *c, jv *out) {
    int64_t n = jv_length(c->self);
    TRY(jrun_use(r, c->self));
    if (n < 0) {
        jrun_fail(r, "object of type '%s' has no len()", jv_type(c->self));
        return jv_is_seq(c->self, JSEQ_GENERATOR) ? err_hint(r->e, "add |list before |length")
                                                  : ST_FORMAT;
    }
    *out = jv_int(n);
    return jrun_spend(r, c->self.kind == JV_STRING ? jcost_search(c->self.n) : 0);
}

static status filter_attr(jrun *r, const jcall *c, jv *out) {
    jv name;
    TRY(jarg_str(r, c, 0, JV_WORD(""), &name));
    if (c->self.kind == JV_DICT && !jbuiltin_row(jmethod_dict_rows, name)) {
        *out = jundef_of(r, c->self, name, false); /* attributes only, no items */
        return ST_OK;
    }
    return jrun_attr(r, c->self, name, out);
}

const jbuiltin jfilter_rows[] = {
    {"tojson", jfilter_tojson, "ensure_ascii,indent,separators,sort_keys", 0},
    {"trim", jstr_strip, "chars", OF_TEXT},
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"default", filter_default, "default_value,boolean", 0},
    {"d", filter_default, "default_value,boolean", 0},
    {"string", filter_string, "", OF_TEXT},
    {"upper", jstr_upper, "", OF_TEXT},
    {"lower", jstr_lower, "", OF_TEXT},
    {"safe", filter_safe, "", OF_TEXT},
    {"replace", filter_replace, "old,new,count", OF_TEXT | 2},
    {"capitalize", jstr_capitalize, "", OF_TEXT},
    {"title", jstr_title_words, "", OF_TEXT},
    {"indent", filter_indent, "width,first,blank", 0},
    {"int", filter_int, "default,base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision,method", 0},
    {"format", filter_format, NULL, OF_TEXT},
    {"escape", filter_escape, "", OF_TEXT},
    {"e", filter_escape, "", OF_TEXT},
    {"forceescape", filter_forceescape, "", OF_TEXT},
    {"center", filter_center, "width", OF_TEXT},
    {"truncate", filter_truncate, "length,killwords,end,leeway", 0},
    {"wordcount", filter_wordcount, "", OF_TEXT},
    {"attr", filter_attr, "name", 1},
    {0},
};
