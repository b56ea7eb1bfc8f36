/* Where units of parameters are gathered and reduced (see step.h).
 *
 * The walk notes which unit each slot holds at every op. A unit that is in no slot when an op reads
 * it is gathered. Then the next unit is gathered ahead, unless ops still have to read the unit in
 * its slot. Gradients are reduced when the last op of the micro-batch, or of the step, has added to them. An
 * op that writes gradients to a slot waits until those of the slot's last unit are reduced. */
#include "step/walk.h"

#include <string.h>

#include "step/pipeline.h"

typedef struct use {
    int op, unit;
    bool grad;
} use;

/* The uses of one chunk's program, by op. */
typedef struct chunk_uses {
    use *item;
    int n, cap, n_forward,
        n_back; /* of them in the forward; before weight gradients that run later */
    int ops, ops_forward, ops_back;
} chunk_uses;

/* A use of one of the chunks. */
typedef struct use_ref {
    int chunk, use; /* chunk -1: none */
} use_ref;

struct walk {
    arena *a;
    const step_parts *parts;
    const param_store *s;
    step_table *out;
    int n_units;
    bool grads_in_slots;
    chunk_uses *chunk;
    use_ref *last_grad; /* [units] what completes a micro-batch's gradient */
    int *holder;        /* [units] unit that the unit's slot holds; -1: none */
    bool *gathering;    /* [units] */
    bool *reducing;     /* [units] */
    bool *writing;      /* [units] gradients that share a slot in turn, begun and not complete */
    /* of the pass */
    step_entry at;         /* its chunk, micro-batch and frame */
    const chunk_uses *now; /* its uses */
    int ahead;             /* the first use that is too far ahead to be gathered for */
    int from;              /* first op that no entry runs yet */
    bool last, in_forward, tallies;
};

void step_append(arena *a, step_table *t, step_entry e) {
    t->entry = arena_grow(a, t->entry, t->n, &t->cap, sizeof *t->entry);
    t->entry[t->n++] = e;
}

typedef struct noting {
    walk *w;
    chunk_uses *list;
} noting;

static void note_use(void *ctx, int op, int unit, bool grad) {
    noting *n = ctx;
    chunk_uses *l = n->list;
    l->item = arena_grow(n->w->a, l->item, l->n, &l->cap, sizeof *l->item);
    l->item[l->n++] = (use){op, unit, grad};
    l->n_forward += op < l->ops_forward;
    l->n_back += op < l->ops_back;
}

static void list_uses(walk *w, int chunk) {
    if (!w->parts->chunk[chunk]) return; /* another stage has it */
    const prog_stats *st = prog_get_stats(w->parts->chunk[chunk]);
    chunk_uses *l = &w->chunk[chunk];
    *l = (chunk_uses){.ops = st->ops, .ops_forward = st->ops_forward, .ops_back = st->ops_back};
    noting n = {w, l};
    prog_visit_units(w->parts->chunk[chunk], note_use, &n);
}

static void find_last_grads(walk *w, int chunk, int first, int end) {
    for (int k = first; k < end; k++)
        if (w->chunk[chunk].item[k].grad)
            w->last_grad[w->chunk[chunk].item[k].unit] = (use_ref){chunk, k};
}

/* In the order in which the last micro-batch goes through the chunks. */
static void find_all_last_grads(walk *w) {
    const pipeline *p = w->parts->pipe;
    int chunks = w->parts->chunks;
    for (int c = 0; !p && c < chunks; c++) find_last_grads(w, c, 0, w->chunk[c].n_forward);
    for (int c = chunks - 1; !p && c >= 0; c--)
        find_last_grads(w, c, w->chunk[c].n_forward, w->chunk[c].n);
    for (int i = 0; p && i < p->n; i++) {
        const pipeline_event *e = &p->event[i];
        const chunk_uses *u = &w->chunk[e->chunk];
        if (e->action != PIPELINE_PASS || e->micro_batch < w->parts->micro_batches - 1) continue;
        if (e->weights)
            find_last_grads(w, e->chunk, u->n_back, u->n);
        else if (e->back)
            find_last_grads(w, e->chunk, u->n_forward, u->n_back);
        else
            find_last_grads(w, e->chunk, 0, u->n_forward);
    }
}

walk *walk_new(arena *a, const step_parts *parts, step_table *out) {
    walk *w = ARENA_NEW(a, walk);
    int n = param_units(parts->store), chunks = parts->chunks;
    *w = (walk){.a = a,
                .parts = parts,
                .s = parts->store,
                .out = out,
                .n_units = n,
                .grads_in_slots = param_grads_in_slots(parts->store),
                .chunk = ARENA_ARRAY(a, chunk_uses, chunks),
                .last_grad = ARENA_ARRAY(a, use_ref, n),
                .holder = ARENA_ARRAY(a, int, n),
                .gathering = ARENA_ARRAY(a, bool, n),
                .reducing = ARENA_ARRAY(a, bool, n),
                .writing = ARENA_ARRAY(a, bool, n)};
    for (int u = 0; u < n; u++) w->holder[u] = w->last_grad[u].chunk = -1;
    for (int c = 0; c < chunks; c++) list_uses(w, c);
    find_all_last_grads(w);
    return w;
}

static bool same_slot(const walk *w, int u, int v) {
    return param_unit_at(w->s, u)->slot == param_unit_at(w->s, v)->slot;
}

/* ---- entries ---- */

static void append(walk *w, step_action action, int unit) {
    step_entry e = w->at;
    e.action = action;
    e.unit = unit;
    step_append(w->a, w->out, e);
}

/* Ops up to `end` that no entry runs yet. */
static void flush(walk *w, int end) {
    if (w->from == end) return;
    step_entry e = w->at;
    e.action = w->in_forward ? STEP_FORWARD : STEP_BACKWARD;
    e.first = w->from;
    e.end = end;
    step_append(w->a, w->out, e);
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
    const use *uses = w->now->item;
    for (int i = k + 1; i < w->ahead; i++) {
        int v = uses[i].unit;
        if (uses[i].grad || v == u || !moves(w, v) || w->holder[v] == v) continue;
        int holds = w->holder[v];
        if (same_slot(w, u, v)) return -1;
        for (int j = k; j < i; j++)
            if (!uses[j].grad && uses[j].unit == holds) return -1;
        return v;
    }
    return -1;
}

static void before_read(walk *w, int k) {
    int u = w->now->item[k].unit;
    if (!moves(w, u)) return;
    bool here = w->holder[u] == u, waits = here && w->gathering[u];
    if (here && !waits) {
        int next = next_to_gather(w, k, u);
        if (next < 0) return;
        flush(w, w->now->item[k].op);
        gather(w, next);
        return;
    }
    flush(w, w->now->item[k].op);
    if (!here) gather(w, u);
    append(w, STEP_GATHERED, u);
    w->gathering[u] = false;
    int next = next_to_gather(w, k, u);
    if (next >= 0) gather(w, next);
}

/* ---- gradients ---- */

/* A slot that another reduction still reads is not written. What another unit has begun there would be lost: units are
 * cut so that each is complete before the next one of its slot (begins_unit). */
static void before_write(walk *w, int k) {
    int u = w->now->item[k].unit;
    if (!w->grads_in_slots) return;
    w->writing[u] = param_grads_leave(w->s, u);
    for (int v = 0; v < w->n_units; v++) {
        if (!same_slot(w, u, v)) continue;
        CHECK(v == u || !w->writing[v], "units %d and %d are in one slot at a time", u, v);
        if (!w->reducing[v]) continue;
        flush(w, w->now->item[k].op);
        settle_reduction(w, v);
    }
}

static void after_write(walk *w, int k) {
    const use *x = &w->now->item[k];
    use_ref last = w->last_grad[x->unit];
    bool leaves = param_grads_leave(w->s, x->unit);
    if (last.chunk != w->at.chunk || last.use != k || !(leaves || w->last)) return;
    flush(w, x->op + 1);
    step_entry e = w->at;
    e.action = STEP_REDUCE;
    e.unit = x->unit;
    e.add = leaves && w->at.micro_batch > 0;
    e.last = w->last;
    step_append(w->a, w->out, e);
    w->reducing[x->unit] = true;
    w->writing[x->unit] = false;
}

/* ---- passes ---- */

/* Uses of one op are looked at together: what they wait for comes before it, what they complete
 * after it. */
static int visit_op(walk *w, int k, int most, bool reduces) {
    const use *uses = w->now->item;
    int op = uses[k].op, end = k;
    for (; end < most && uses[end].op == op; end++) {
        if (uses[end].grad && reduces) before_write(w, end);
        if (!uses[end].grad) before_read(w, end);
    }
    for (int i = k; i < end; i++)
        if (uses[i].grad && reduces) after_write(w, i);
    return end;
}

/* What the pass under way takes from the chunk before it, or gives it back, where that is on this rank, too. */
static void pass_between(walk *w, step_action action) {
    const pipeline *p = w->parts->pipe;
    step_entry e = w->at;
    e.action = action;
    e.next_frame = e.frame;
    if (e.chunk-- == 0 || !w->parts->chunk[e.chunk]) return;
    if (p) e.frame = pipeline_frame(p, e.chunk, e.micro_batch);
    step_append(w->a, w->out, e);
}

static bool is_alone(const walk *w) {
    return w->parts->chunks == 1 && w->parts->frames == 1;
}

static void begin_pass(walk *w, int chunk, int micro_batch, int frame) {
    w->at = (step_entry){.chunk = chunk, .micro_batch = micro_batch, .frame = frame};
    w->now = &w->chunk[chunk];
}

static void visit(walk *w, int first, int end, bool reduces) {
    for (int k = first; k < end;) k = visit_op(w, k, end, reduces);
}

/* Whether gradients of a micro-batch may be summed over ranks: those that leave their slots after each, else those of
 * the step's last one. */
static bool reduces(const walk *w, bool last) {
    return w->parts->reduces && (last || w->grads_in_slots);
}

/* A backward that follows at once is looked ahead into. */
void walk_forward(walk *w, int chunk, int micro_batch, int frame) {
    bool last = micro_batch == w->parts->micro_batches - 1;
    begin_pass(w, chunk, micro_batch, frame);
    w->in_forward = true;
    w->last = last;
    w->from = 0;
    w->ahead = is_alone(w) ? w->now->n : w->now->n_forward;
    pass_between(w, STEP_PASS_ON);
    append(w, STEP_FILL, 0);
    visit(w, 0, w->now->n_forward, reduces(w, last));
    flush(w, w->now->ops_forward);
    if (w->tallies) append(w, STEP_TALLY, 0);
    if (chunk == w->parts->chunks - 1) append(w, STEP_LOSS, 0);
}

void walk_take_tallies(walk *w, bool takes) {
    w->tallies = takes;
}

/* The first use of the forward that writes a gradient; n_forward: there is none. */
static int first_gradient(const chunk_uses *u) {
    int k = 0;
    while (k < u->n_forward && !u->item[k].grad) k++;
    return k;
}

void walk_count(walk *w, int chunk, int micro_batch) {
    begin_pass(w, chunk, micro_batch, 0);
    int k = first_gradient(w->now);
    int end = k < w->now->n_forward ? w->now->item[k].op : w->now->ops_forward;
    while (k > 0 && w->now->item[k - 1].op >= end) k--; /* what that op reads */
    w->in_forward = w->at.counting = true;
    w->last = false;
    w->from = 0;
    w->ahead = k;
    pass_between(w, STEP_PASS_ON);
    append(w, STEP_FILL, 0);
    visit(w, 0, k, false);
    flush(w, end);
    append(w, STEP_TALLY, 0);
}

/* Uses first .. end - 1 of ops from .. end_op - 1, which are behind the forward. */
static void go_back(walk *w, int from, int end_op, int first, int end, bool last) {
    w->in_forward = false;
    w->last = last;
    w->from = from;
    w->ahead = end;
    visit(w, first, end, reduces(w, last));
    flush(w, end_op);
}

void walk_backward(walk *w, int chunk, int micro_batch, int frame, bool last) {
    begin_pass(w, chunk, micro_batch, frame);
    const chunk_uses *u = w->now;
    go_back(w, u->ops_forward, u->ops_back, u->n_forward, u->n_back, last);
    pass_between(w, STEP_PASS_BACK);
}

void walk_weights(walk *w, int chunk, int micro_batch, int frame, bool last) {
    begin_pass(w, chunk, micro_batch, frame);
    const chunk_uses *u = w->now;
    go_back(w, u->ops_back, u->ops, u->n_back, u->n, last);
}

void walk_look(walk *w, int look, int micro_batch) {
    step_entry e = {.action = STEP_FILL, .model = 1 + look, .micro_batch = micro_batch};
    step_append(w->a, w->out, e);
    e.action = STEP_FORWARD;
    e.end = prog_get_stats(w->parts->look[look])->ops;
    step_append(w->a, w->out, e);
}

void walk_settle(walk *w) {
    for (int u = 0; u < w->n_units; u++) {
        settle_reduction(w, u);
        if (!w->gathering[u]) continue;
        append(w, STEP_GATHERED, u);
        w->gathering[u] = false;
    }
}
