#include "plan/clock/op_time.h"

#include "op/collective.h"
#include "plan/clock/network.h"
#include "plan/clock/roofline.h"

/* Seconds of the op's collective number i; below 0: it has no more. */
static double call_seconds(const cluster *c, const mesh_shape *shape, const prog_op *op, int i) {
    op_collective k = op_collective_of(op->kind, op->entry == ENTRY_FWD, op->attr, op->in, i);
    if (k.call.kind == COMM_KINDS) return -1;
    network_group g = network_group_of(c, shape, k.axis);
    return network_seconds(c, g, k.call.kind, (double)comm_call_sends(&k.call, 0, g.ranks));
}

/* Two streams: kernels, and transfers one behind the other. */
typedef struct streams {
    double contention, now, side;
    op_time t;
} streams;

static double begin(streams *s, double d) {
    s->side = (s->side > s->now ? s->side : s->now) + d;
    s->t.beside += d;
    return s->side;
}

static void await(streams *s, double when) {
    if (when <= s->now) return;
    s->t.exposed += when - s->now;
    s->now = when;
}

static void work(streams *s, double d) {
    double all = op_time_beside(d, s->side - s->now, s->contention);
    s->now += all;
    s->t.kernels += all;
}

double op_time_beside(double d, double beside, double contention) {
    double share = 1 - contention, room = beside > 0 ? beside * share : 0;
    double slow = d < room ? d : room;
    return d - slow + slow / share;
}

/* The hops as op/ref/ring.c makes them. keys, sums: seconds of a transfer of keys and values, and of their gradients. */
static op_time ring_time(const cluster *c, int ranks, double kernel, double keys, double sums,
                         bool backward) {
    streams s = {.contention = c->contention};
    double sums_come = 0;
    for (int hop = 0; hop < ranks; hop++) {
        double next = hop + 1 < ranks ? begin(&s, keys) : 0;
        work(&s, kernel / ranks);
        await(&s, sums_come);
        await(&s, next);
        if (backward) sums_come = begin(&s, sums);
    }
    await(&s, sums_come);
    return s.t;
}

/* The rounds as op/ref/expert_ranks.c makes them: the loads of all ranks, then rows (in the backward with the gradients of their
 * results) and results, in three sets of buffers. */
static op_time expert_time(const cluster *c, const mesh_shape *shape, const prog_op *op,
                           double kernel) {
    bool forward = op->entry == ENTRY_FWD;
    int come = forward ? 1 : 2, each = come + 1, calls = forward;
    double all = 0, d, gone[2] = {0, 0};
    for (; (d = call_seconds(c, shape, op, calls)) >= 0; calls += each) all += d;
    int rounds = (calls - forward) / each;
    streams s = {.contention = c->contention};
    if (forward) s.t.among = call_seconds(c, shape, op, 0);
    double came = begin(&s, come * call_seconds(c, shape, op, forward));
    for (int i = 0; i < rounds; i++) {
        int next = forward + (i + 1) * each;
        d = call_seconds(c, shape, op, next - each);
        await(&s, came);
        await(&s, gone[i % 2]); /* of two rounds before */
        if (i + 1 < rounds) came = begin(&s, come * call_seconds(c, shape, op, next));
        work(&s, all > 0 ? kernel * d / all : kernel / rounds);
        gone[i % 2] = begin(&s, d);
    }
    await(&s, s.side);
    return s.t;
}

op_time op_time_of(const cluster *c, const mesh_shape *shape, const prog_op *op,
                   double update_bytes) {
    op_time t = {.kernels = roofline_seconds(c, op, update_bytes)};
    if (!shape) return t;
    bool backward = op->entry != ENTRY_FWD;
    int hops = shape->cp - 1;
    if (op->kind == OP_RING_ATTENTION && hops > 0 && shape->pp == 1)
        return ring_time(c, shape->cp, t.kernels, call_seconds(c, shape, op, 0),
                         backward ? call_seconds(c, shape, op, hops) : 0, backward);
    if (op->kind == OP_EXPERT_RANKS && shape->pp == 1) return expert_time(c, shape, op, t.kernels);
    for (int i = 0;; i++) {
        double d = call_seconds(c, shape, op, i);
        if (d < 0) return t;
        t.among += d;
    }
}
