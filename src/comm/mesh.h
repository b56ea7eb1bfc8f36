/* The mesh: every rank has a place on each of several named axes. For each axis it has a comm of
 * the ranks along it: those whose places on all other axes are the same.
 *
 * An axis is one way of sharing the work. Ranks along tp hold parts of the same layers, along pp
 * different layers, along cp parts of the same sequences, and along dp they see other samples. With
 * 8 ranks, dp 4 and tp 2, rank 5 is the tensor-parallel partner of rank 4 (MESH_TP: 4, 5) and sums
 * its gradients with the ranks that hold the same parts (MESH_DATA: 1, 3, 5, 7).
 *
 * dp and cp together are the ranks that see other tokens (MESH_DATA). To weights it is all the same
 * whether these are of other samples: gradients are summed over both, and ZeRO shares over both.
 *
 * rank = ((pp * dp + d) * cp + c) * tp + t: tensor-parallel ranks, which talk most, are neighbours,
 * pipeline stages, which talk least, are farthest apart (as in Megatron-LM). The data axis is
 * divided once more: d = replicate * dp_shard + s. The dp_shard * cp ranks along MESH_SHARD are one
 * replica: together they hold one copy of what ZeRO shares, each a shard. The ranks along
 * MESH_REPLICATE hold the same shard, one in each replica.
 *
 * The ranks of a replica are divided among experts: parallel.ep neighbours along MESH_SHARD (MESH_EP)
 * hold different experts of each layer, and exchange the rows of tokens that picked them. The ranks that hold
 * the same experts are every ep-th along MESH_SHARD (MESH_EP_SHARD) and along MESH_DATA (MESH_EP_DATA):
 * the gradients of experts are summed over these, and ZeRO shares experts over those. With 8 ranks and ep 2 rank 5
 * exchanges with rank 4, and sums the gradients of its experts with ranks 1, 3 and 7.
 *
 * The session resolves the shape of a config with mesh_resolve and opens the mesh once over its
 * world; plans only place a rank, as they have no peers. */
#ifndef COMM_MESH_H
#define COMM_MESH_H

#include "comm/comm.h"

typedef enum mesh_axis {
    MESH_WORLD,     /* all ranks */
    MESH_DP,        /* ranks that see other samples */
    MESH_DATA,      /* ranks that see other tokens: dp * cp of them */
    MESH_SHARD,     /* of those, the ranks that share one ZeRO state */
    MESH_REPLICATE, /* of those, the ranks that hold the same shard */
    MESH_TP,
    MESH_CP,
    MESH_PP,
    MESH_EP,       /* ranks that hold different experts of each layer */
    MESH_EP_SHARD, /* of MESH_SHARD, the ranks that hold the same experts */
    MESH_EP_DATA,  /* the same of MESH_DATA */
    MESH_AXES
} mesh_axis;

/* Sizes. dp 0: all ranks / (tp * cp * pp). dp_replicate is a factor of dp. ep is a factor of dp / dp_replicate * cp;
 * 0: 1. */
typedef struct mesh_shape {
    int dp, dp_replicate, tp, cp, pp, ep;
} mesh_shape;

typedef struct mesh {
    comm_world *world;
    mesh_shape shape; /* with dp filled in */
    comm *axis[MESH_AXES];
    int rank[MESH_AXES], size[MESH_AXES];
} mesh;

/* Fills in dp. ST_USAGE: the sizes do not multiply to `ranks`; the error names the key and the
 * nearest shape. */
status mesh_resolve(mesh_shape *shape, int ranks, err *e) ATH_MUST_USE;
/* Ranks along an axis are rank = base + i * stride, i in [0, size). */
typedef struct mesh_line {
    int size, stride;
} mesh_line;
mesh_line mesh_line_of(const mesh_shape *resolved, mesh_axis axis);
/* The places of `rank`, without comms (NULL). For plans, which have no other ranks. */
void mesh_place(mesh *m, const mesh_shape *resolved, int rank);
/* The same with comms over the world. */
void mesh_open(mesh *m, const mesh_shape *resolved, comm_world *w);

#endif
