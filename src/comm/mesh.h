/* The mesh: ranks as coordinates on named axes, and a comm along each axis.
 *
 * rank = ((pp * dp + d) * cp + c) * tp + t: tensor-parallel ranks are neighbours, pipeline stages
 * are farthest apart (as in Megatron-LM). The data axis is replicate x shard: shards of ZeRO are
 * inside a replica, d = replicate * dp_shard + shard. */
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
const char *mesh_axis_name(mesh_axis a);

#endif
