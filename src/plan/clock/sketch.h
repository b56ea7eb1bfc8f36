/* A step of any layout from the costs of single layers: for choosing among thousands of layouts, and for those that cannot be
 * run yet.
 *
 * A plan of a model with one layer of each kind, in as many chunks as layers, says what each layer takes: kernels, collectives among them, what it keeps
 * for the backward, its parameters. These depend on tp, cp, micro-batch and recompute only. The rest is arithmetic: stages are
 * sums of layers, a pipeline is its schedule (step/schedule.h) under these times, and data-parallel collectives hide behind
 * the backward as far as it lasts. Where a layout can be run, clock_step says the same more exactly; memory is then that of
 * the plan, which is exact, while a sketch's is an estimate. */
#ifndef PLAN_SKETCH_H
#define PLAN_SKETCH_H

#include "plan/clock/clock.h"
#include "step/schedule.h"

/* How a program spends what a device can do, beside its kernels: for plans of other programs' runs, whose kernels are reckoned as
 * this program's times a factor. */
typedef struct runtime {
    double products, attention,
        other; /* factors of the time of kernels: products and head, attention, all else */
    double
        launch_s; /* the host's time for a call; of a layer the slower of host and device counts */
    double casts; /* factor of the time of casts to 8 bits before products; 0: there are none */
    double experts;         /* factor of the time of experts' products */
    double expert_launch_s; /* the host's time for a product of one expert */
    /* Experts as libraries have them: nothing runs while rows travel, a node gets a row once (network_rows), nothing is computed or sent
     * again in the backward, and tensor-parallel ranks have whole experts. */
    bool dispatches;
    double rows_hidden;    /* share of that travel which kernels hide */
    double tp_hidden;      /* share of the collectives among the ops that kernels hide */
    double dp_usable;      /* share of the backward behind which collectives hide */
    double dp_calls;       /* collectives of data-parallel ranks for each layer */
    double dp_calls_of_gb; /* and for each 10^9 bytes: buckets */
    cluster_curve send_s;  /* more than a message of a pipeline takes by its bytes, by nodes */
    double kept;           /* activations kept for the backward, as a multiple of this program's */
    /* Frames and slots are as this program has them: each micro-batch under way has all that its ops need, and experts have units of
     * their own. */
    bool own;
    double logit_bytes; /* of a logit while the loss is taken, beside this program's */
    double extra_bytes; /* memory beside that of the plan */
    double fill;        /* share of a device's memory that can be filled before it fails */
    bool balanced;      /* stages are equally long in time; else equally many layers */
    double step_s;      /* more than the cluster's, of each step */
    /* The host's time for each rank of a collective among the ops, in a pipeline over nodes: kernels hide it where they last longer. */
    double pipe_rank_s;
} runtime;
extern const runtime runtime_athanor;

enum { SKETCH_PRODUCTS, SKETCH_ATTENTION, SKETCH_OTHER, SKETCH_EXPERTS, SKETCH_PARTS };

/* Parameters that lie in arrays of this rank. */
typedef struct sketch_params {
    double elems;
    double outside; /* of those, embeddings, head and what else is outside of the layers */
    double experts; /* of those, of experts that ranks share out: fewer ranks have the same ones */
    double tied;    /* a table that both ends have where these are on different ranks */
} sketch_params;

/* Of one layer, with what is outside of the layers in the first and the last; of a micro-batch, by WORK_FORWARD, WORK_INPUT,
 * WORK_WEIGHT. */
typedef struct sketch_layer {
    double kernels[WORKS][SKETCH_PARTS]; /* seconds */
    double calls[WORKS];
    double sent[WORKS],
        sends[WORKS];      /* those of tensor parallelism: bytes, and how many they are */
    double context[WORKS]; /* seconds of those of context parallelism that nothing hides */
    double hidden[WORKS];  /* and of those that kernels hide where there is no pipeline */
    double
        casts[WORKS]; /* seconds of reading what products read, and writing it in 8 bits, twice */
    double experts_again[WORKS]; /* of the kernels of experts, what the backward computes again */
    double expert_calls[WORKS];  /* products of single experts */
    double rows[WORKS],
        row_sends[WORKS]; /* of experts that ranks share out: bytes, and how often */
    double spread[WORKS], spread_hidden[WORKS];    /* seconds of these, as context and hidden */
    double saved_bytes, late_bytes, scratch_bytes; /* as in prog_stats; beside saved_bytes */
    double model_flops, hardware_flops;
    sketch_params trained, frozen;
    bool
        experts_between; /* experts that ranks share out have others of its matrices on both sides */
    double quant_bytes;  /* frozen matrices in 4 bits, which no rank shares; they are in neither */
} sketch_layer;

typedef struct sketch {
    sketch_layer *layer; /* [layers] */
    int layers;
    plan_spec spec;
    double passed_bytes;                /* activations that a chunk passes on */
    double model_flops, hardware_flops; /* of a micro-batch, all layers of a tensor-parallel rank */
} sketch;

/* The part of a layout that a sketch depends on. */
typedef struct sketch_key {
    int tp, micro_batch;
    recompute_policy recompute;
    int cp;
    context_kind context;
    int ep; /* ranks that share out experts; 0: 1 */
} sketch_key;

typedef struct sketch_layout {
    sketch_key key;
    int dp, pp, chunks_of_stage, zero;
    int replicas; /* ZeRO shares over dp * cp / replicas ranks, which must divide it; 0: 1 */
    int64_t micro_batches; /* of a rank in a step */
    schedule_kind schedule;
    unsigned offload; /* that of the sketch's spec */
    const int *cut;   /* [pp * chunks_of_stage + 1] where chunks begin; NULL: as the runtime cuts */
} sketch_layout;

typedef struct sketch_result {
    clock_time time;
    double memory_bytes; /* of the stage that needs most */
} sketch_result;

/* base: a spec of one rank. In the arena a. ST_USAGE: the model cannot be cut so. */
status sketch_new(sketch *out, arena *a, dev *meta, const plan_spec *base, sketch_key key,
                  const cluster *c, err *e) ATH_MUST_USE;
/* ST_USAGE: the schedule does not go with that many stages, chunks, micro-batches. */
status sketch_time(const sketch *s, const sketch_layout *l, const cluster *c, const runtime *r,
                   sketch_result *out, err *e) ATH_MUST_USE;

#endif
