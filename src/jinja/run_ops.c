/* Arithmetic, and what + * % do with texts and lists. Integers have 64 bits; where Python's would
 * grow beyond, the render fails. */
#include <math.h>
#include <string.h>

#include "jinja/lex.h"
#include "jinja/run.h"

static const char *op_text(int op) {
    switch (op) {
        case JT_ADD: return "+";
        case JT_SUB: return "-";
        case JT_MUL: return "*";
        case JT_DIV: return "/";
        case JT_FLOORDIV: return "//";
        case JT_MOD: return "%";
        default: return "**";
    }
}

static status too_large(jrun *r) {
    return jrun_fail(r, "a number does not fit in 64 bits");
}

status jrun_unary(jrun *r, jnode_kind op, jv a, jv *out) {
    if (op == JN_NOT) {
        bool yes;
        TRY(jrun_truth(r, a, &yes));
        *out = jv_bool(!yes);
        return ST_OK;
    }
    TRY(jrun_require(r, a));
    if (!jv_is_number(a)) {
        return jrun_fail(r, "bad operand type for unary %c: '%s'", op == JN_NEG ? '-' : '+',
                         jv_type(a));
    }
    if (a.kind == JV_FLOAT) {
        *out = jv_float(op == JN_NEG ? -a.u.f : a.u.f);
    } else {
        if (op == JN_NEG && jv_as_int(a) == INT64_MIN) return too_large(r);
        *out = jv_int(op == JN_NEG ? -jv_as_int(a) : jv_as_int(a));
    }
    return ST_OK;
}

/* ---- numbers ---- */

static status int_pow(jrun *r, int64_t base, int64_t exponent, jv *out) {
    int64_t value = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(value, base, &value)) return too_large(r);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(r);
    }
    *out = jv_int(value);
    return ST_OK;
}

/* Rounded down, as Python does; b is not 0. */
static status int_divide(jrun *r, int op, int64_t a, int64_t b, jv *out) {
    if (b == -1) { /* the machine's division traps on INT64_MIN */
        if (op == JT_FLOORDIV && a == INT64_MIN) return too_large(r);
        *out = jv_int(op == JT_MOD ? 0 : -a);
        return ST_OK;
    }
    int64_t q = a / b, m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) {
        m += b;
        q--;
    }
    *out = jv_int(op == JT_MOD ? m : q);
    return ST_OK;
}

static status int_op(jrun *r, int op, int64_t a, int64_t b, jv *out) {
    int64_t value = 0;
    bool over = false;
    switch (op) {
        case JT_ADD: over = __builtin_add_overflow(a, b, &value); break;
        case JT_SUB: over = __builtin_sub_overflow(a, b, &value); break;
        case JT_MUL: over = __builtin_mul_overflow(a, b, &value); break;
        case JT_POW: return int_pow(r, a, b, out);
        default: return int_divide(r, op, a, b, out);
    }
    *out = jv_int(value);
    return over ? too_large(r) : ST_OK;
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) return m + b;
    return m == 0 ? copysign(0.0, b) : m;
}

/* Step by step as Python, since each step rounds. */
static double float_floordiv(double a, double b) {
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    return q - floor(q) > 0.5 ? floor(q) + 1 : floor(q);
}

static double float_op(int op, double a, double b) {
    switch (op) {
        case JT_ADD: return a + b;
        case JT_SUB: return a - b;
        case JT_MUL: return a * b;
        case JT_DIV: return a / b;
        case JT_FLOORDIV: return float_floordiv(a, b);
        case JT_MOD: return float_mod(a, b);
        default: return pow(a, b);
    }
}

static status number_op(jrun *r, int op, jv a, jv b, jv *out) {
    bool divides = op == JT_DIV || op == JT_FLOORDIV || op == JT_MOD;
    bool ints = jv_is_int(a) && jv_is_int(b);
    if (divides && jv_as_float(b) == 0) return jrun_fail(r, "division by zero");
    if (op == JT_POW && jv_as_float(a) == 0 && jv_as_float(b) < 0) {
        return jrun_fail(r, "0 cannot be raised to a negative power");
    }
    if (ints && op != JT_DIV && !(op == JT_POW && jv_as_int(b) < 0)) {
        return int_op(r, op, jv_as_int(a), jv_as_int(b), out);
    }
    double f = float_op(op, jv_as_float(a), jv_as_float(b));
    if (op == JT_POW && !isfinite(f) && isfinite(jv_as_float(a)) && isfinite(jv_as_float(b))) {
        return jrun_fail(r, isnan(f) ? "a root of a negative number" : "a power is too large");
    }
    *out = jv_float(f);
    return jrun_spend(r, op == JT_MOD || op == JT_FLOORDIV ? JFLOAT_STEPS
                                                           : 1); /* fmod takes its time */
}

/* ---- texts and lists ---- */

static status join_texts(jrun *r, jv a, jv b, jv *out) {
    bool safe = a.safe || b.safe;
    if (safe && !a.safe) TRY(jstr_escape_html(r, a, &a));
    if (safe && !b.safe) TRY(jstr_escape_html(r, b, &b));
    size_t start = jtext_begin(r);
    jtext_add_str(r, a);
    jtext_add_str(r, b);
    TRY(jtext_take(r, start, out));
    out->safe = safe;
    return ST_OK;
}

static status join_seqs(jrun *r, const jseq *a, const jseq *b, jv *out) {
    jseq *s = jseq_new(r, a->kind);
    TRY(jrun_spend(r, a->n + b->n));
    for (int32_t i = 0; i < a->n; i++) jseq_push(r, s, a->item[i]);
    for (int32_t i = 0; i < b->n; i++) jseq_push(r, s, b->item[i]);
    *out = jv_seq(s);
    return ST_OK;
}

static status repeat(jrun *r, jv v, int64_t times, jv *out) {
    int64_t n = v.kind == JV_STRING ? (int64_t)v.n : v.u.seq->n, total;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(n, times, &total)) total = INT64_MAX;
    TRY(jrun_spend(r, v.kind == JV_STRING ? jcost_copy(total) : total));
    if (v.kind == JV_STRING) {
        size_t start = jtext_begin(r);
        jtext_add_times(r, v, times);
        TRY(jtext_take(r, start, out));
        out->safe = v.safe;
        return ST_OK;
    }
    jseq *s = jseq_new(r, v.u.seq->kind);
    for (int64_t i = 0; i < total; i++) jseq_push(r, s, v.u.seq->item[i % n]);
    *out = jv_seq(s);
    return ST_OK;
}

static bool repeatable(jv v) {
    return v.kind == JV_STRING || jv_is_seq(v, JSEQ_LIST) || jv_is_seq(v, JSEQ_TUPLE);
}

status jrun_binary(jrun *r, int op, jv a, jv b, jv *out) {
    bool lists = a.kind == JV_SEQ && b.kind == JV_SEQ && a.u.seq->kind == b.u.seq->kind;
    if (op == JT_MOD && a.kind == JV_STRING) return jstr_format(r, a, b, out);
    TRY(jrun_require(r, a));
    TRY(jrun_require(r, b));
    if (jv_is_number(a) && jv_is_number(b)) return number_op(r, op, a, b, out);
    if (op == JT_ADD && a.kind == JV_STRING && b.kind == JV_STRING) {
        return join_texts(r, a, b, out);
    }
    if (op == JT_ADD && lists && repeatable(a)) return join_seqs(r, a.u.seq, b.u.seq, out);
    if (op == JT_MUL && repeatable(a) && jv_is_int(b)) return repeat(r, a, jv_as_int(b), out);
    if (op == JT_MUL && repeatable(b) && jv_is_int(a)) return repeat(r, b, jv_as_int(a), out);
    if (op == JT_ADD && (a.kind == JV_STRING) != (b.kind == JV_STRING)) {
        jrun_fail(r, "'%s' and '%s' cannot be added", jv_type(a), jv_type(b));
        return err_hint(r->e, "~ makes a text of both sides");
    }
    return jrun_fail(r, "unsupported operand types for %s: '%s' and '%s'", op_text(op), jv_type(a),
                     jv_type(b));
}
