/* The order of micro-batches and chunks in a step (see step.h). Reading order: step_build; build_groups, of a rank that has all
 * chunks, and build_stage. */
#include "step/step.h"

#include "step/pipeline.h"
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

/* ---- a stage of a pipeline ---- */

static void append_transfer(arena *a, step_table *t, const pipeline *p, const pipeline_event *e) {
    static const step_action action[] = {[PIPELINE_RECEIVE] = STEP_RECEIVE,
                                         [PIPELINE_TAKE] = STEP_RECEIVED,
                                         [PIPELINE_SEND] = STEP_SEND};
    bool sends = e->action == PIPELINE_SEND;
    const char *what = arena_printf(a, "%s of micro-batch %d, chunk %d to %d",
                                    e->back ? "gradients" : "activations", e->micro_batch,
                                    sends ? e->chunk : e->other, sends ? e->other : e->chunk);
    step_append(a, t,
                (step_entry){.action = action[e->action],
                             .chunk = e->chunk,
                             .micro_batch = e->micro_batch,
                             .frame = pipeline_frame(p, e->chunk, e->micro_batch),
                             .back = e->back,
                             .stage = e->stage,
                             .box = e->box,
                             .what = what});
}

/* The last entry that began such a transfer, of the same inputs or outputs; -1: none did. */
static int find_begun(const step_table *t, const pipeline *p, step_action action,
                      const step_entry *like) {
    int ports = pipeline_ports(p, like->chunk);
    for (int i = t->n - 1; i >= 0; i--) {
        const step_entry *e = &t->entry[i];
        if (e->action == action && e->chunk == like->chunk && e->back == like->back &&
            e->frame % ports == like->frame % ports)
            return i;
    }
    return -1;
}

/* What comes now, or what a pass gives, lies where something may still be sent from: activations, of which this is the gradient, or
 * the gradient of the micro-batch that had the pass's outputs before. */
static void wait_until_sent(arena *a, step_table *t, const pipeline *p, step_entry pass) {
    pass.begun = find_begun(t, p, STEP_SEND, &pass);
    if (pass.begun < 0) return;
    pass.action = STEP_SENT;
    pass.what = t->entry[pass.begun].what;
    step_append(a, t, pass);
}

/* A pass of a chunk of this stage. */
static void build_pass(arena *a, walk *w, step_table *t, const step_parts *s,
                       const pipeline_event *e) {
    int frame = pipeline_frame(s->pipe, e->chunk, e->micro_batch);
    bool last = e->micro_batch == s->micro_batches - 1;
    if (e->weights) {
        walk_weights(w, e->chunk, e->micro_batch, frame, last);
        return;
    }
    if (e->back) {
        wait_until_sent(a, t, s->pipe,
                        (step_entry){.chunk = e->chunk, .frame = frame, .back = true});
        walk_backward(w, e->chunk, e->micro_batch, frame, last);
    } else
        walk_forward(w, e->chunk, e->micro_batch, frame);
}

static void build_stage(arena *a, walk *w, step_table *t, const step_parts *s) {
    const pipeline *p = s->pipe;
    CHECK(s->looks == 0 && !s->counts_first, "other models and counts are of a whole model");
    for (int i = 0; i < p->n; i++) {
        const pipeline_event *e = &p->event[i];
        if (e->action == PIPELINE_PASS) {
            build_pass(a, w, t, s, e);
            continue;
        }
        if (e->action == PIPELINE_TAKE && e->back)
            wait_until_sent(a, t, p,
                            (step_entry){.chunk = e->chunk,
                                         .frame = pipeline_frame(p, e->chunk, e->micro_batch)});
        append_transfer(a, t, p, e);
        step_entry *last = &t->entry[t->n - 1];
        if (last->action == STEP_RECEIVED) last->begun = find_begun(t, p, STEP_RECEIVE, last);
    }
    for (int c = 0; c < p->chunks; c++)
        if (p->frames[c] > t->frames_in_flight) t->frames_in_flight = p->frames[c];
}

static void build_groups(arena *a, walk *w, step_table *t, const step_parts *s) {
    step_entry counted = {.action = STEP_COUNTED};
    bool apart = counts_apart(s);
    walk_take_tallies(w, s->tallies && !apart);
    if (apart) count_step(w, s);
    if (apart) step_append(a, t, counted);
    for (int m = 0; m < s->micro_batches; m += s->frames) {
        int end = m + s->frames;
        group g = {.first = m, .end = end < s->micro_batches ? end : s->micro_batches};
        g.last = g.end == s->micro_batches;
        forward(w, s, &g);
        if (s->counts_first && !apart) step_append(a, t, counted);
        backward(w, s, &g);
    }
    t->frames_in_flight = count_in_flight(t, s);
}

step_table step_build(arena *a, const step_parts *s) {
    step_table t = {.micro_batches = s->micro_batches};
    walk *w = walk_new(a, s, &t);
    walk_take_tallies(w, s->tallies);
    if (s->fetches) step_append(a, &t, (step_entry){.action = STEP_FETCH});
    if (s->pipe)
        build_stage(a, w, &t, s);
    else
        build_groups(a, w, &t, s);
    walk_settle(w);
    if (s->tallies && !s->counts_first) step_append(a, &t, (step_entry){.action = STEP_COUNTED});
    if (s->tied >= 0) step_append(a, &t, (step_entry){.action = STEP_TIED, .unit = s->tied});
    step_append(a, &t, (step_entry){.action = STEP_OPTIMIZER});
    return t;
}

const prog *step_prog_of(const step_parts *parts, const step_entry *e) {
    return e->model ? parts->look[e->model - 1] : parts->chunk[e->chunk];
}

step_table step_build_pass(arena *a, const param_store *s, const prog *p) {
    step_table t = {.micro_batches = 1, .frames_in_flight = 1};
    step_parts parts = {
        .store = s, .chunk = &p, .chunks = 1, .micro_batches = 1, .frames = 1, .tied = -1};
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
        int block = prog_op_block(p, i);
        if (block < 0) continue;
        if (low < 0 || block < low) low = block;
        if (block > high) high = block;
    }
    if (low < high) return arena_printf(a, "layers %d to %d", low, high);
    if (low >= 0) return arena_printf(a, "layer %d", low);
    const char *name = prog_get_op(p, first).name;
    return *name ? name : "what is outside of the layers";
}

/* `p`: its program; NULL: none is of this entry. */
static const char *name_entry(arena *a, const step_entry *t, const prog *p) {
    const char *what;
    switch (t->action) {
        case STEP_FILL: what = "the inputs"; break;
        case STEP_FORWARD:
            what = t->model ? "forward of another model"
                            : arena_printf(a, "forward of %s", name_ops(a, p, t->first, t->end));
            break;
        case STEP_BACKWARD:
            what = arena_printf(a, "%s of %s",
                                t->first < prog_get_stats(p)->ops_back ? "backward"
                                                                       : "weight gradients",
                                name_ops(a, p, t->first, t->end));
            break;
        case STEP_PASS_ON:
        case STEP_PASS_BACK: what = "what chunks of layers pass on"; break;
        case STEP_SENT:
        case STEP_RECEIVED: return t->what;
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
