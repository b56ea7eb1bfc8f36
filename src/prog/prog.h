/* A program: the forward (and, for training, the backward) of one micro-batch, as a flat list of op
 * calls whose memory is planned. A replay allocates nothing and checks nothing: all was decided
 * when the program was made. The program lives in the arena of its graph.
 *
 * The life of a program:
 *   1. The model records its forward into a graph (graph.h), once.
 *   2. prog_finish derives the backward, plans memory, finds kernels. prog_get_stats now says how
 *      much memory a replay needs, before any of it exists.
 *   3. The owner allocates memory and says with prog_bind where each space begins.
 *   4. Every micro-batch: prog_put writes the inputs, prog_replay (or, where other work comes in
 *      between, prog_replay_range) runs the ops, prog_get reads the outputs.
 * To find a NaN, prog_walk replaces prog_replay: it shows what each op has written.
 *
 * A program may have several frames: several memories for activations, one for each micro-batch
 * that is under way. op_run.frame says in which of them a replay runs. */
#ifndef PROG_PROG_H
#define PROG_PROG_H

#include "base/strbuf.h"
#include "prog/graph.h"

typedef struct prog prog;

/* Makes a program of a graph. The graph must not be used afterwards. Fails with the first error of
 * recording (ST_USAGE as a rule), or with ST_FAILED, which names an op that has no kernel. */
status prog_finish(prog **out, graph *g, err *e) ATH_MUST_USE;

/* Sizes, known before any memory exists. Bytes; FLOPs with a multiply-add as two. */
typedef struct prog_stats {
    int64_t frame_bytes;   /* of each frame: activations, their gradients, workspace */
    int64_t scratch_bytes; /* once, for all frames: what SPACE_SCRATCH takes of these */
    /* The most bytes that are in use at one time: a lower bound of the two together. */
    int64_t live_peak_bytes;
    int64_t pinned_bytes;         /* of each frame: inputs and outputs */
    int64_t const_bytes;          /* once, for all frames */
    int64_t workspace_peak_bytes; /* largest workspace of one op (inside the frame) */
    int64_t saved_bytes; /* activations live between forward and backward (inside the frame) */
    int64_t late_bytes;  /* activations and gradients that the ops of PHASE_W read: live between the
                            parts of a split backward */
    double flops_forward, flops_backward, flops_recompute; /* of one replay */
    double bytes_moved;   /* that kernels read and write; each operand of an op counts once */
    double outside_bytes; /* parameters, gradients and tables that ops touch: each byte once */
    int ops;              /* ops 0 .. ops_forward - 1 are the forward, the rest is the backward */
    int ops_back; /* split_backward: from here on are gradients of weights, which may run later; else as `ops` */
    int ops_forward, ops_recomputed, buffers;
} prog_stats;
const prog_stats *prog_get_stats(const prog *p);
/* bytes[stats.ops]: how much of a frame and of scratch is in use while each op runs. The largest is live_peak_bytes. */
void prog_get_live_bytes(const prog *p, int64_t *bytes);
/* How many ops at most add to one parameter gradient, when each of these programs is replayed once.
 * With fixed_grads it limits each contribution, so that no sum overflows (op/fixed.h). */
int prog_count_contributions(const prog *const *p, int n);

/* ---- the ops of a program: for profiles, cost models and the order of transfers ---- */

/* Which function of an op_impl a call runs. */
typedef enum op_entry { ENTRY_FWD, ENTRY_BWD_INPUT, ENTRY_BWD_WEIGHT } op_entry;
/* F: the forward. B: the backward, with its recompute. W: gradients of weights, for which nothing
 * else in the backward waits. */
typedef enum op_phase { PHASE_F, PHASE_B, PHASE_W } op_phase;
/* What an op reads or writes, and how many bytes ops have moved since that memory was touched last. */
typedef struct prog_touch {
    double bytes, since;
    bool before; /* in the replay before, so that the update of a step may lie between */
} prog_touch;
typedef struct prog_op {
    op_kind kind;
    op_entry entry;
    op_phase phase;
    bool recomputed;      /* the forward again, in the backward */
    int block;            /* layer; -1: outside */
    const char *name;     /* what the family called the output of the (forward) op, or "" */
    const op_attr *attr;  /* lives as long as the program */
    tensor in[OP_MAX_IN]; /* shapes of the forward's operands, also of a backward; rows 0: absent */
    tensor out[OP_MAX_OUT];
    double flops, bytes;
    const prog_touch *touch; /* live as long as the program */
    int touches;
} prog_op;
/* Op number i of stats.ops. */
prog_op prog_get_op(const prog *p, int i);
/* Of that op alone, for those who ask each op of many steps. */
op_kind prog_op_kind(const prog *p, int i);
int prog_op_block(const prog *p, int i);

/* Parameters are gathered and reduced in units (param/units.h). Calls `visit` for every op, in
 * order, with each unit whose weights it reads (grad false) or whose gradients it writes (true). */
typedef void (*prog_unit_visitor)(void *ctx, int op, int unit, bool grad);
void prog_visit_units(const prog *p, prog_unit_visitor visit, void *ctx);

/* ---- binding ---- */

/* The address of each space (graph.h) in the device's memory. base[SPACE_FRAME] needs frame_bytes,
 * base[SPACE_SCRATCH] scratch_bytes, base[SPACE_PINNED] pinned_bytes, base[SPACE_CONST] const_bytes. The other spaces are arrays of a
 * parameter store, a cache or a file. NULL: the program does not use that space. */
typedef struct prog_frame {
    void *base[SPACE_COUNT];
} prog_frame;
/* If both have the same constants, p does without its own: it will be bound to those of `with`,
 * which are filled before. False: they are not the same. */
bool prog_share_constants(prog *p, const prog *with);
/* Gives the program its n frames, which are copied, and fills constants. Frames differ in
 * SPACE_FRAME and SPACE_PINNED only. May be called again when memory moves. */
void prog_bind(prog *p, const prog_frame *frames, int n);
/* Gives back the graphs that the device keeps of replays, before the program's memory is freed. */
void prog_drop_graphs(prog *p);

/* A named input or output: found once, then used in every step. bytes 0: there is none of that
 * name. */
typedef struct prog_port {
    int32_t value;
    dtype dt;
    int64_t rows, cols, bytes;
} prog_port;
prog_port prog_find_port(const prog *p, const char *name);
/* prog_put copies a whole port from the host into a frame. prog_get copies it to the host, after it
 * has waited for the ops that write it. Both do nothing for a port of 0 bytes. */
void prog_put(const prog *p, int frame, prog_port port, const void *host);
void prog_get(const prog *p, int frame, prog_port port, void *host);
/* The address of a port on the device; NULL before prog_bind and on the meta device. */
void *prog_port_at(const prog *p, int frame, prog_port port);

/* ---- replay ---- */

enum {
    PROG_F = 1 << PHASE_F,
    PROG_B = 1 << PHASE_B,
    PROG_W = 1 << PHASE_W,
    PROG_ALL = PROG_F | PROG_B | PROG_W
};
/* Runs the ops of the given phases in order: PROG_F, PROG_B | PROG_W, or all three. On the meta
 * device it does nothing. */
void prog_replay(const prog *p, unsigned phases, const op_run *run);
/* Runs ops first .. end - 1. Unless ns_per_op is NULL, waits for each, and adds the time of op i to
 * ns_per_op[i]. */
void prog_replay_range(const prog *p, int first, int end, const op_run *run, int64_t *ns_per_op);

/* The debug walk: runs ops first .. end - 1 one by one, and calls `visit` for every tensor that an
 * op has just written. It stops when `visit` returns false. */
typedef struct prog_event {
    int index;        /* of the op in the program */
    const char *op;   /* "linear" */
    const char *name; /* what the family called the value, or "" */
    const char *what; /* "y", "gradient of x", ... */
    op_phase phase;
    tensor t; /* on the device */
} prog_event;
typedef bool (*prog_visitor)(void *ctx, const prog_event *ev);
void prog_walk(const prog *p, int first, int end, const op_run *run, prog_visitor visit, void *ctx);

#endif
