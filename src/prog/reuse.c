/* How long ago an op's operands were touched last, in bytes that ops have moved since: what a cache of that size has lost again
 * (LRU stack distance; Mattson et al. 1970). Bytes count each time they are moved, but together not more than there are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prog/graph_int.h"

/* The memory of a frame, or scratch, in parts: when each was touched last. */
enum { AREA_PARTS = 1 << 14 };
typedef struct area {
    int64_t part; /* bytes */
    double *last;
} area;

typedef struct reuse_walk {
    const graph *g;
    area frame, scratch;
    double moved;   /* by all ops so far */
    double outside; /* bytes that were touched outside of frame and scratch, each once */
    double most;    /* of all bytes that a replay touches */
    double replay;  /* `moved` at the beginning of this replay */
    double *last;   /* of each buffer: `moved` at the end of the op that touched it; -1: none yet */
    /* of the op at hand: the buffers that it touches, and how long ago that happened last */
    int32_t buf[OP_MAX_TOUCHES];
    prog_touch noted[OP_MAX_TOUCHES];
    int bufs, touches;
} reuse_walk;

static area *area_of(reuse_walk *w, const buffer *b) {
    return b->where == SPACE_FRAME ? &w->frame : b->where == SPACE_SCRATCH ? &w->scratch : NULL;
}

/* Where a result of this op begins to live: when the memory was touched last, on average. */
static double last_there(const area *m, const buffer *b) {
    int64_t from = b->offset / m->part, to = (b->offset + b->bytes - 1) / m->part;
    double sum = 0;
    for (int64_t i = from; i <= to; i++) sum += m->last[i];
    return sum / (double)(to - from + 1);
}

static void touch_area(const area *m, const buffer *b, double now) {
    int64_t from = b->offset / m->part, to = (b->offset + b->bytes - 1) / m->part;
    for (int64_t i = from; i <= to; i++) m->last[i] = now;
}

/* most: bytes of it at most. */
static void touch(reuse_walk *w, val v, int op, double most) {
    if (v == VAL_NONE) return;
    const value *x = &w->g->value[v];
    const buffer *b = &w->g->buf[x->buf];
    const area *m = area_of(w, b);
    double last = m && b->first == op && b->bytes > 0 ? last_there(m, b) : w->last[x->buf];
    w->buf[w->bufs++] = x->buf;
    double bytes = (double)x->t.rows * (double)dtype_span_bytes(x->t.dt, x->t.cols);
    prog_touch t = {.bytes = bytes < most ? bytes : most, .before = last <= w->replay};
    if (last < 0) {
        if (!m) w->outside += t.bytes;
        return;
    }
    double since =
        w->moved - last + t.bytes; /* its first byte was touched before all others of it */
    t.since = fmin(since, w->most);
    w->noted[w->touches++] = t;
}

/* Of a table, only the rows that are looked up, or whose gradients are added to. */
static double most_of(double moved, const op_rec *r, int k, bool gradient) {
    bool rows = op_classes[r->kind].looked_up >> k & 1 && (!gradient || r->acc >> k & 1);
    return rows ? moved : INFINITY;
}

static void walk_op(reuse_walk *w, int op) {
    const op_rec *r = &w->g->op[op];
    double moved = graph_op_bytes(w->g, r);
    w->bufs = w->touches = 0;
    for (int k = 0; k < OP_MAX_IN; k++) touch(w, r->in[k], op, most_of(moved, r, k, false));
    for (int k = 0; k < OP_MAX_OUT; k++) touch(w, r->out[k], op, INFINITY);
    for (int k = 0; k < OP_MAX_OUT; k++) touch(w, r->dout[k], op, INFINITY);
    for (int k = 0; k < OP_MAX_IN; k++) touch(w, r->din[k], op, most_of(moved, r, k, true));
    w->moved += moved;
    for (int i = 0; i < w->bufs; i++) {
        const buffer *b = &w->g->buf[w->buf[i]];
        const area *m = area_of(w, b);
        w->last[w->buf[i]] = w->moved;
        if (m && b->bytes > 0) touch_area(m, b, w->moved);
    }
}

static area new_area(int64_t bytes) {
    area m = {.part = bytes / AREA_PARTS + 64, .last = xcalloc(AREA_PARTS + 1, sizeof(double))};
    return m;
}

/* The second of two replays, one behind the other, tells. */
double graph_find_reuse(graph *g, int64_t frame_bytes, int64_t scratch_bytes) {
    reuse_walk w = {.g = g,
                    .most = INFINITY,
                    .frame = new_area(frame_bytes),
                    .scratch = new_area(scratch_bytes),
                    .last = xcalloc((size_t)g->n_bufs + 1, sizeof(double))};
    for (int32_t b = 0; b < g->n_bufs; b++) w.last[b] = -1;
    for (int32_t i = 0; i < g->n_ops; i++) walk_op(&w, i);
    w.replay = w.moved;
    w.most = (double)(frame_bytes + scratch_bytes) + w.outside;
    for (int32_t i = 0; i < g->n_ops; i++) {
        op_rec *r = &g->op[i];
        walk_op(&w, i);
        r->touch = ARENA_ARRAY(g->a, prog_touch, w.touches);
        r->touches = w.touches;
        memcpy(r->touch, w.noted, (size_t)w.touches * sizeof *r->touch);
    }
    free(w.frame.last);
    free(w.scratch.last);
    free(w.last);
    return w.outside;
}
