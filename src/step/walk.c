/* Where units of parameters are gathered and reduced (see step.h).
 *
 * The walk keeps what every slot holds while the step runs. A unit that is not there when an op
 * reads it is gathered; then the next unit is gathered ahead, if the slot's present holder is not
 * read before. Gradients are reduced when the last op of the pass has added to them; a slot that is
 * still being reduced is waited for before another unit writes to it. */
#include "step/walk.h"

#include <string.h>

typedef struct use {
    int op, unit;
    bool grad;
} use;

struct walk {
    arena *a;
    const param_store *s;
    step_table *out;
    int n_ops, n_forward, n_units;
    bool grads_in_slots;
    use *uses; /* by op */
    int n_uses, cap_uses;
    int *last_grad;  /* [units] use that completes its gradient; -1: none */
    int *holder;     /* [units] unit that the unit's slot holds; -1: none */
    bool *gathering; /* [units] */
    bool *reducing;  /* [units] */
    /* of the pass */
    int micro_batch, from; /* first op that no entry runs yet */
    bool last;
};

void step_append(arena *a, step_table *t, step_entry e) {
    t->entry = arena_grow(a, t->entry, t->n, &t->cap, sizeof *t->entry);
    t->entry[t->n++] = e;
}

static void note_use(void *ctx, int op, int unit, bool grad) {
    walk *w = ctx;
    w->uses = arena_grow(w->a, w->uses, w->n_uses, &w->cap_uses, sizeof *w->uses);
    if (grad) w->last_grad[unit] = w->n_uses;
    w->uses[w->n_uses++] = (use){op, unit, grad};
}

walk *walk_new(arena *a, const param_store *s, const prog *p, step_table *out) {
    walk *w = ARENA_NEW(a, walk);
    const prog_stats *st = prog_get_stats(p);
    int n = param_units(s);
    *w = (walk){.a = a,
                .s = s,
                .out = out,
                .n_ops = st->ops,
                .n_forward = st->ops_forward,
                .n_units = n,
                .grads_in_slots = param_grads_in_slots(s),
                .last_grad = ARENA_ARRAY(a, int, n),
                .holder = ARENA_ARRAY(a, int, n),
                .gathering = ARENA_ARRAY(a, bool, n),
                .reducing = ARENA_ARRAY(a, bool, n)};
    for (int u = 0; u < n; u++) w->last_grad[u] = w->holder[u] = -1;
    prog_visit_units(p, note_use, w);
    return w;
}

static bool same_slot(const walk *w, int u, int v) {
    return param_unit_at(w->s, u)->slot == param_unit_at(w->s, v)->slot;
}

/* ---- entries ---- */

static void append(walk *w, step_action action, int unit) {
    step_append(w->a, w->out,
                (step_entry){.action = action, .micro_batch = w->micro_batch, .unit = unit});
}

/* Ops up to `end` that no entry runs yet. */
static void flush(walk *w, int end) {
    if (w->from == end) return;
    bool forward = w->from < w->n_forward;
    step_append(w->a, w->out,
                (step_entry){.action = forward ? STEP_FORWARD : STEP_BACKWARD,
                             .micro_batch = w->micro_batch,
                             .first = w->from,
                             .end = end});
    w->from = end;
}

static void gather(walk *w, int u) {
    for (int v = 0; v < w->n_units; v++)
        if (same_slot(w, u, v)) w->holder[v] = u;
    w->gathering[u] = true;
    append(w, STEP_GATHER, u);
}

static void settle_reduction(walk *w, int u) {
    if (!w->reducing[u]) return;
    append(w, STEP_REDUCED, u);
    w->reducing[u] = false;
}

/* ---- weights ---- */

static bool moves(const walk *w, int u) {
    return param_weights_in_slots(w->s) && param_weights_transfer(w->s, u).n > 0;
}

/* The unit that is read first after use k, other than unit u, and is in no slot; -1: none. What it
 * would replace must not be read before. */
static int next_to_gather(const walk *w, int k, int u) {
    for (int i = k + 1; i < w->n_uses; i++) {
        int v = w->uses[i].unit;
        if (w->uses[i].grad || v == u || !moves(w, v) || w->holder[v] == v) continue;
        int holds = w->holder[v];
        if (same_slot(w, u, v)) return -1;
        for (int j = k; j < i; j++)
            if (!w->uses[j].grad && w->uses[j].unit == holds) return -1;
        return v;
    }
    return -1;
}

static void before_read(walk *w, int k) {
    int u = w->uses[k].unit;
    if (!moves(w, u)) return;
    bool here = w->holder[u] == u, waits = here && w->gathering[u];
    if (here && !waits) {
        int next = next_to_gather(w, k, u);
        if (next < 0) return;
        flush(w, w->uses[k].op);
        gather(w, next);
        return;
    }
    flush(w, w->uses[k].op);
    if (!here) gather(w, u);
    append(w, STEP_GATHERED, u);
    w->gathering[u] = false;
    int next = next_to_gather(w, k, u);
    if (next >= 0) gather(w, next);
}

/* ---- gradients ---- */

/* A slot that another reduction still reads is not written. */
static void before_write(walk *w, int k) {
    if (!w->grads_in_slots) return;
    for (int v = 0; v < w->n_units; v++) {
        if (!w->reducing[v] || !same_slot(w, w->uses[k].unit, v)) continue;
        flush(w, w->uses[k].op);
        settle_reduction(w, v);
    }
}

static void after_write(walk *w, int k) {
    const use *x = &w->uses[k];
    if (w->last_grad[x->unit] != k) return;
    flush(w, x->op + 1);
    step_append(w->a, w->out,
                (step_entry){.action = STEP_REDUCE,
                             .micro_batch = w->micro_batch,
                             .unit = x->unit,
                             .add = w->grads_in_slots && w->micro_batch > 0,
                             .last = w->last});
    w->reducing[x->unit] = true;
}

/* ---- passes ---- */

/* Uses of one op are looked at together: what they wait for comes before it, what they complete
 * after it. */
static int visit_op(walk *w, int k, bool reduces) {
    int op = w->uses[k].op, end = k;
    for (; end < w->n_uses && w->uses[end].op == op; end++) {
        if (w->uses[end].grad && reduces) before_write(w, end);
        if (!w->uses[end].grad) before_read(w, end);
    }
    for (int i = k; i < end; i++)
        if (w->uses[i].grad && reduces) after_write(w, i);
    return end;
}

static void end_forward(walk *w) {
    flush(w, w->n_forward);
    append(w, STEP_LOSS, 0);
}

void walk_pass(walk *w, int micro_batch, bool reduces, bool last) {
    w->micro_batch = micro_batch;
    w->from = 0;
    w->last = last;
    append(w, STEP_FILL, 0);
    bool in_forward = true;
    for (int k = 0; k < w->n_uses;) {
        if (in_forward && w->uses[k].op >= w->n_forward) {
            end_forward(w);
            in_forward = false;
        }
        k = visit_op(w, k, reduces);
    }
    if (in_forward) end_forward(w);
    flush(w, w->n_ops);
}

void walk_settle(walk *w) {
    for (int u = 0; u < w->n_units; u++) {
        settle_reduction(w, u);
        if (!w->gathering[u]) continue;
        append(w, STEP_GATHERED, u);
        w->gathering[u] = false;
    }
}
