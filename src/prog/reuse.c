/* How long ago an op's operands were touched last, in bytes that ops have moved since: what a cache of
 * that size has lost again (LRU stack distance; Mattson et al. 1970, here without counting each byte once). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prog/graph_int.h"

typedef struct reuse_walk {
    const graph *g;
    double moved;  /* by all ops so far */
    double replay; /* `moved` at the beginning of this replay */
    double *last;  /* of each buffer: `moved` at the end of the op that touched it; -1: none yet */
    /* of the op at hand: the buffers that it touches, and how long ago that happened last */
    int32_t buf[OP_MAX_TOUCHES];
    prog_touch noted[OP_MAX_TOUCHES];
    int bufs, touches;
} reuse_walk;

/* most: bytes of it at most. */
static void touch(reuse_walk *w, val v, bool counts, double most) {
    if (v == VAL_NONE) return;
    const value *x = &w->g->value[v];
    double last = w->last[x->buf];
    w->buf[w->bufs++] = x->buf;
    if (!counts || last < 0) return;
    double bytes = (double)x->t.rows * (double)dtype_span_bytes(x->t.dt, x->t.cols);
    prog_touch t = {.bytes = bytes < most ? bytes : most, .since = w->moved - last};
    t.before = last <= w->replay;
    w->noted[w->touches++] = t;
}

/* Results in a frame lie where others have just been. */
static bool is_kept(const graph *g, val v) {
    if (v == VAL_NONE) return false;
    space where = g->buf[g->value[v].buf].where;
    return where != SPACE_FRAME && where != SPACE_SCRATCH;
}

/* Of a table, only the rows that are looked up, or whose gradients are added to. */
static double most_of(double moved, const op_rec *r, int k, bool gradient) {
    bool rows = op_classes[r->kind].looked_up >> k & 1 && (!gradient || r->acc >> k & 1);
    return rows ? moved : INFINITY;
}

static void walk_op(reuse_walk *w, const op_rec *r) {
    double moved = graph_op_bytes(w->g, r);
    w->bufs = w->touches = 0;
    for (int k = 0; k < OP_MAX_IN; k++) touch(w, r->in[k], true, most_of(moved, r, k, false));
    for (int k = 0; k < OP_MAX_OUT; k++) touch(w, r->out[k], r->entry != ENTRY_FWD, INFINITY);
    for (int k = 0; k < OP_MAX_OUT; k++) touch(w, r->dout[k], true, INFINITY);
    for (int k = 0; k < OP_MAX_IN; k++)
        touch(w, r->din[k], is_kept(w->g, r->din[k]), most_of(moved, r, k, true));
    w->moved += moved;
    for (int i = 0; i < w->bufs; i++) w->last[w->buf[i]] = w->moved;
}

/* The second of two replays, one behind the other, tells. */
void graph_find_reuse(graph *g) {
    reuse_walk w = {.g = g, .last = xcalloc((size_t)g->n_bufs + 1, sizeof(double))};
    for (int32_t b = 0; b < g->n_bufs; b++) w.last[b] = -1;
    for (int32_t i = 0; i < g->n_ops; i++) walk_op(&w, &g->op[i]);
    w.replay = w.moved;
    for (int32_t i = 0; i < g->n_ops; i++) {
        op_rec *r = &g->op[i];
        walk_op(&w, r);
        r->touch = ARENA_ARRAY(g->a, prog_touch, w.touches);
        r->touches = w.touches;
        memcpy(r->touch, w.noted, (size_t)w.touches * sizeof *r->touch);
    }
    free(w.last);
}
