/* Private types of the prog module. */
#ifndef PROG_GRAPH_INT_H
#define PROG_GRAPH_INT_H

#include "base/names.h"
#include "prog/prog.h"

typedef struct value {
    tensor t;          /* data NULL until bound */
    const char *name;  /* "" when the family gave none */
    const char *port;  /* the name by which prog_find_port finds it; NULL: it is no port */
    int32_t buf;       /* index into graph.buf */
    int64_t offset;    /* of the first element, in elements from the buffer's start */
    int32_t producer;  /* forward op that made it; -1: external */
    int32_t out_index; /* which output of the producer */
    int32_t block;     /* block it was made in; -1: none */
    val parent;        /* the value of which it is a view; VAL_NONE: it is none */
    val views;         /* its newest view; VAL_NONE: it has none */
    val older_view;    /* of a view: the one before it of the same parent; VAL_NONE */
    val same_as;       /* the input that its op returned unchanged (OPF_SAME_MEMORY); VAL_NONE */
    val given_grad;    /* its gradient, if the backward does not make that; VAL_NONE */
    bool handed_over;  /* an output that is not read outside any more when its gradient comes */
    float aux;         /* coefficient of an auxiliary loss; 0: it is none */
    bool aux_scaled;
    const char *grad_name;     /* of an input: its gradient becomes the output of this name; NULL */
    bool overwritten;          /* an in-place op took its buffer */
    bool escapes;              /* read in forward outside its block */
    bool needs_grad;           /* depends on a trainable parameter */
    val param_grad;            /* of a parameter: its gradient value */
    const int64_t *experts_at; /* of a parameter: as in graph_param_ref */
    bool written;              /* of a parameter gradient: an op or program before has written it */
    bool leaves;               /* of a parameter gradient: as in graph_param_ref */
} value;

typedef struct buffer {
    space where;
    int64_t bytes;
    int64_t offset;      /* in its space; frame offsets come from pack.c */
    int32_t first, last; /* op indices between which it is live (frame buffers) */
    int32_t unit;        /* of parameters and their gradients (param/units.h) */
} buffer;

typedef struct op_rec {
    op_kind kind;
    op_entry entry;
    op_phase phase;
    op_attr attr;
    val in[OP_MAX_IN], out[OP_MAX_OUT], dout[OP_MAX_OUT], din[OP_MAX_IN];
    val shape_in[OP_MAX_IN], shape_out[OP_MAX_OUT]; /* of a backward: operands of the forward op */
    uint8_t acc, acc_param;                         /* as in op_call */
    int32_t ws_buf;                                 /* -1: none */
    int32_t block;
    bool recomputed;
    double flops, bytes;
    double flops_again; /* of these: work that the forward has done already (scores of attention) */
    op_cost bwd_input, bwd_weight; /* of a forward op, for its backward */
    double flops_bwd_again;        /* of bwd_input */
    prog_touch *touch;             /* reuse.c */
    int touches;
    op_fn fn;
    op_call call; /* with the addresses of frame `frame` */
    int32_t frame;
} op_rec;

typedef struct const_value {
    val v;
    const_fill fill;
    void *ctx;
    size_t ctx_bytes;
} const_value;

struct graph {
    arena *a;
    graph_options opt;
    err first_error;
    bool failed;
    value *value;
    int32_t n_values, cap_values;
    buffer *buf;
    int32_t n_bufs, cap_bufs;
    op_rec *op;
    int32_t n_ops, cap_ops;
    int32_t ops_before_weights; /* derive.c: of a split backward; 0: there is none */
    const_value *constant;
    int32_t n_constants, cap_constants;
    names params;    /* values */
    int32_t block;   /* current, -1 */
    uint32_t stream; /* of the next random op */
    int64_t pinned_bytes, const_bytes;
    struct head_parts *deferred; /* the head of graph_head_parts_nll; NULL: there is none */
    double all_bytes;            /* sum of all buffers, though many will share memory */
};

/* A range of ops that is replayed on a device with graphs. The first replay runs op by op, since
 * kernels may choose and reserve then; the second makes the graph. */
typedef enum prog_graph_state { GRAPH_NEW, GRAPH_SEEN, GRAPH_MADE, GRAPH_FAILED } prog_graph_state;
typedef struct prog_graph {
    int first, end, frame;
    bool first_micro; /* of the run: op_accumulates depends on it */
    prog_graph_state state;
    dev_graph *graph; /* NULL: none */
} prog_graph;

typedef struct prog_graphs {
    int n;
    prog_graph at[16]; /* further ranges run op by op */
} prog_graphs;

struct prog {
    graph *g;
    prog_stats stats;
    prog_frame *frame;
    int n_frames;
    prog_graphs *graphs;
    bool shares_constants; /* another program fills them */
};

/* graph.c */
/* Fails the recording if all its buffers together are more than any machine holds. Called between
 * ops only: the code that derives the backward of an op relies on a graph that has not failed. */
void graph_check_bytes(graph *g);
int32_t graph_new_buffer(graph *g, space where, int64_t bytes);
val graph_new_value(graph *g, const tensor *shape, int32_t buf, const char *name);
val graph_alloc_like(graph *g, const tensor *shape,
                     const char *name); /* contiguous, in the frame */
op_rec *graph_append(graph *g, const op_rec *r);
/* Rows [row0, row0 + rows) of v, for chunks of the head. Backward does not look through it. */
val graph_view_rows(graph *g, val v, int64_t row0, int64_t rows);
/* Records a forward op: infers outputs, allocates them (or takes the buffer of input `in_place` >=
 * 0), returns the op. */
op_rec *graph_emit(graph *g, op_kind kind, const op_attr *attr, const val *in, int n_in,
                   int in_place);
/* Gives the recorded op r one more input: v, as input i, which r adds to its output. The backward
 * passes the gradient of the output on to v. */
void graph_add_input(graph *g, op_rec *r, int i, val v);
/* Notes what r takes, with a workspace of its own. */
void graph_set_cost(graph *g, op_rec *r, const op_cost *cost);
/* An op without operands yet. */
op_rec graph_empty_op(op_kind kind, op_entry entry, op_phase phase, int32_t block);

/* build.c. Whether r begins the gradient din[i], which may have sums of earlier micro-batches, or adds to it. */
void graph_begin_or_add(const graph *g, op_rec *r, int i, bool begun);
/* Lets r, part of a head, make the gradient of the parameter in[i]. The first such op of a step
 * writes it in the first micro-batch, and adds to it in the others; further ones add. */
void graph_write_param_grad(graph *g, op_rec *r, int i);
/* Gathers the rows of all tensor-parallel ranks, of a value that needs no gradient. */
val graph_tp_rows(graph *g, val x);
/* head.c: the head over a vocabulary that ranks share, a chunk of rows at a time. */
val graph_head_parts(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets);
/* The same for a loss that is computed outside of the program: its gradients are made in the
 * backward, which begins with graph_head_parts_backward; that does nothing where there is no such
 * head, or where nobody gives the gradient of its nll. */
val graph_head_parts_nll(graph *g, const graph_head_spec *s, val x, val w, val bias, val targets);
void graph_head_parts_backward(graph *g);

/* async.c: with async_products, makes one op of a product and the collective before or behind it. */
void graph_merge_transfers(graph *g);

/* derive.c */
void graph_derive_backward(graph *g);

/* fixed.c: with fixed_grads, lets op number `index`, which is the last, write its parameter
 * gradients to temporaries, and appends the ops that add these to the integer sums. */
void graph_fix_grads(graph *g, int32_t index);

/* prog.c. What an op moves: what its rule says, or less. */
double graph_op_bytes(const graph *g, const op_rec *r);
/* reuse.c: notes for each op how long ago its operands were touched. Returns how many bytes outside of frame and scratch are. */
enum { OP_MAX_TOUCHES = 2 * (OP_MAX_IN + OP_MAX_OUT) };
double graph_find_reuse(graph *g, int64_t frame_bytes, int64_t scratch_bytes);

/* pack.c: gives each buffer an offset, so that buffers that live at the same time do not overlap in
 * memory. A buffer lives from op `first` to op `last`, both included. Returns the total bytes;
 * offsets are multiples of 64. A fixed item has its offset already; fixed ones do not overlap. */
typedef struct pack_item {
    int64_t bytes, offset;
    int32_t first, last;
    bool fixed;
} pack_item;
int64_t pack_items(pack_item *items, int n);
/* Packs the first `kept` items alone, into *border bytes, and the others into what is free among
 * these and behind; none of them lies on both sides of the border. */
int64_t pack_around_kept(pack_item *items, int kept, int n, int64_t *border);
int64_t pack_rounded(int64_t bytes); /* what a buffer takes */
/* The maximum over time of the sum of live bytes (each rounded to 64). */
int64_t pack_live_peak(const pack_item *items, int n);

#endif
