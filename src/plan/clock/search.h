/* The best layouts of a model on a cluster, by the three steps of the Ultra-Scale Playbook: what fits into the memory of a
 * device; of that, what reaches the global batch; of that, what is fastest.
 *
 * Every combination of tp (within a node, unless it was given), cp, ep, pp, ZeRO, micro-batch, recompute and schedule is a sketch (sketch.h).
 * Sequences are cut where each rank has 4,096 tokens or more, and is alone in its micro-batch: shorter ones fit, or are
 * shared by tp; a cp that is given stays. The fastest that this program can run are then planned and clocked as they would run, so that memory is exact for them. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/clock/sketch.h"

/* What is not searched for, since it was given; 0 (recompute, zero, schedule: -1) is free. */
typedef struct search_kept {
    int tp, pp, dp, micro_batch, chunks; /* chunks: of a stage */
    int recompute, zero, schedule;
    int cp, context, ep;
    bool offload; /* as the base has it, none too */
} search_kept;
static const search_kept search_all = {.recompute = -1, .zero = -1, .schedule = -1, .context = -1};

/* A stage of the run, which has the layout that is found. */
typedef struct search_phase {
    plan_spec base;        /* of one rank, as the config says */
    int64_t batch;         /* sequences of a step, at most */
    int64_t batch_divisor; /* what divides them in every step; 0: `batch` */
    int micro_batch;       /* its own; 0: that of the layout */
} search_phase;

typedef struct search_spec {
    const search_phase *phase; /* [n_phases] a layout is as fast as in the first, and fits in all */
    int n_phases;
    int most;            /* how many layouts are wanted */
    double usable_bytes; /* of a device; 0: what the cluster says */
    bool pipelines;      /* also those that need a pipeline */
    unsigned contexts;   /* with which tokens can be shared: a bit for each context_kind */
    bool experts;        /* ranks can share out the model's experts */
    search_kept kept;
    /* What a rank of the layout holds outside the arena in a phase (plan_spec.host_bytes); NULL: as its base. */
    int64_t (*host_bytes)(void *ctx, int phase, const sketch_layout *l);
    /* ST_USAGE: a run cannot have the layout, whatever it needs; NULL: it can have each. */
    status (*check)(void *ctx, const sketch_layout *l, err *e);
    void *ctx;
} search_spec;

/* Planned as it would run. */
typedef struct search_found {
    sketch_layout layout;
    sketch_result result;
} search_found;

typedef struct search_result {
    search_found *found; /* [n] the fastest first */
    int n;
    int tried, too_large, unfit; /* layouts: all; beyond memory; that cannot be cut so */
    double least_bytes;          /* of those beyond memory, the least that one needs */
    double usable_bytes;         /* into which they were to fit */
} search_result;

/* In the arena a. ST_MEMORY: nothing fits; the error says how much the smallest layout needs. ST_USAGE: nothing reaches the
 * global batch. */
status search_layouts(search_result *out, arena *a, dev *meta, const search_spec *what,
                      const cluster *c, err *e) ATH_MUST_USE;

/* Why layout x is before y: the parts of the step in which they differ most. */
void search_explain(const search_found *x, const search_found *y, strbuf *out);
/* Of layouts that are as fast as the first within 1 %, which is less than a clock of estimates tells, the one that shares in the fewest
 * ways, with the least ZeRO and recompute. 0: the first. */
int search_plainest(const search_result *r);
/* "dp 8, tp 4, pp 2 (1f1b), ZeRO-1, micro-batch 2 x 16, recompute selective" */
void search_name(const sketch_layout *l, strbuf *out);

#endif
