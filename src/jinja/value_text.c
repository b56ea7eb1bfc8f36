/* Python's str() and repr(). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "jinja/run.h"
#include "base/utf8.h"

/* The digits of "-d.dddddde+xx" up to the last that is not 0. */
static int significant(const char *text) {
    int n = 0, last = 1;
    for (; *text != 'e'; text++) {
        if (*text < '0' || *text > '9') continue;
        n++;
        if (*text != '0') last = n;
    }
    return last;
}

/* The fewest digits that read back exactly; plain notation from 1e-4 up to 1e16. All numbers of up to
 * 15 digits read back from 15, where the last ones are zeros; only the smallest doubles have fewer. */
void jtext_add_float(jrun *r, double f) {
    char buf[40];
    if (isnan(f) || isinf(f)) {
        jtext_puts(r, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int digits = fabs(f) < DBL_MIN ? 1 : 15;
    do snprintf(buf, sizeof(buf), "%.*e", digits - 1, f);
    while (strtod(buf, NULL) != f && ++digits <= 17);
    int exponent = atoi(strchr(buf, 'e') + 1);
    if (digits == 15) digits = significant(buf);
    int places = digits - 1 - exponent;
    if (exponent >= -4 && exponent < 16)
        snprintf(buf, sizeof(buf), "%.*f", places > 0 ? places : 1, f);
    else
        snprintf(buf, sizeof(buf), "%.*e", digits - 1, f);
    jtext_puts(r, buf); /* C writes exponents of two digits at least, as Python does */
}

static bool printable(uint32_t cp) {
    if (cp == ' ') return true;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return !(c == UTF8PROC_CATEGORY_CN || c >= UTF8PROC_CATEGORY_ZS);
}

static const char *repr_escape(const void *quote, uint32_t cp, char buf[16]) {
    if (cp == *(const uint8_t *)quote || cp == '\\')
        snprintf(buf, 16, "\\%c", (int)cp);
    else if (printable(cp))
        return NULL;
    else if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(buf, 16, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    else
        snprintf(buf, 16,
                 cp < 0x100     ? "\\x%02x"
                 : cp < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                 (unsigned)cp);
    return buf;
}

static void add_repr_str(jrun *r, jv s) {
    bool single = memchr(s.u.s, '\'', s.n) != NULL, twice = memchr(s.u.s, '"', s.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (s.safe) jtext_puts(r, "Markup(");
    jtext_putc(r, quote);
    jtext_add_escaped(r, s, repr_escape, &quote);
    jtext_putc(r, quote);
    if (s.safe) jtext_putc(r, ')');
}

static status add_items(jrun *r, const jseq *s, const char *open, const char *close) {
    jtext_puts(r, open);
    for (int32_t i = 0; i < s->n; i++) {
        if (i > 0) jtext_puts(r, ", ");
        TRY(jv_add_repr(r, s->item[i]));
    }
    if (s->kind == JSEQ_TUPLE && s->n == 1) jtext_putc(r, ',');
    jtext_puts(r, close);
    return ST_OK;
}

static status add_range(jrun *r, jrange g) {
    char buf[80];
    snprintf(buf, sizeof(buf), g.step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
             (long long)g.start, (long long)g.stop, (long long)g.step);
    jtext_puts(r, buf);
    return ST_OK;
}

static status add_seq(jrun *r, const jseq *s) {
    switch (s->kind) {
        case JSEQ_LIST: return add_items(r, s, "[", "]");
        case JSEQ_TUPLE: return add_items(r, s, "(", ")");
        case JSEQ_KEYS: return add_items(r, s, "dict_keys([", "])");
        case JSEQ_VALUES: return add_items(r, s, "dict_values([", "])");
        case JSEQ_ITEMS: return add_items(r, s, "dict_items([", "])");
        case JSEQ_RANGE: return add_range(r, s->range);
        case JSEQ_GENERATOR: break;
    }
    jrun_fail(r, "a generator is printed, not its items");
    return err_hint(r->e, "add |list behind the filter");
}

static status add_dict(jrun *r, const jdict *d) {
    jtext_putc(r, '{');
    for (int32_t i = 0; i < d->n; i++) {
        if (i > 0) jtext_puts(r, ", ");
        TRY(jv_add_repr(r, d->key[i]));
        jtext_puts(r, ": ");
        TRY(jv_add_repr(r, d->value[i]));
    }
    jtext_putc(r, '}');
    return ST_OK;
}

static status add_nested(jrun *r, jv v) {
    if (v.kind == JV_NAMESPACE) jtext_puts(r, "<Namespace ");
    TRY(jrun_enter(r));
    status st = v.kind == JV_SEQ ? add_seq(r, v.u.seq) : add_dict(r, v.u.dict);
    r->depth--;
    if (v.kind == JV_NAMESPACE) jtext_putc(r, '>');
    return st;
}

static void add_int(jrun *r, int64_t i) {
    char buf[24];
    snprintf(buf, sizeof(buf), "%lld", (long long)i);
    jtext_puts(r, buf);
}

status jv_add_repr(jrun *r, jv v) {
    TRY(jrun_spend(r, 1));
    switch ((jv_kind)v.kind) {
        case JV_ABSENT:
        case JV_UNDEFINED: jtext_puts(r, "Undefined"); break;
        case JV_NONE: jtext_puts(r, "None"); break;
        case JV_BOOL: jtext_puts(r, v.u.b ? "True" : "False"); break;
        case JV_INT: add_int(r, v.u.i); break;
        case JV_FLOAT: jtext_add_float(r, v.u.f); return jrun_spend(r, JFLOAT_STEPS);
        case JV_STRING: add_repr_str(r, v); break;
        case JV_SEQ:
        case JV_DICT:
        case JV_NAMESPACE: return add_nested(r, v);
        case JV_LOOP:
        case JV_MACRO:
        case JV_FUNCTION:
            jrun_fail(r, "a %s is printed, not its result", jv_type(v));
            return err_hint(r->e, "call it, with brackets");
    }
    return ST_OK;
}

status jv_add_str(jrun *r, jv v) {
    if (v.kind == JV_UNDEFINED) return jrun_use(r, v);
    if (v.kind != JV_STRING) return jv_add_repr(r, v);
    jtext_add_str(r, v);
    return ST_OK;
}

status jv_to_str(jrun *r, jv v, jv *out) {
    *out = v;
    if (v.kind == JV_STRING) return ST_OK;
    size_t start = jtext_begin(r);
    TRY(jv_add_str(r, v));
    return jtext_take(r, start, out);
}
