#include "plan/clock/network.h"

#include <math.h>

static int at_least_1(int n) {
    return n < 1 ? 1 : n;
}

network_group network_group_of(const cluster *c, const mesh_shape *s, mesh_axis axis) {
    mesh_line line = mesh_line_of(s, axis);
    int room = at_least_1(c->per_node / line.stride);
    return (network_group){line.size, room < line.size ? room : line.size};
}

static double steps(int n) {
    return n > 1 ? ceil(log2((double)n)) : 0;
}

static double latency(const cluster *c, network_group g, comm_kind kind) {
    double nodes = (double)g.ranks / g.per_node;
    double crossings = nodes > 1 ? nodes : 0; /* in a ring, one for each border of a node */
    double ring = crossings * c->network.latency_s +
                  (g.ranks - 1 - (crossings > 0 ? crossings - 1 : 0)) * c->node.latency_s;
    double tree =
        steps((int)ceil(nodes)) * c->network.latency_s + steps(g.per_node) * c->node.latency_s;
    if (kind == COMM_ALL_REDUCE) return 2 * (tree < ring ? tree : ring);
    if (kind == COMM_BROADCAST || kind == COMM_BARRIER) return tree < ring ? tree : ring;
    return ring;
}

static double node_rate(const cluster *c, double sent) {
    return c->node.bytes_per_s * c->node.reached *
           cluster_curve_at(&c->node_by_mib, sent / (1 << 20), 1);
}

static double network_rate(const cluster *c, double nodes) {
    return c->network.bytes_per_s *
           cluster_curve_at(&c->network_by_nodes, nodes, c->network.reached);
}

/* To the next rank: the pair that is on two nodes takes longest, and has one adapter. */
static double shift(const cluster *c, network_group g, double sent) {
    if (g.per_node < g.ranks) return c->network.latency_s + sent / network_rate(c, 2);
    return c->node.latency_s + sent / node_rate(c, sent);
}

/* To each other rank an equal part, each half a latency behind the one before. */
static double messages(int n, double latency_s) {
    return n ? (n + 1) / 2.0 * latency_s : 0;
}

/* Parts for the ranks of the node go by its links, all others by the rank's own adapter, at the same time. */
static double all_to_all(const cluster *c, network_group g, double sent) {
    int near = g.per_node - 1, far = g.ranks - g.per_node;
    double part = sent / (g.ranks - 1), nodes = ceil((double)g.ranks / g.per_node);
    double inside = messages(near, c->node.latency_s) + near * part / node_rate(c, part);
    if (far == 0) return inside;
    double between = messages(far, c->network.latency_s) + far * part / network_rate(c, nodes);
    return inside > between ? inside : between;
}

/* How many of n places, one's own not counted, are among so many picks. */
static double others_picked(double n, int picks) {
    return (n - 1) * (1 - pow(1 - 1 / n, picks));
}

double network_rows(const cluster *c, network_group g, double sent, int picks) {
    if (g.ranks < 2) return 0;
    double nodes = ceil((double)g.ranks / g.per_node), each = sent / picks;
    int near = g.per_node - 1;
    double inside = messages(near, c->node.latency_s) +
                    each * others_picked(g.ranks, picks) / node_rate(c, each);
    if (nodes < 2) return inside;
    double between = messages(g.ranks - g.per_node, c->network.latency_s) +
                     each * others_picked(nodes, picks) / network_rate(c, nodes);
    return inside > between ? inside : between;
}

double network_seconds(const cluster *c, network_group g, comm_kind kind, double sent) {
    if (g.ranks < 2) return 0;
    if (kind == COMM_SHIFT) return shift(c, g, sent);
    if (kind == COMM_ALL_TO_ALL) return all_to_all(c, g, sent);
    double nodes = ceil((double)g.ranks / g.per_node), inside = 0, between = 0;
    if (g.per_node > 1) inside = sent / node_rate(c, sent);
    if (nodes > 1) between = sent / (g.per_node * network_rate(c, nodes));
    return latency(c, g, kind) + (inside > between ? inside : between);
}

double network_send(const cluster *c, const mesh_shape *s, double bytes) {
    network_group g = network_group_of(c, s, MESH_PP);
    if (g.ranks < 2) return 0;
    if (g.per_node == g.ranks) return c->node.latency_s + bytes / node_rate(c, bytes);
    return c->network.latency_s + bytes / network_rate(c, 2);
}
