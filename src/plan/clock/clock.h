/* The virtual clock: how long an optimizer step of a planned rank takes on a cluster.
 *
 * It walks the step table that the trainer executes (step/step.h), with two streams. Kernels, and the collectives among
 * them (those of tensor, context and expert parallelism; op_time.h), run one after the other on the first; gathers and reductions
 * of parameters on the second, which waits for the first where it begins one, as the first waits for the second at GATHERED and REDUCED. A
 * kernel beside a collective has less of the device (cluster.contention). Ops take what roofline.h says, collectives what
 * network.h says of the very calls that the run makes (step/traffic.h, op/collective.h).
 *
 * What lies in a file (parallel.offload) is a third stream, as fast as the disk (cluster.disk_bytes_per_s): a piece is read before it is
 * sent, and the update takes at least as long as its windows.
 *
 * The stages of a pipeline are planned and walked side by side: a stage that waits for what another has not sent yet stands
 * still until the other has been walked so far. What it sends leaves beside its kernels, one after the other.
 *
 * Data-parallel ranks do the same at the same time, and tensor-parallel ranks nearly so: the plan is that of the rank which
 * needs most memory, and stands for all; cluster.straggle is how much longer the slowest of many takes.
 *
 * Of long steps only short ones are walked, one group of micro-batches more each: what is between is alike. */
#ifndef PLAN_CLOCK_H
#define PLAN_CLOCK_H

#include <jansson.h>

#include "plan/clock/network.h"
#include "plan/clock/op_time.h"
#include "plan/clock/roofline.h"
#include "plan/plan.h"

typedef struct clock_time {
    double step_s;
    /* these add up to it */
    double kernels_s;   /* of forward and backward, recompute and contention included */
    double among_s;     /* collectives among the ops: nothing else runs meanwhile */
    double exposed_s;   /* waits for collectives beside the ops */
    double optimizer_s; /* the update, and what its gathers take longer */
    double host_s;      /* micro-batches and the step outside of kernels */
    double bubble_s;    /* a stage of a pipeline waits for others */
    double beside_s;    /* all collectives beside the ops, hidden or not */
    double file_s;      /* the file of parallel.offload is read or written, hidden or not */
    bool has_file;
    double by_class[OP_PROFILES]; /* of kernels_s without contention, with collectives among them */
    double model_flops, hardware_flops; /* of this rank in the step */
    double tokens;                      /* of all ranks in the step */
    double peak_flops;                  /* of a device, in the format of the plan */
    double peak_bytes;                  /* of the stage that needs most memory */
    int ranks;
    int stages, stage; /* of a pipeline; whose times these are: the one that computes longest */
} clock_time;

/* Of the selected phase, which trains. */
clock_time clock_step(const plan *p, const cluster *c);
/* The same of a step of so many micro-batches, at most as many as the plan is for: while a batch grows, say. */
clock_time clock_step_of(const plan *p, const cluster *c, int micro_batches);

/* What the norm and the update of the optimizer read and write. */
double clock_update_bytes(const plan *p);
/* The part of that memory which no op touches, shared out over the micro-batches of the step. */
double clock_update_share(const plan *p);
/* The memory that only ops touch: frames and scratch. */
double clock_frame_bytes(const plan *p);

/* What the model's mathematics needs (MFU), and all that was computed (HFU), as shares of the peak. */
double clock_mfu(const clock_time *t);
/* What a stage waits for others, as a share of what it computes: (P - 1) / M of alike stages under 1F1B. */
double clock_bubble(const clock_time *t);
double clock_hfu(const clock_time *t);

/* time{} of `athanor plan --json`, and the lines that are printed. */
json_t *clock_json(const clock_time *t, const cluster *c);
void clock_describe(const clock_time *t, const cluster *c, strbuf *out);

#endif
