/* Recording: a family's forward code calls these builders once; the calls become a program.
 *
 * Reading order: graph.h (recording), graph.c (values, buffers, emission), build.c (one builder per
 * op), derive.c (backward and recompute), fixed.c (gradients in integers), pack.c (memory layout of
 * a frame), prog.h / prog.c (binding and replay).
 *
 * Invariants
 *  1. A value is a matrix in a buffer; a buffer lives in one space (a frame, pinned memory,
 * parameters, ...).
 *  2. Views share the buffer of their parent: a range of its columns or of its rows. What an op
 * leaves as it is for this rank (graph_tp_in) is another value in the same buffer.
 *  3. An op that works in place makes a new value in the old buffer; the old value can no longer be
 * read. Who needs it later (a backward) gets a recomputed copy.
 *  4. The first error is kept; later builder calls do nothing and return VAL_NONE. graph_finish
 * reports it. So a family is straight-line code without error handling. */
#ifndef PROG_GRAPH_H
#define PROG_GRAPH_H

#include "base/arena.h"
#include "op/op.h"

typedef int32_t val;
enum { VAL_NONE = -1 };

/* Where a buffer lives. The owner of a space gives its base address when the program is bound. */
typedef enum space {
    SPACE_FRAME,  /* activations of one micro-batch, planned by liveness */
    SPACE_PINNED, /* inputs and outputs of one program in one frame: keeps its contents between
                     replays */
    SPACE_CONST,  /* constants of one program, for all its frames */
    SPACE_MASTER, /* fp32 parameters */
    SPACE_WORK,   /* parameters in the compute dtype, where that is not fp32 */
    SPACE_GRAD,   /* parameter gradients: fp32, or int64 with fixed_grads */
    SPACE_STATE,  /* KV caches */
    SPACE_FILE,   /* weights as a mapped file holds them; read only */
    SPACE_COUNT
} space;

#define RECOMPUTE_POLICIES(W)                                                                      \
    W(RECOMPUTE_NONE, "none")                                                                      \
    W(RECOMPUTE_SELECTIVE, "selective")                                                            \
    W(RECOMPUTE_FULL, "full")
typedef enum recompute_policy { RECOMPUTE_POLICIES(LIST_ENUMERATOR) } recompute_policy;

typedef struct graph graph;

typedef struct graph_options {
    dev *dev;
    dtype dt;   /* storage of activations */
    bool train; /* record for training: dropout is active, the head makes gradients */
    recompute_policy recompute; /* of blocks */
    /* One replay is the whole step, so a parameter gradient lives only from its first write to the
     * end, and what died before that write may lie in its place: the frame begins with the
     * gradients. */
    bool grads_in_frame;
    /* Parameter gradients are int64 in fixed point (op/fixed.h): the deterministic mode. */
    bool fixed_grads;
    /* Sizes and place of this rank, copied; comms come with op_run. NULL: one rank. */
    const mesh *mesh;
    /* Between tp_out and tp_in a tensor-parallel rank has 1/tp of the rows. */
    bool sequence_parallel;
    /* Random ops that come before those of this graph, where it is a part of a model: all parts
     * together draw what the whole would. */
    uint32_t random_ops_before;
} graph_options;

/* The graph lives in `a`, as does the program made from it. */
graph *graph_new(arena *a, const graph_options *opt);
const graph_options *graph_get_options(const graph *g);
/* Tensor-parallel ranks, and which of them records; 1 and 0 without a mesh. */
int graph_tp(const graph *g);
int graph_tp_rank(const graph *g);

/* External values. */
val graph_input(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols);
typedef void (*const_fill)(void *dst, const void *ctx);
/* Filled once when the program is bound; `ctx` (ctx_bytes of plain data) is copied. */
val graph_const(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols, const_fill fill,
                const void *ctx, size_t ctx_bytes);
/* Where a parameter lives. Offsets in bytes from the base of its space. */
typedef struct graph_param_ref {
    const char *name;
    space where; /* SPACE_MASTER or SPACE_WORK */
    dtype dt;
    int64_t rows, cols, offset_bytes, grad_offset_bytes;
    /* Of the gradient and what is summed over ranks behind it, up to the next one; 0: no more. */
    int64_t grad_room_bytes;
    int unit; /* that it is gathered and reduced with (param/units.h) */
    bool trainable;
} graph_param_ref;
val graph_param(graph *g, const graph_param_ref *ref);
val graph_state(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols,
                int64_t offset_bytes);

/* Columns [col0, col0 + cols) of v. */
val graph_view(graph *g, val v, int64_t col0, int64_t cols);

/* Tensor parallelism (Shoeybi et al. 2019; sequence_parallel: Korthikanti et al. 2022). Between
 * tp_in and tp_out each rank multiplies by its part of the weights: what comes in is the same on
 * all ranks, what goes out is the sum of their products. The gradients of tp_in are summed
 * likewise. With sequence_parallel tp_in gathers the rows of all ranks, and tp_out leaves each its
 * rows of the sum. Nothing on one rank. */
val graph_tp_in(graph *g, val x);
val graph_tp_out(graph *g, val x);
/* All columns of a matrix that is shared out by columns; cols: of the whole. No gradient. */
val graph_tp_cols(graph *g, val x, int64_t cols);
/* Keeps v in pinned memory after the replay, where the host finds it as `name`; in messages and
 * profiles it keeps its own. Must be called right after v was made. */
void graph_output(graph *g, val v, const char *name);

/* Gradients that come from outside, and that go there, for objectives whose gradient is known only
 * after the forward, and for chunks of a model. Nothing in graphs that do not train.
 * graph_root: v's gradient is what the input `name`, of v's shape, holds when the backward begins;
 * the backward may change it. graph_keep_grad: the gradient of input v is made, and kept as the
 * output `name`. */
void graph_root(graph *g, val v, const char *name);
void graph_keep_grad(graph *g, val v, const char *name);
/* An auxiliary loss, for families whose layers have one (balance of experts): the objective has
 * coef * sum of v's elements more, times op_run.grad_scale if `scaled`, as the terms of the
 * language-model loss are. */
void graph_aux_loss(graph *g, val v, float coef, bool scaled);
/* Another program of the step writes the gradient of this parameter first: here it is added to. */
void graph_grad_has_begun(graph *g, val param);
/* Names the op that made v, for messages and dumps ("layers.3.attn"). */
void graph_name(graph *g, val v, const char *fmt, ...) ATH_PRINTF(3, 4);
int64_t graph_cols(const graph *g, val v);
int64_t graph_rows(const graph *g, val v);
bool graph_failed(const graph *g);
/* For families: a config that cannot be recorded. */
void graph_fail(graph *g, status code, const char *fmt, ...) ATH_PRINTF(3, 4);

/* Ops recorded between begin and end belong to one block: the unit of recompute. Blocks do not
 * nest. */
void graph_block_begin(graph *g, int layer);
void graph_block_end(graph *g);

/* One builder per op; optional operands may be VAL_NONE. Semantics and shapes: op/ops.def. */
/* no_grad_id: rows looked up under this id get no gradient; -1: none. */
val graph_embed(graph *g, val table, val ids, int32_t no_grad_id);
/* The table is this rank's part of `rows` rows: what is not in it is 0. Goes into graph_tp_out. */
val graph_embed_part(graph *g, val table, int64_t rows, val ids, int32_t no_grad_id);
/* Rows of an activation, by their numbers; a negative one gives zeros. */
val graph_take_rows(graph *g, val x, val rows);
val graph_linear(graph *g, val x, val w, val bias);
val graph_bias(graph *g, val x, val bias); /* nothing when there is none */
/* a + b; b's buffer is reused for the sum unless b is a parameter, an input or a view. */
val graph_add(graph *g, val a, val b);
/* width: columns of one group (one norm per head), 0 for the whole row. */
val graph_rmsnorm(graph *g, val x, val w, float eps, bool unit_offset, int width);
/* rmsnorm of whole rows of `cols` columns, of which each tensor-parallel rank has some, and
 * `copies` successive ranks the same. */
val graph_rmsnorm_ranks(graph *g, val x, val w, float eps, bool unit_offset, int64_t cols,
                        int copies);
val graph_layernorm(graph *g, val x, val w, val b, float eps, int width);
val graph_layernorm_ranks(graph *g, val x, val w, val b, float eps, int64_t cols, int copies);
/* Rotates the first `heads` heads of each row in place. */
val graph_rope(graph *g, val x, val pos, val table, int heads, int head_dim, int rotary_dim,
               bool interleaved);
typedef struct graph_attention_spec {
    int B, Tq, Tk, H, K, D, Dv;
    float scale, softcap, dropout;
    int window;
    bool causal;
    bool by_head;              /* k and v come from graph_kv_store */
    int all_heads, first_head; /* where H are some of all; 0: they are all */
} graph_attention_spec;
val graph_attention(graph *g, const graph_attention_spec *spec, val q, val k, val v, val start,
                    val qpos);
val graph_act(graph *g, val x, act_kind kind);
val graph_softcap(graph *g, val x, float cap); /* nothing when cap is 0 */
val graph_clamp(graph *g, val x, float limit); /* nothing when limit is 0 */
val graph_scale(graph *g, val x, float c);     /* nothing when c is 1 */
val graph_gated(graph *g, val gate, val up, act_kind kind);
/* Of the residual stream. Nothing when p is 0 or not training. */
val graph_dropout(graph *g, val x, float p);
/* Returns nll [N,1]; in training the gradients of x, w and bias are made here. Tensor-parallel: x
 * is what would go into tp_in, w and bias are this rank's part of the vocabulary; nll is the same
 * on all ranks. */
typedef struct graph_head_spec {
    int64_t chunk_rows; /* 0: automatic */
    float z_loss, softcap;
    int64_t vocab; /* of all ranks */
} graph_head_spec;
val graph_head_ce(graph *g, const graph_head_spec *spec, val x, val w, val bias, val targets);
/* nll [N,1] alone: its gradient is known when something derives it, and x, w and bias get theirs
 * then. Not tensor-parallel, without z_loss. */
val graph_head_nll(graph *g, const graph_head_spec *spec, val x, val w, val bias, val targets);
/* K heads of B sequences; the cache holds Tmax positions. */
val graph_kv_store(graph *g, val cache, val src, val qpos, int B, int K, int T, int Tmax);

#endif
