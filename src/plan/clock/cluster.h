/* A cluster as the planner's clock sees it: what one device can do, how much of that kernels reach, how devices are
 * joined, and what they cost. All of it is data: a preset with its sources (presets.c), or a YAML file.
 *
 *   cluster_find     a preset with a number of devices ("h100-64"), a file, or "local": what
 *                    `athanor doctor calibrate` measured on this machine; "local-2": with 2 ranks that share it
 *   cluster_put_yaml writes it as such a file
 *
 * Units: seconds, bytes, FLOP/s with a multiply-add as two, bytes per second in one direction. Files have the units that
 * people use (TFLOP/s, GB/s of 10^9, GiB, microseconds); their keys name them.
 *
 * Reading order: this file, presets.c, cluster.c (names and files); roofline.h and network.h use it. */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include <jansson.h>

#include "base/dtype.h"
#include "base/strbuf.h"
#include "comm/comm.h"
#include "op/op.h"

enum { CLUSTER_POINTS = 16, CLUSTER_RATES = 128, CLUSTER_PASSES = 3, CLUSTER_FORMATS = DT_F16 + 1 };
/* Of a limit a processor reaches more than 1 where it finds in its caches what counts as memory; more than that is a mistake. */
enum { CLUSTER_MOST_IN_CACHE = 1000 };
/* What the time of a call is the sum of: so much for each call, FLOP, element of the first operand and of the second, and result
 * (of attention: visible pair); of ops that are no products for each element that they move, and row. And for each byte that is
 * not in near caches any more, and in no cache. */
enum {
    TERM_CALL,
    TERM_FLOP,
    TERM_FIRST,
    TERM_SECOND,
    TERM_RESULT,
    TERM_FAR,
    TERM_FARTHER,
    CLUSTER_TERMS
};

/* A number that depends on another: linear in the logarithm of x between the points, constant beyond them. x rises. */
typedef struct cluster_curve {
    int n;
    double x[CLUSTER_POINTS], y[CLUSTER_POINTS];
} cluster_curve;
double cluster_curve_at(const cluster_curve *c, double x,
                        double without); /* without: where it has no points */

/* How much of the roofline (roofline.h) calls of some ops reach, by the time in microseconds that they would take there:
 * small calls reach less. Where products have terms, the sum of these stands in place of the roofline: how fast a product of some
 * size is depends on its shape, too. `of`: the name of an op ("rmsnorm"), of a profile class ("matmul"), "optimizer", or "" for all. The most
 * special rate that fits a call counts: an op goes before a class, then a pass, then a format. */
typedef struct cluster_rate {
    char of[24];
    char pass[16];  /* "forward", "input" or "weights" (of a backward); "": each */
    char format[8]; /* of activations; "": each */
    cluster_curve share;
    double term[CLUSTER_TERMS]; /* seconds of one each; all 0: the roofline counts */
} cluster_rate;

/* A way between two ranks. */
typedef struct cluster_link {
    double bytes_per_s; /* that a rank sends through it, in one direction */
    double latency_s;   /* of one message between neighbours */
    double reached;     /* share of bytes_per_s that collectives reach with large messages */
} cluster_link;

typedef struct cluster {
    char name[64], device_name[DEV_NAME_MAX], source[256];
    dev_kind kind;
    double peak_flops[CLUSTER_FORMATS]; /* dense products of operands in that format */
    double memory_bytes;
    double reserved_bytes; /* of it, by the driver and its libraries */
    double memory_bytes_per_s;
    double near_bytes,
        cache_bytes; /* what the caches of its cores hold, and all caches; 0: unknown */
    double call_s;   /* the least that any call of a kernel takes */
    double micro_s;  /* of each micro-batch outside of kernels: filling inputs, taking losses */
    double token_s;  /* of each token of a rank outside of kernels */
    double step_s;   /* of each step outside of kernels */
    double
        disk_bytes_per_s; /* of the share of a disk that a device has, read or written; 0: unknown */
    double contention;    /* share of a device that a collective takes from the kernels beside it */
    double straggle;      /* how much longer the slowest of many ranks computes, as a share */
    int per_node, nodes;
    cluster_link node, network; /* inside a node; between nodes */
    cluster_curve
        node_by_mib; /* share of what node reaches by the MiB that a rank sends; no points: all of it */
    cluster_curve
        network_by_nodes; /* share of network.bytes_per_s by number of nodes; no points: network.reached */
    double dollars_per_hour, watts; /* of a device, with its share of the machine; 0: unknown */
    cluster_rate rate[CLUSTER_RATES];
    int n_rates;
    int16_t best[OP_COUNT][CLUSTER_PASSES][CLUSTER_FORMATS]; /* into rate; -1: none */
    int16_t update;                                          /* the same for the optimizer */
} cluster;

static inline int cluster_devices(const cluster *c) {
    return c->per_node * c->nodes;
}
/* Bytes of a device that a run can have. */
static inline double cluster_usable_bytes(const cluster *c) {
    return c->memory_bytes - c->reserved_bytes;
}

/* "h100-64" (64 devices; without a number one node), the path of a YAML file, "local". ST_USAGE: there is no such preset
 * or it has no such number; ST_FORMAT: the file is wrong, or nothing was measured here. */
status cluster_find(cluster *out, const char *name, err *e) ATH_MUST_USE;
/* From the tree of a file; origins: where its values stand (base/yaml.h), or NULL. */
status cluster_read(cluster *out, const json_t *root, const json_t *origins, const char *file,
                    err *e) ATH_MUST_USE;
/* The tree of a file that reads back to the same cluster; the caller owns it. And the file. */
json_t *cluster_json(const cluster *c);
void cluster_put_yaml(strbuf *out, const cluster *c);
/* Adds a rate; false: there are CLUSTER_RATES. Afterwards cluster_index finds the best for each call. */
bool cluster_add_rate(cluster *c, const cluster_rate *r);
void cluster_index(cluster *c);
const char *cluster_class_name(op_profile p); /* "matmul" */
const char *cluster_pass_name(int pass);      /* "forward", "input", "weights" */
/* Where `doctor calibrate` writes and "local" or "local-RANKS" is read: beside the machine's facts (op/machine.h). False: there
 * is no home. */
bool cluster_local_path(const char *name, char *out, size_t bytes);

/* presets.c: the cluster of one node by its name; false: there is none. Names in order, NULL behind the last. */
bool cluster_preset(cluster *out, const char *name);
const char *const *cluster_preset_names(void);

#endif
