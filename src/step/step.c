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
        if (e->model || e->chunk) continue;
        now += e->action == STEP_FILL;
        now -= e->action == STEP_BACKWARD && e->end == ops;
        if (now > most) most = now;
    }
    return most;
}

step_table step_build(arena *a, const step_parts *s) {
    CHECK(s->frames == 1 || !param_grads_in_slots(s->store),
          "%d frames where gradients leave after every micro-batch", s->frames);
    step_table t = {.micro_batches = s->micro_batches};
    walk *w = walk_new(a, s, &t);
    for (int m = 0; m < s->micro_batches; m += s->frames) {
        int end = m + s->frames;
        group g = {.first = m, .end = end < s->micro_batches ? end : s->micro_batches};
        g.last = g.end == s->micro_batches;
        forward(w, s, &g);
        backward(w, s, &g);
    }
    walk_settle(w);
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
