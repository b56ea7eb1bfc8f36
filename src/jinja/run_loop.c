/* for, and the value `loop`. */
#include <string.h>

#include "jinja/run.h"

/* ---- items ---- */

static status passes(jrun *r, const jloop *l, jv item, bool *yes) {
    jscope *outer = r->scope;
    jv value;
    r->scope = jscope_in(r, l->scope);
    TRY(jrun_assign(r, l->node->a, item));
    TRY(jrun_eval(r, l->node->c, &value));
    r->scope = outer;
    return jrun_truth(r, value, yes);
}

/* Whether there is another item. */
static status ahead(jrun *r, jloop *l, bool *more) {
    *more = l->index + 1 < l->got->n;
    while (!*more && l->next < l->source->n) {
        jv item = l->source->item[l->next++];
        TRY(jrun_spend(r, 1));
        *more = true;
        if (l->node->c) TRY(passes(r, l, item, more));
        if (*more) jseq_push(r, l->got, item);
    }
    return ST_OK;
}

static status get_all(jrun *r, jloop *l) {
    int32_t index = l->index;
    bool more = true;
    while (more) {
        TRY(ahead(r, l, &more));
        l->index = l->got->n - 1;
    }
    l->index = index;
    return ST_OK;
}

/* ---- loop.NAME ---- */

static status loop_neighbour(jrun *r, jloop *l, bool next, jv *out) {
    bool there = l->index > 0;
    if (next) TRY(ahead(r, l, &there));
    if (there)
        *out = l->got->item[l->index + (next ? 1 : -1)];
    else
        *out = jundef_why(r, next ? "there is no next item" : "there is no previous item", false);
    return ST_OK;
}

status jloop_attr(jrun *r, jloop *l, jv name, jv *out, bool *found) {
    bool back = jv_is_word(name, "revindex"), back0 = jv_is_word(name, "revindex0"), more;
    *found = true;
    if (jv_is_word(name, "index")) {
        *out = jv_int(l->index + 1);
    } else if (jv_is_word(name, "index0")) {
        *out = jv_int(l->index);
    } else if (jv_is_word(name, "first")) {
        *out = jv_bool(l->index == 0);
    } else if (jv_is_word(name, "last")) {
        TRY(ahead(r, l, &more));
        *out = jv_bool(!more);
    } else if (back || back0 || jv_is_word(name, "length")) {
        TRY(get_all(r, l));
        *out = jv_int(back ? l->got->n - l->index : back0 ? l->got->n - l->index - 1 : l->got->n);
    } else if (jv_is_word(name, "previtem") || jv_is_word(name, "nextitem")) {
        return loop_neighbour(r, l, name.u.s[0] == 'n', out);
    } else if (jv_is_word(name, "depth") || jv_is_word(name, "depth0")) {
        *out = jv_int(name.n == 5); /* only recursive loops are deeper */
    } else {
        *found = false;
    }
    return ST_OK;
}

/* ---- the statement ---- */

static status run_body(jrun *r, jloop *l, jscope **scope) {
    jscope *s = *scope;
    if (!s || s->kept) s = *scope = jscope_in(r, l->scope);
    s->n = 0;
    r->scope = s;
    TRY(jscope_set(r, s, r->t->sym_loop, (jv){.kind = JV_LOOP, .u.loop = l}));
    TRY(jrun_assign(r, l->node->a, l->got->item[l->index]));
    return jrun_block(r, l->node->d);
}

static status run_items(jrun *r, jloop *l) {
    jscope *scope = NULL;
    bool more;
    for (;;) {
        r->scope = l->scope;
        TRY(ahead(r, l, &more));
        if (!more) return ST_OK;
        l->index++;
        TRY(run_body(r, l, &scope));
        bool stop = r->flow == JFLOW_BREAK;
        l->finished = l->finished || r->flow == JFLOW_NEXT;
        r->flow = JFLOW_NEXT;
        if (stop) return ST_OK;
    }
}

status jrun_for(jrun *r, const jnode *n) {
    jloop *l = ARENA_NEW(r->mem, jloop);
    jscope *outer = r->scope;
    jv items;
    TRY(jrun_eval(r, n->b, &items));
    r->at = n->at;
    TRY(jv_iterate(r, items, &l->source));
    l->node = n;
    l->scope = outer;
    l->index = -1;
    l->got = jseq_new(r, JSEQ_LIST);
    TRY(run_items(r, l));
    r->scope = outer;
    if (l->finished || n->kid.n == 0) return ST_OK;
    r->scope = jscope_in(r, outer);
    TRY(jrun_block(r, n->kid.item[0]));
    r->scope = outer;
    return ST_OK;
}
