/* Attention to keys and values that go round (Liu et al. 2023, "Ring Attention"), a hop at a time: the
 * kernel of ATTENTION works on those at hand while the next ones travel. This file has the walk over the hops; what
 * computes is the kernel of ATTENTION, and four steps that host and devices have of their own.
 *
 * Forward: hop h gives o_h and lse_h of its keys alone. lse = log(exp(lse) + exp(lse_h)), and o is the
 * mean of both outputs with the weights exp(lse - new lse), in f32 (f64 in f64 programs). In programs of 16 bits each o_h is
 * rounded as ATTENTION rounds it, and the mean once more at the end; dq is rounded after each hop. A sink is a score of hop 0 only.
 *
 * Backward: with the lse and o of all keys, the kernel of ATTENTION gives for each hop what its keys
 * contribute to dq, and their dk and dv from this rank's queries. The sums of dk | dv travel behind the
 * keys, one hop later, and come home after `ranks` hops. Sums run in the order of the hops.
 *
 * FLOPs: those of ATTENTION. What is sent: collective.c. */
#ifndef OP_RING_H
#define OP_RING_H

#include "op/op.h"

typedef struct ring_steps ring_steps;

/* One kernel call, and how its workspace is divided. STORE and REAL as in op/ref/ref.h. */
typedef struct ring {
    const op_call *c;
    const ring_steps *steps;
    const op_impl *attention;
    int ranks;
    int64_t N, Wk, W; /* rows of a rank; columns of keys, and of keys and values */
    dtype real;
    void *kv[2];   /* STORE [N,W] at hand, and coming */
    void *part;    /* STORE: o_h [N,H*Dv]; dk | dv of a hop [N,W] */
    void *sum[2];  /* REAL: o [N,H*Dv]; dk | dv so far [N,W], at hand and coming */
    void *lse;     /* REAL: lse_h [B*H,Tq] */
    void *ws;      /* of the kernel of ATTENTION */
    int64_t bytes; /* of all but ws */
} ring;

struct ring_steps {
    const op_impl *(*find)(const dev *d, dtype dt); /* the kernel of ATTENTION */
    void (*run)(op_fn fn, const op_call *attention);
    void (*take)(const ring *r); /* own k | v to kv[0] */
    void (*join)(const ring *r,
                 int hop); /* part and lse to sum[0] and out 1; the last hop's sum to out 0, too */
    void (*add)(const ring *r, int hop); /* part to sum[hop % 2], which is new in hop 0 */
    void (*give)(const ring *r, int input,
                 int64_t first); /* sum[ranks % 2] from that column on becomes the gradient */
};

void ring_forward(const op_call *c, const ring_steps *steps);
void ring_backward(const op_call *c, const ring_steps *steps);
void ring_workspace(const op_infer *io, const ring_steps *steps, int64_t ws[3]);

#endif
