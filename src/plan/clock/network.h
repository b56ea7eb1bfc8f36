/* How long a collective takes on a topology of nodes: a ring over all ranks, or trees where messages are short.
 *
 * n ranks in a line of the mesh, r of them on each node, so n / r nodes. Each rank sends (n - 1) / n of the result in a
 * gather or a reduce-scatter, twice that in an all-reduce (Thakur, Rabenseifner, Gropp 2005; NCCL's "bus bandwidth"). Inside
 * a node that passes the node's links. Between nodes a ring crosses the border of a node once, and as many rings as ranks
 * share the r adapters of these, so it passes r times the bandwidth of one; the slower of the two counts.
 *
 *   ring    (n - 1) messages, twice in an all-reduce; those between nodes have the network's latency
 *   tree    an all-reduce in 2 log2(nodes) messages of the network and 2 log2(r) of the node (Sanders et al. 2009)
 *
 * The shorter of the two counts, as NCCL chooses. Other lines of the same axis send at the same time, each through its own
 * adapters.
 *
 * In an all-to-all each rank sends to all others on its own: what leaves the node goes by its own adapter. On nodes of 8 H100 that
 * is 360, 75 and 42 GB/s for 1, 2 and 16 nodes, where 344, 81 and 45 to 58 were measured, and 8, 54 and 726 us of latency
 * for 7.6, 60 and 621 (Smol Training Playbook, AWS p5). A shift is one message to the next rank. */
#ifndef PLAN_NETWORK_H
#define PLAN_NETWORK_H

#include "comm/mesh.h"
#include "plan/clock/cluster.h"

/* Ranks in a line: how many, and how many are on each node. */
typedef struct network_group {
    int ranks, per_node;
} network_group;
network_group network_group_of(const cluster *c, const mesh_shape *shape, mesh_axis axis);

/* A collective in which a rank sends `sent` bytes (comm_call_sends) to the group. */
double network_seconds(const cluster *c, network_group g, comm_kind kind, double sent);
/* Rows of `sent` bytes in all, each of which goes to `picks` ranks at random, its own among them. A node gets one copy of a row and
 * hands it on by its links (DeepSeek's DeepEP, NVIDIA's HybridEP); a rank gets one, however many of the picks are there. */
double network_rows(const cluster *c, network_group g, double sent, int picks);
/* One message of so many bytes to another stage of a pipeline: by the network unless all ranks are in one node. */
double network_send(const cluster *c, const mesh_shape *shape, double bytes);

#endif
