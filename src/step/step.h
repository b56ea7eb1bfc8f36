/* The step table: what one rank does in one optimizer step, as a list of entries in order: run
 * these ops, begin this transfer, wait for it, update the weights. It is made once (step_build);
 * the trainer executes it every step (train/execute.c), the planner counts with it.
 *
 * The words:
 *   micro-batch  the part of a batch that goes through the model at once; the gradients of all
 *                micro-batches of a step are summed
 *   chunk        some successive layers of the model, with a program of their own (prog.h). A
 *                micro-batch goes forward through all chunks, then back through all
 *   frame        memory for the activations of one micro-batch in one chunk, from its forward to
 *                the end of its backward. With k frames, k micro-batches are under way at a time
 *   unit         parameters that travel together (param/units.h): matrices of one layer or of
 *                several, matrices outside of the layers, or all vectors
 *   slot         room for the weights or the gradients of one unit, which units use in turn
 *   gather       bring the weights of a unit from the ranks that hold pieces of them
 *   reduce       sum the gradients of a unit over the ranks
 *   stage        ranks that have the same chunks, where others have the rest: in a pipeline
 *                (pipeline.h says in which order a stage computes, sends and receives)
 *
 * A step of one micro-batch, on one rank that has the whole model, in one chunk:
 *
 *   FILL, FORWARD, LOSS, BACKWARD, OPTIMIZER
 *
 * With several ranks FORWARD and BACKWARD are divided wherever a unit must be gathered before the
 * ops that read it, or can be reduced after the ops that complete its gradients:
 *
 *   GATHER 0, GATHERED 0, GATHER 1, FORWARD ops 0 to 9, GATHERED 1, FORWARD ops 10 to 19, ...
 *
 * GATHER begins a transfer, and GATHERED waits for its end. In between, ops run.
 *
 * Reading order: this file, step.c (the order of micro-batches and chunks), walk.c (where units of
 * parameters are gathered and reduced within the programs), pipeline.h (stages), traffic.h (by which
 * collectives). */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "base/arena.h"
#include "param/units.h"
#include "prog/prog.h"

typedef enum step_action {
    STEP_FETCH,     /* begin to read what the optimizer will want from its file */
    STEP_FILL,      /* write the inputs of a program for a micro-batch */
    STEP_FORWARD,   /* run ops first .. end - 1 of the program */
    STEP_PASS_ON,   /* copy the output of chunk `chunk` to the input of the next chunk */
    STEP_RECEIVE,   /* begin to receive what another stage sends to chunk `chunk` */
    STEP_RECEIVED,  /* wait for it, and copy it to where the chunk reads it */
    STEP_SEND,      /* begin to send what chunk `chunk` has computed to another stage */
    STEP_SENT,      /* wait for it: the chunk will compute the same for another micro-batch */
    STEP_TALLY,     /* take what the routers of chunk `chunk` did to the micro-batch */
    STEP_COUNTED,   /* that of all micro-batches has been taken: sum it over the ranks */
    STEP_LOSS,      /* the micro-batch has been through all chunks: take its loss */
    STEP_PASS_BACK, /* copy the gradient of the next chunk's input back to chunk `chunk` */
    STEP_BACKWARD, /* run ops first .. end - 1; in two entries or more where weight gradients come later */
    STEP_GATHER,   /* begin to bring a unit's weights to its slot */
    STEP_GATHERED, /* wait for the end of the gather */
    STEP_REDUCE,   /* begin to sum a unit's gradients over the ranks */
    STEP_REDUCED,  /* wait for the end of the sum */
    STEP_TIED,     /* sum the gradients of the table that first and last stage share */
    STEP_OPTIMIZER /* update the parameters */
} step_action;

typedef struct step_entry {
    step_action action;
    int model;      /* 0: the one that is trained; the others only go forward (step_parts.look) */
    int chunk;      /* of the model */
    int frame;      /* where the micro-batch's activations lie */
    int next_frame; /* PASS_ON, PASS_BACK: the same in chunk + 1 */
    int micro_batch;
    int first, end; /* ops */
    int unit;
    bool back;        /* RECEIVE, RECEIVED, SEND, SENT: a gradient; else activations */
    int stage, box;   /* of these: the other stage; where it lies until it is read (pipeline.h) */
    int begun;        /* RECEIVED, SENT: the entry that began it */
    const char *what; /* of these: "activations of micro-batch 3, chunk 0 to 1" */
    bool counting;    /* STEP_FILL: of a pass that only counts; the micro-batch comes again */
    bool add;  /* STEP_REDUCE: add to the sums of earlier micro-batches, which left the slot */
    bool last; /* STEP_REDUCE: of the last micro-batch; the sums are then the step's */
    const char *name; /* step_name_entries; NULL: none */
} step_entry;

typedef struct step_table {
    step_entry *entry;
    int n, cap, micro_batches;
    int frames_in_flight; /* how many micro-batches at most are between forward and backward */
} step_table;

/* What a step is made of. */
typedef struct step_parts {
    const param_store *store; /* of the model that is trained */
    const prog *const
        *chunk; /* [chunks] its training programs, the first layers first; NULL: another
                                 stage has it */
    int chunks;
    const struct pipeline
        *pipe; /* what this stage does in a step; NULL: this rank has all chunks */
    int tied;  /* the unit of a table that another stage has, too; -1: there is none */
    /* [looks] Programs of other models, which only go forward: they see every micro-batch before it
     * is trained on (the reference model of preference training). */
    const prog *const *look;
    int looks;
    int micro_batches;
    int frames;   /* micro-batches under way at a time, at most */
    bool reduces; /* several ranks have gradients, which must be summed */
    bool fetches; /* the update wants what lies in a file (optim/offload.h) */
    bool tallies; /* the programs have routers, whose tallies are taken */
    /* A backward needs the tallies of the whole step (BALANCE_GLOBAL). Where not all micro-batches are
     * under way together, all go forward once to be counted, as far as the head, before the first
     * begins. */
    bool counts_first;
} step_parts;

/* Builds the table of a step. Micro-batches go in groups of as many as there are frames: all of a
 * group forward, then all back, in the same order; after the last group the optimizer. With one
 * frame this is plain gradient accumulation; with as many frames as micro-batches it is "all
 * forward, all backward" (AFAB; Huang et al. 2019).
 *
 * When gradients are reduced depends on where they lie (parallel.zero):
 *   0, 1  whole on every rank: a unit is reduced once a step, as soon as the last micro-batch has
 *         completed its gradients, while the backward of other units goes on
 *   2, 3  in slots. Units of layers share two: such a unit is reduced in every micro-batch, because the
 *         next ones need the slot. Its gradients are those of one pass back, so micro-batches may be in any
 *         order. The other units have slots of their own, and are reduced once a step
 * With zero 3 weights lie in slots, too: a unit is gathered while ops use the unit before it, in
 * forward, backward and recompute, unless its slot still holds it. */
step_table step_build(arena *a, const step_parts *parts);
/* The program of an entry. */
const prog *step_prog_of(const step_parts *parts, const step_entry *e);
/* One pass of a program forward, with its gathers: for validation and sampling. */
step_table step_build_pass(arena *a, const param_store *s, const prog *p);

/* Gives entries a name ("forward of layers 2 to 3"), for reports of ranks that hang. */
void step_name_entries(arena *a, step_table *t, const step_parts *parts);

#endif
