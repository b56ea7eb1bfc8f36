/* Ops that are collectives: the call of comm that each makes. Kernels make it, plans count it. */
#ifndef OP_COLLECTIVE_H
#define OP_COLLECTIVE_H

#include "op/op.h"

typedef struct op_collective {
    mesh_axis axis;
    comm_call call; /* without data; kind COMM_KINDS: the op makes none in this direction */
} op_collective;

/* Call number i of a kernel, from 0 on; kind COMM_KINDS: it makes no more. in: shapes and dtypes of the forward's inputs,
 * in both directions. */
op_collective op_collective_of(op_kind kind, bool forward, const op_attr *attr, const tensor *in,
                               int i);
/* Makes the only call of c->kind, from `from` to `to`. */
void op_collect(const op_call *c, bool forward, const tensor *in, const void *from, void *to);

/* Makes a call of a kernel that makes several, of arrays where those of c lie. */
void op_exchange(const op_call *c, mesh_axis axis, const comm_call *call);
/* Begins one, over ranks along an axis: on the side stream of comm. But in a pipeline it is made at
 * once, since stages have transfers there that wait for other stages. */
comm_ticket op_start(const op_call *c, mesh_axis axis, const comm_call *call);
void op_await(const op_call *c, comm_ticket t);

/* Pieces of a hop, so that all hops together have about attr.async.pieces. */
static inline int op_hop_pieces(const op_async *a) {
    int hops = a->ranks - 1;
    return hops >= a->pieces || hops == 0 ? 1 : a->pieces / hops;
}

/* GATHER_COLS: columns that each rank sends: as many as the widest part has. A narrower part is
 * sent with padding. */
static inline int64_t op_piece_cols(const op_attr *attr) {
    return (attr->comm.cols + attr->comm.ranks - 1) / attr->comm.ranks;
}

#endif
