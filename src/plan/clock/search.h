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

typedef struct search_spec {
    plan_spec base;       /* of one rank, as the config says */
    int64_t global_batch; /* sequences of a step */
    int most;             /* how many layouts are wanted */
    bool pipelines;       /* also those that need a pipeline */
    unsigned contexts;    /* with which tokens can be shared: a bit for each context_kind */
    bool experts;         /* ranks can share out the model's experts */
    search_kept kept;
} search_spec;

typedef struct search_found {
    sketch_layout layout;
    sketch_result result;
    bool exact; /* planned as it would run, as all are that are found; else it is a sketch */
} search_found;

typedef struct search_result {
    search_found *found; /* [n] the fastest first */
    int n;
    int tried, too_large, unfit; /* layouts: all; beyond memory; that cannot be cut so */
    double least_bytes;          /* of those beyond memory, the least that one needs */
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
