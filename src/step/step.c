/* The order of micro-batches and chunks in a step (see step.h). */
#include "step/step.h"

#include "step/walk.h"

/* One group of micro-batches, which are under way together. */
typedef struct group {
    int first, end;
    bool last; /* of the step */
} group;

static void forward(walk *w, const step_parts *s, const group *g) {
    for (int m = g->first; m < g->end; m++) {
        for (int k = 0; k < s->looks; k++) walk_look(w, k, m);
        for (int c = 0; c < s->chunks; c++) walk_forward(w, c, m, m - g->first);
    }
}

static void backward(walk *w, const step_parts *s, const group *g) {
    for (int m = g->first; m < g->end; m++) {
        bool last = g->last && m == g->end - 1;
        for (int c = s->chunks - 1; c >= 0; c--) walk_backward(w, c, m, m - g->first, last);
    }
}

/* Most micro-batches that have been forward through the first chunk and not yet back. */
static int count_in_flight(const step_table *t, const step_parts *s) {
    int now = 0, most = 0, ops = prog_get_stats(s->chunk[0])->ops;
    for (int i = 0; i < t->n; i++) {
        const step_entry *e = &t->entry[i];
        if (e->model || e->chunk || e->counting) continue;
        now += e->action == STEP_FILL;
        now -= e->action == STEP_BACKWARD && e->end == ops;
        if (now > most) most = now;
    }
    return most;
}

/* Whether a pass of its own counts what routers do. */
static bool counts_apart(const step_parts *s) {
    return s->counts_first && s->micro_batches > s->frames;
}

static void count_step(walk *w, const step_parts *s) {
    for (int m = 0; m < s->micro_batches; m++)
        for (int c = 0; c < s->chunks; c++) walk_count(w, c, m);
}

step_table step_build(arena *a, const step_parts *s) {
    CHECK(s->frames == 1 || !param_grads_in_slots(s->store),
          "%d frames where gradients leave after every micro-batch", s->frames);
    step_table t = {.micro_batches = s->micro_batches};
    step_entry counted = {.action = STEP_COUNTED};
    bool apart = counts_apart(s);
    walk *w = walk_new(a, s, &t);
    walk_take_tallies(w, s->tallies && !apart);
    if (apart) count_step(w, s);
    if (apart) step_append(a, &t, counted);
    for (int m = 0; m < s->micro_batches; m += s->frames) {
        int end = m + s->frames;
        group g = {.first = m, .end = end < s->micro_batches ? end : s->micro_batches};
        g.last = g.end == s->micro_batches;
        forward(w, s, &g);
        if (s->counts_first && !apart) step_append(a, &t, counted);
        backward(w, s, &g);
    }
    walk_settle(w);
    if (s->tallies && !s->counts_first) step_append(a, &t, counted);
    step_append(a, &t, (step_entry){.action = STEP_OPTIMIZER});
    t.frames_in_flight = count_in_flight(&t, s);
    return t;
}

const prog *step_prog_of(const step_parts *parts, const step_entry *e) {
    return e->model ? parts->look[e->model - 1] : parts->chunk[e->chunk];
}

step_table step_build_pass(arena *a, const param_store *s, const prog *p) {
    step_table t = {.micro_batches = 1, .frames_in_flight = 1};
    step_parts parts = {.store = s, .chunk = &p, .chunks = 1, .micro_batches = 1, .frames = 1};
    walk *w = walk_new(a, &parts, &t);
    walk_forward(w, 0, 0, 0);
    walk_settle(w);
    return t;
}

/* ---- what reports call the entries in which a rank computes; transfers have names of their own ---- */

/* "layers 2 to 3", or what the first op outside of them is called. */
static const char *name_ops(arena *a, const prog *p, int first, int end) {
    int low = -1, high = -1;
    for (int i = first; i < end; i++) {
        int block = prog_get_op(p, i).block;
        if (block < 0) continue;
        if (low < 0 || block < low) low = block;
        if (block > high) high = block;
    }
    if (low < high) return arena_printf(a, "layers %d to %d", low, high);
    if (low >= 0) return arena_printf(a, "layer %d", low);
    const char *name = prog_get_op(p, first).name;
    return *name ? name : "what is outside of the layers";
}

static const char *name_entry(arena *a, const step_entry *t, const prog *p) {
    const char *what;
    switch (t->action) {
        case STEP_FILL: what = "the inputs"; break;
        case STEP_FORWARD:
            what = t->model ? "forward of another model"
                            : arena_printf(a, "forward of %s", name_ops(a, p, t->first, t->end));
            break;
        case STEP_BACKWARD:
            what = arena_printf(a, "backward of %s", name_ops(a, p, t->first, t->end));
            break;
        case STEP_PASS_ON:
        case STEP_PASS_BACK: what = "what chunks of layers pass on"; break;
        case STEP_TALLY:
        case STEP_COUNTED: what = "the load of experts"; break;
        case STEP_LOSS: what = "the loss"; break;
        case STEP_OPTIMIZER: return "the optimizer";
        default: return NULL;
    }
    return arena_printf(a, "%s, micro-batch %d,", what, t->micro_batch);
}

void step_name_entries(arena *a, step_table *t, const step_parts *parts) {
    for (int i = 0; i < t->n; i++) {
        step_entry *e = &t->entry[i];
        e->name = name_entry(a, e, step_prog_of(parts, e));
    }
}
