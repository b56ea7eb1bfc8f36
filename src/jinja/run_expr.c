/* Expressions. */
#include "jinja/run.h"

#include "jinja/lex.h"

static status eval_list(jrun *r, const jnode *n, jv *out) {
    jseq *s = jseq_new(r, n->kind == JN_LIST ? JSEQ_LIST : JSEQ_TUPLE);
    for (int32_t i = 0; i < n->kid.n; i++) {
        jv v;
        TRY(jrun_eval(r, n->kid.item[i], &v));
        jseq_push(r, s, v);
    }
    *out = jv_seq(s);
    return ST_OK;
}

static status eval_dict(jrun *r, const jnode *n, jv *out) {
    jdict *d = jdict_new(r);
    for (int32_t i = 0; i < n->kid.n; i += 2) {
        jv key, value;
        TRY(jrun_eval(r, n->kid.item[i], &key));
        TRY(jrun_eval(r, n->kid.item[i + 1], &value));
        TRY(jdict_set(r, d, key, value));
    }
    *out = jv_dict(d);
    return ST_OK;
}

static status eval_concat(jrun *r, const jnode *n, jv *out) {
    size_t start = jtext_begin(r);
    for (int32_t i = 0; i < n->kid.n; i++) {
        jv v;
        TRY(jrun_eval(r, n->kid.item[i], &v));
        TRY(jv_add_str(r, v));
    }
    return jtext_take(r, start, out);
}

/* ---- comparisons ---- */

status jrun_compare(jrun *r, int op, jv a, jv b, bool *yes) {
    int order;
    switch (op) {
        case JT_EQ: return jv_equal(r, a, b, yes);
        case JT_NE:
            TRY(jv_equal(r, a, b, yes));
            *yes = !*yes;
            return ST_OK;
        case JN_OP_IN: return jv_contains(r, b, a, yes);
        case JN_OP_NOT_IN:
            TRY(jv_contains(r, b, a, yes));
            *yes = !*yes;
            return ST_OK;
        default: break;
    }
    TRY(jv_order(r, a, b, &order));
    bool ordered = !(jv_is_number(a) && jv_is_number(b) &&
                     (jv_as_float(a) != jv_as_float(a) || jv_as_float(b) != jv_as_float(b)));
    *yes = ordered && (op == JT_LT   ? order < 0
                       : op == JT_LE ? order <= 0
                       : op == JT_GT ? order > 0
                                     : order >= 0);
    return ST_OK;
}

static status eval_compare(jrun *r, const jnode *n, jv left, jv *out) {
    bool yes = true;
    jv right;
    for (int32_t i = 0; i < n->kid.n && yes; i++) {
        TRY(jrun_eval(r, n->kid.item[i]->a, &right));
        r->at = n->at;
        TRY(jrun_compare(r, n->kid.item[i]->op, left, right, &yes));
        left = right;
    }
    *out = jv_bool(yes);
    return ST_OK;
}

/* ---- choices ---- */

static status eval_logic(jrun *r, const jnode *n, jv a, jv *out) {
    bool yes;
    *out = a;
    TRY(jrun_truth(r, a, &yes));
    if (yes == (n->kind == JN_OR)) return ST_OK;
    return jrun_eval(r, n->b, out);
}

static status eval_choice(jrun *r, const jnode *n, jv cond, jv *out) {
    bool yes;
    TRY(jrun_truth(r, cond, &yes));
    if (yes) return jrun_eval(r, n->b, out);
    if (n->c) return jrun_eval(r, n->c, out);
    *out = jundef_why(r, "the inline if-expression was false and has no else", true);
    return ST_OK;
}

/* ---- operators, parts and calls ---- */

static status eval_binary(jrun *r, const jnode *n, jv a, jv *out) {
    jv b;
    TRY(jrun_eval(r, n->b, &b));
    r->at = n->at;
    return jrun_binary(r, n->op, a, b, out);
}

static status eval_optional(jrun *r, const jnode *n, jv *out) {
    *out = jv_none();
    return n ? jrun_eval(r, n, out) : ST_OK;
}

static status eval_item(jrun *r, const jnode *n, jv of, jv *out) {
    jv start, stop, step;
    if (n->b->kind == JN_SLICE) {
        TRY(eval_optional(r, n->b->a, &start));
        TRY(eval_optional(r, n->b->b, &stop));
        TRY(eval_optional(r, n->b->c, &step));
        r->at = n->at;
        return jrun_slice(r, of, start, stop, step, out);
    }
    TRY(jrun_eval(r, n->b, &start));
    r->at = n->at;
    return jrun_item(r, of, start, out);
}

static status eval_call(jrun *r, const jnode *n, jv callee, jv *out) {
    jargs args;
    TRY(jrun_args(r, n->args, &args));
    r->at = n->at;
    return jrun_call(r, callee, &args, out);
}

static status eval_builtin(jrun *r, const jnode *n, jv self, jv *out) {
    jargs args = {0};
    if (n->args) TRY(jrun_args(r, n->args, &args));
    r->at = n->at;
    if (!n->builtin) {
        return jrun_fail(r, "there is no %s \"%.*s\"", n->kind == JN_TEST ? "test" : "filter",
                         JV_SHOWN(n->value));
    }
    return jbuiltin_call(r, n->builtin, self, &args, out);
}

static status eval_node(jrun *r, const jnode *n, jv *out) {
    jv a = {0};
    if (n->a) TRY(jrun_eval(r, n->a, &a));
    r->at = n->at;
    switch ((jnode_kind)n->kind) {
        case JN_CONST: *out = n->value; return ST_OK;
        case JN_HOLE: *out = r->hole; return ST_OK;
        case JN_NAME: return jrun_lookup(r, n->symbol, out);
        case JN_LIST:
        case JN_TUPLE: return eval_list(r, n, out);
        case JN_DICT: return eval_dict(r, n, out);
        case JN_NEG:
        case JN_POS:
        case JN_NOT: return jrun_unary(r, n->kind, a, out);
        case JN_AND:
        case JN_OR: return eval_logic(r, n, a, out);
        case JN_BINARY: return eval_binary(r, n, a, out);
        case JN_CONCAT: return eval_concat(r, n, out);
        case JN_COMPARE: return eval_compare(r, n, a, out);
        case JN_CHOICE: return eval_choice(r, n, a, out);
        case JN_ATTR: return jrun_attr(r, a, n->value, out);
        case JN_ITEM: return eval_item(r, n, a, out);
        case JN_CALL: return eval_call(r, n, a, out);
        case JN_FILTER:
        case JN_TEST: return eval_builtin(r, n, a, out);
        default: CHECK(false, "a statement where an expression stands"); return ST_FAILED;
    }
}

status jrun_eval(jrun *r, const jnode *n, jv *out) {
    r->at = n->at;
    TRY(jrun_enter(r));
    TRY(jrun_spend(r, 1));
    status st = eval_node(r, n, out);
    r->depth--;
    return st;
}
