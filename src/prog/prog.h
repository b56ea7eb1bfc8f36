/* A finished program: a flat list of op calls with planned memory, replayed every step without
 * allocating, checking or branching on shapes. Made from a graph by prog_finish; lives in the
 * graph's arena. */
#ifndef PROG_PROG_H
#define PROG_PROG_H

#include "base/strbuf.h"
#include "prog/graph.h"

typedef struct prog prog;

/* Derives the backward (for training graphs), lays out memory, looks up kernels. The graph must not
 * be used afterwards. Fails with the first recording error, or naming the op that has no kernel. */
status prog_finish(prog **out, graph *g, err *e) ATH_MUST_USE;

/* Sizes, known before any memory exists. Bytes; FLOPs with a multiply-add as two. */
typedef struct prog_stats {
    int64_t frame_bytes;     /* the packed frame */
    int64_t live_peak_bytes; /* maximum over time of the bytes that are live: a lower bound of
                                frame_bytes */
    int64_t pinned_bytes;    /* of each frame */
    int64_t const_bytes;
    int64_t workspace_peak_bytes; /* largest workspace of one op (inside the frame) */
    int64_t saved_bytes; /* activations live between forward and backward (inside the frame) */
    double flops_forward, flops_backward, flops_recompute;
    double bytes_moved;
    int ops, ops_forward, ops_recomputed, buffers; /* the forward comes first */
} prog_stats;
const prog_stats *prog_get_stats(const prog *p);
/* Additions of one replay of all these programs to one parameter gradient, at most (fixed_grads).
 */
int prog_count_contributions(const prog *const *p, int n);

/* Op number i of stats.ops, as it was recorded or derived: for profiles and cost models. */
typedef enum op_entry { ENTRY_FWD, ENTRY_BWD_INPUT, ENTRY_BWD_WEIGHT } op_entry;
/* The part of a step that an op runs in: the forward, the backward (with what is computed again for
 * it), gradients of weights alone. */
typedef enum op_phase { PHASE_F, PHASE_B, PHASE_W } op_phase;
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
} prog_op;
prog_op prog_get_op(const prog *p, int i);

/* Tells of every op, in order, the units of parameters (param/units.h) whose weights it reads and
 * whose gradients it writes. */
typedef void (*prog_unit_visitor)(void *ctx, int op, int unit, bool grad);
void prog_visit_units(const prog *p, prog_unit_visitor visit, void *ctx);

/* Where a program runs: the base address of each space, in the device's memory. base[SPACE_FRAME]
 * needs frame_bytes, base[SPACE_PINNED] pinned_bytes, base[SPACE_CONST] const_bytes. Bases that a
 * program does not use may be NULL. */
typedef struct prog_frame {
    void *base[SPACE_COUNT];
} prog_frame;
/* Gives the program its n frames, which are copied, and fills constants. op_run.frame says in which
 * of them it runs; they differ in SPACE_FRAME and SPACE_PINNED only. May be called again when
 * memory moves. */
void prog_bind(prog *p, const prog_frame *frames, int n);

/* A named input or output, found once. bytes 0: there is none of that name. */
typedef struct prog_port {
    int32_t value;
    dtype dt;
    int64_t rows, cols, bytes;
} prog_port;
prog_port prog_find_port(const prog *p, const char *name);
/* All of it, between the host and the frame; prog_get waits until it has been computed. Of no port:
 * nothing. */
void prog_put(const prog *p, int frame, prog_port port, const void *host);
void prog_get(const prog *p, int frame, prog_port port, void *host);
/* Its address on the device; NULL before prog_bind and on a meta device. */
void *prog_port_at(const prog *p, int frame, prog_port port);

enum {
    PROG_F = 1 << PHASE_F,
    PROG_B = 1 << PHASE_B,
    PROG_W = 1 << PHASE_W,
    PROG_ALL = PROG_F | PROG_B | PROG_W
};
/* Runs the ops of the given phases in order. On the meta device it does nothing. */
void prog_replay(const prog *p, unsigned phases, const op_run *run);
/* Runs ops first .. end - 1. Unless ns_per_op is NULL, waits for each, and adds the time of op i to
 * ns_per_op[i]. */
void prog_replay_range(const prog *p, int first, int end, const op_run *run, int64_t *ns_per_op);

/* The debug walk: runs ops first .. end - 1 one by one and shows every tensor that was just
 * written. Stop by returning false. */
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
