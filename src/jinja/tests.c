/* Tests: `value is NAME`. */
#include <string.h>

#include "jinja/run.h"
#include "jinja/lex.h"

static status answer(bool yes, jv *out) {
    *out = jv_bool(yes);
    return ST_OK;
}

/* ---- kinds ---- */

#define KIND_TEST(name, condition)                                                                 \
    static status test_##name(jrun *r, const jcall *c, jv *out) {                                  \
        jv v = c->self;                                                                            \
        (void)r;                                                                                   \
        return answer(condition, out);                                                             \
    }
KIND_TEST(defined, v.kind != JV_UNDEFINED)
KIND_TEST(undefined, v.kind == JV_UNDEFINED)
KIND_TEST(none, v.kind == JV_NONE)
KIND_TEST(boolean, v.kind == JV_BOOL)
KIND_TEST(true, v.kind == JV_BOOL && v.u.b)
KIND_TEST(false, v.kind == JV_BOOL && !v.u.b)
KIND_TEST(integer, v.kind == JV_INT)
KIND_TEST(float, v.kind == JV_FLOAT)
KIND_TEST(number, jv_is_number(v))
KIND_TEST(string, v.kind == JV_STRING)
KIND_TEST(mapping, v.kind == JV_DICT)
KIND_TEST(iterable, v.kind == JV_STRING || v.kind == JV_SEQ || v.kind == JV_DICT ||
                        v.kind == JV_UNDEFINED || v.kind == JV_LOOP)
KIND_TEST(callable, v.kind == JV_FUNCTION || v.kind == JV_MACRO || v.kind == JV_UNDEFINED ||
                        v.kind == JV_LOOP)
KIND_TEST(escaped, v.kind == JV_STRING && v.safe)
/* What has len() and items; an undefined value says so of itself, too. */
KIND_TEST(sequence, v.kind == JV_STRING || v.kind == JV_DICT ||
                        (v.kind == JV_UNDEFINED && !r->t->strict) ||
                        (v.kind == JV_SEQ && v.u.seq->kind <= JSEQ_RANGE))

/* ---- texts and numbers ---- */

static status remainder_is(jrun *r, jv v, jv by, int64_t want, jv *out) {
    jv rest;
    bool yes;
    TRY(jrun_binary(r, JT_MOD, v, by, &rest));
    TRY(jv_equal(r, rest, jv_int(want), &yes));
    return answer(yes, out);
}
static status test_odd(jrun *r, const jcall *c, jv *out) {
    return remainder_is(r, c->self, jv_int(2), 1, out);
}
static status test_even(jrun *r, const jcall *c, jv *out) {
    return remainder_is(r, c->self, jv_int(2), 0, out);
}
static status test_divisibleby(jrun *r, const jcall *c, jv *out) {
    return remainder_is(r, c->self, c->p[0], 0, out);
}

/* ---- comparisons ---- */

#define COMPARE_TEST(name, op)                                                                     \
    static status test_##name(jrun *r, const jcall *c, jv *out) {                                  \
        bool yes;                                                                                  \
        TRY(jrun_compare(r, op, c->self, c->p[0], &yes));                                          \
        return answer(yes, out);                                                                   \
    }
COMPARE_TEST(eq, JT_EQ)
COMPARE_TEST(ne, JT_NE)
COMPARE_TEST(lt, JT_LT)
COMPARE_TEST(le, JT_LE)
COMPARE_TEST(gt, JT_GT)
COMPARE_TEST(ge, JT_GE)
COMPARE_TEST(in, JN_OP_IN)

/* The same object: what cannot be told apart otherwise is one. */
static status test_sameas(jrun *r, const jcall *c, jv *out) {
    jv a = c->self, b = c->p[0];
    bool yes = false;
    if (a.kind == b.kind && a.kind <= JV_STRING)
        TRY(jv_equal(r, a, b, &yes));
    else if (a.kind == b.kind)
        yes = a.u.seq == b.u.seq;
    return answer(yes, out);
}

static status test_filter(jrun *r, const jcall *c, jv *out) {
    (void)r;
    return answer(jbuiltin_find(&jbuiltin_filters, c->self) != NULL, out);
}
static status test_test(jrun *r, const jcall *c, jv *out) {
    (void)r;
    return answer(jbuiltin_find(&jbuiltin_tests, c->self) != NULL, out);
}

const jbuiltin jtest_rows[] = {
    {"defined", test_defined, "", 0},
    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},
    {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},
    {"iterable", test_iterable, "", 0},
    {"sequence", test_sequence, "", 0},
    {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},
    {"false", test_false, "", 0},
    {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},
    {"number", test_number, "", 0},
    {"callable", test_callable, "", 0},
    {"escaped", test_escaped, "", 0},
    {"lower", jstr_islower, "", OF_TEXT},
    {"upper", jstr_isupper, "", OF_TEXT},
    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},
    {"divisibleby", test_divisibleby, "num", 1},
    {"eq", test_eq, "b", 1},
    {"equalto", test_eq, "b", 1},
    {"==", test_eq, "b", 1},
    {"ne", test_ne, "b", 1},
    {"!=", test_ne, "b", 1},
    {"lt", test_lt, "b", 1},
    {"lessthan", test_lt, "b", 1},
    {"<", test_lt, "b", 1},
    {"le", test_le, "b", 1},
    {"<=", test_le, "b", 1},
    {"gt", test_gt, "b", 1},
    {"greaterthan", test_gt, "b", 1},
    {">", test_gt, "b", 1},
    {"ge", test_ge, "b", 1},
    {">=", test_ge, "b", 1},
    {"in", test_in, "seq", 1},
    {"sameas", test_sameas, "other", 1},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
    {0},
};
