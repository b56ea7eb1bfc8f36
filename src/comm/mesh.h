/* The mesh: every rank has a place on each of some named axes, and a comm with those ranks that
 * differ from it on that axis alone.
 *
 * An axis is one way of sharing the work. Ranks along tp hold parts of the same layers, along pp
 * different layers, along cp parts of the same sequences, and along dp they see other samples. With
 * 8 ranks, dp 4 and tp 2, rank 5 is the tensor-parallel partner of rank 4 (MESH_TP: 4, 5) and sums
 * its gradients with the ranks that hold the same parts (MESH_DP: 1, 3, 5, 7).
 *
 * rank = ((pp * dp + d) * cp + c) * tp + t: tensor-parallel ranks, which talk most, are neighbours,
 * pipeline stages, which talk least, are farthest apart (as in Megatron-LM). The data axis is
 * divided once more: d = replicate * dp_shard + shard. The ranks of one replica (MESH_SHARD) share
 * one ZeRO state out among them; those with the same shard of other replicas (MESH_REPLICATE) hold
 * copies of it.
 *
 * The session resolves the shape of a config with mesh_resolve and opens the mesh once over its
 * world; plans only place a rank, as they have no peers. */
#ifndef COMM_MESH_H
#define COMM_MESH_H

#include "comm/comm.h"

typedef enum mesh_axis {
    MESH_WORLD,     /* all ranks */
    MESH_DP,        /* ranks that see other samples */
    MESH_SHARD,     /* of those, the ranks that share one ZeRO state */
    MESH_REPLICATE, /* of those, the ranks that hold the same shard */
    MESH_TP,
    MESH_CP,
    MESH_PP,
    MESH_AXES
} mesh_axis;

/* Sizes; dp 0: what tp, cp and pp leave of the world. dp includes dp_replicate. */
typedef struct mesh_shape {
    int dp, dp_replicate, tp, cp, pp;
} mesh_shape;

typedef struct mesh {
    comm_world *world;
    mesh_shape shape; /* all known */
    comm *axis[MESH_AXES];
    int rank[MESH_AXES], size[MESH_AXES];
} mesh;

/* Fills dp; ST_USAGE, naming the key and the nearest shape, when the sizes do not make `ranks`. */
status mesh_resolve(mesh_shape *shape, int ranks, err *e) ATH_MUST_USE;
/* Where `rank` of a world lies; comms stay NULL. For plans, which have no peers. */
void mesh_place(mesh *m, const mesh_shape *resolved, int rank);
/* The same with comms over the world. */
void mesh_open(mesh *m, const mesh_shape *resolved, comm_world *w);

#endif
