/* Pipeline schedules: in which order each stage works on the micro-batches of a step, and when.
 *
 * A model is cut into chunks of layers in a row; a stage holds one or more of them. A micro-batch goes forward through
 * all chunks (F), then back. The backward is one piece of work (B), or two: the gradient of the chunk's input (I), for
 * which the chunk before waits, and that of its weights (W), for which nobody waits until the optimizer.
 *
 *   afab         all forward, all backward (Huang et al. 2019)
 *   1f1b         a stage goes back as soon as it can: stage s of P keeps P - s micro-batches (Narayanan et al. 2019)
 *   interleaved  v chunks a stage, chunk c of stage s is c P + s (Narayanan et al. 2021)
 *   zb-h1        1f1b with W where a stage would wait: stage s keeps P - s micro-batches that lack I, and s that lack W
 *                alone (Qi et al. 2023, table 2)
 *   zb-v         two chunks a stage, s and 2 P - 1 - s, so that the last chunk is on the first stage (Qi et al. 2024)
 *   zb-h2        zb-h1 with twice the room: stage s goes forward 2 (P - s) - 1 times before it goes back (Qi et al. 2023)
 *   zb-2p        their automatic one, for pieces of any length: W is left for later as long as there is room for the activations
 *                of 2 P micro-batches, where one that lacks its W alone counts half; or as zb-h2 or zb-h1, where that is quicker
 *   dualpipe     two copies of the model, from both ends: stage s has chunk s of one and P - 1 - s of the other, and half of the
 *                micro-batches goes through each. A forward of one and a backward of the other are done together (DeepSeek-AI 2024)
 *
 * The last three are drawn by the planner, not run. With zb-h2 and zb-2p, which it reckons, too, stages go on to the next step on their
 * own, and the norm of all gradients would come too late; dualpipe has each parameter twice. The orders depend on P, M and v alone,
 * that of zb-2p on how long pieces take, too (schedule_suit). */
#ifndef STEP_SCHEDULE_H
#define STEP_SCHEDULE_H

#include "base/arena.h"

typedef enum schedule_kind {
    SCHEDULE_AFAB,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZB_H1,
    SCHEDULE_ZB_V,
    SCHEDULE_ZB_H2,
    SCHEDULE_ZB_2P,
    SCHEDULE_DUALPIPE,
    SCHEDULES
} schedule_kind;

typedef enum schedule_work {
    WORK_FORWARD,
    WORK_BACKWARD,
    WORK_INPUT,  /* of a backward in two pieces */
    WORK_WEIGHT, /* the other one */
    WORKS
} schedule_work;

typedef struct schedule_item {
    schedule_work work;
    int micro_batch;
    int chunk;   /* of the model, 0 .. chunks - 1; of a second copy those from the middle on */
    bool joined; /* done together with the next item of the stage */
    double begin, end; /* schedule_time */
} schedule_item;

typedef struct schedule_stage {
    schedule_item *item; /* in the order in which they are done */
    int n;
    int kept; /* most micro-batches, times chunks, whose activations it has at a time; zb-2p: as above */
    double busy; /* schedule_time: the sum of its items */
    int timed;   /* for its own use: items that have their times, and when the last of these ends */
    double free_at;
} schedule_stage;

typedef struct schedule {
    schedule_kind kind;
    int stages, micro_batches, chunks; /* P, M; of the model: P times those of a stage */
    int copies;                        /* of the model: dualpipe 2 */
    schedule_stage *stage;
    schedule_item **forward, **back; /* [chunks * M]: of a chunk and a micro-batch; back: B or I */
    double end;                      /* schedule_time: when the last item of all stages ends */
    double
        step; /* `end`, or, where stages go on to the next step on their own, the longest time of a stage */
    double bubble; /* share of all stages' time, of that length, in which they wait */
} schedule;

/* "afab", "1f1b", ... */
const char *schedule_name(schedule_kind kind);
/* Chunks of a stage that the kind needs; 0: 2 or more. */
int schedule_chunks_of(schedule_kind kind);
/* Whether this program runs it, too. */
bool schedule_runs(schedule_kind kind);
/* Whether a backward may be two pieces of work, I and W. */
bool schedule_splits(schedule_kind kind);
/* The stage that has a chunk. */
int schedule_stage_of(const schedule *s, int chunk);
/* How many parts the layers of a stage are cut into. */
int schedule_parts(const schedule *s);
/* `of_stage`: chunks of a stage, of one copy. ST_USAGE: not as many as the kind needs; interleaved: M is no multiple of P;
 * dualpipe: P or M is odd, or M is below 2 P. */
status schedule_build(arena *a, schedule_kind kind, int stages, int micro_batches, int of_stage,
                      schedule *out, err *e) ATH_MUST_USE;

/* How long a piece of work of one chunk takes, by `work`; and the way of activations or gradients to the next stage. */
typedef struct schedule_times {
    double work[WORKS], transfer;
    const double (
        *of_chunk)[WORKS]; /* [chunks] instead of work, where chunks differ; NULL: they do not */
    double both;           /* joined items; 0: as long as one after the other */
} schedule_times;
/* The order of zb-2p for pieces of these lengths; until then it is that for F, I and W alike. Others have one order. */
void schedule_suit(arena *a, schedule *s, const schedule_times *t);
/* Says when each item begins and ends: as soon as its stage is free and what it needs has come. */
void schedule_time(schedule *s, const schedule_times *t);

#endif
