/* Recording: the forward code of a model calls these builders once, layer by layer. Nothing is
 * computed: the graph notes each op with its operands, and prog_finish (prog.h) makes a program of
 * it, which is then replayed for every micro-batch.
 *
 * A value (val) is a number that stands for a matrix: a view into a buffer. Where the buffer lies
 * is its space. The builders check shapes and types as they go.
 *
 * Reading order: graph.h (recording), graph.c (values, buffers, emission), build.c (one builder per
 * op), derive.c (backward and recompute), fixed.c (gradients in integers), pack.c (memory layout of
 * a frame), prog.h / prog.c (binding and replay).
 *
 * Invariants
 *  1. A value is a matrix in a buffer; a buffer lives in one space.
 *  2. Several values may share a buffer: a view is a range of the columns or rows of another value,
 *     and an op that changes nothing on this rank (graph_tp_in) gives its operand a second name.
 *  3. An op that works in place makes a new value in the old buffer, and the old value can no
 *     longer be read. If the backward needs it, it is computed again.
 *  4. The first error is kept; later builder calls do nothing and return VAL_NONE. prog_finish
 *     reports it. So the code of a family is a straight line without error handling. */
#ifndef PROG_GRAPH_H
#define PROG_GRAPH_H

#include "base/arena.h"
#include "op/op.h"

typedef int32_t val;
enum { VAL_NONE = -1 };

/* Where a buffer lives. The owner of a space gives its base address when the program is bound. */
typedef enum space {
    SPACE_FRAME,  /* activations of one micro-batch: buffers that are never in use at the same time
                     share memory */
    SPACE_PINNED, /* inputs and outputs of one program in one frame: what is written there stays
                     until the next replay */
    SPACE_CONST,  /* constants of one program (rotary tables), for all its frames */
    SPACE_MASTER, /* fp32 parameters */
    SPACE_WORK,   /* parameters in the compute dtype, where that is not fp32 */
    SPACE_GRAD,   /* parameter gradients: fp32, or int64 with fixed_grads */
    SPACE_STATE,  /* KV caches */
    SPACE_FILE,   /* weights as a mapped file holds them; read only */
    SPACE_COUNT
} space;

/* What the backward computes again instead of keeping it from the forward, within blocks: nothing;
 * the outputs of cheap ops (OPF_CHEAP); all but the inputs of a block. */
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
    /* Parameter gradients lie at the beginning of the frame. Possible where one replay is the whole
     * step: a gradient is then not needed before its first write, and until then activations may
     * lie in its place. */
    bool grads_in_frame;
    /* Parameter gradients are int64 in fixed point (op/fixed.h): the deterministic mode. */
    bool fixed_grads;
    /* How many ranks there are along each axis, and which this is; copied. The connections
     * themselves come with op_run. NULL: one rank. */
    const mesh *mesh;
    /* Outside of graph_tp_in .. graph_tp_out a tensor-parallel rank holds 1/tp of the rows. */
    bool sequence_parallel;
    /* Where this graph is a part of a model (a chunk of its layers): how many random ops the parts
     * before it have. The parts then draw the same random numbers as the whole would. */
    uint32_t random_ops_before;
} graph_options;

/* The graph lives in `a`, as does the program made from it. */
graph *graph_new(arena *a, const graph_options *opt);
const graph_options *graph_get_options(const graph *g);
/* Tensor-parallel ranks, and which of them records; 1 and 0 without a mesh. */
int graph_tp(const graph *g);
int graph_tp_rank(const graph *g);

/* ---- values that come from outside ---- */

/* A matrix that the host writes before a replay: prog_find_port finds it by name. */
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
    /* From this gradient to the next one in the flat array: padding that is summed over ranks with
     * it counts, too. 0: no more than the gradient itself. */
    int64_t grad_room_bytes;
    int unit; /* parameters of one unit are gathered and reduced together (param/units.h) */
    bool trainable;
} graph_param_ref;
val graph_param(graph *g, const graph_param_ref *ref);
val graph_state(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols,
                int64_t offset_bytes);

/* Columns [col0, col0 + cols) of v. */
val graph_view(graph *g, val v, int64_t col0, int64_t cols);

/* Tensor parallelism (Shoeybi et al. 2019; sequence_parallel: Korthikanti et al. 2022). Between
 * tp_in and tp_out each rank multiplies by its part of the weights.
 *
 *                             graph_tp_in                     graph_tp_out
 *   plain              fwd    leaves x as it is               sums x over the ranks
 *                      bwd    sums the gradient               leaves the gradient as it is
 *   sequence_parallel  fwd    gathers the rows of all ranks   sums, and leaves each rank its rows
 *                      bwd    sums, and leaves its rows       gathers the rows of all ranks
 *
 * On one rank both do nothing. */
val graph_tp_in(graph *g, val x);
val graph_tp_out(graph *g, val x);
/* The whole of a matrix of which each tensor-parallel rank has some columns; cols: of the whole.
 * Has no gradient. */
val graph_tp_cols(graph *g, val x, int64_t cols);
/* Makes v an output: it stays in pinned memory after the replay, and prog_find_port finds it as
 * `name`. Messages and profiles still call it by its own name (graph_name). Must be called right
 * after v was made. */
void graph_output(graph *g, val v, const char *name);

/* Gradients that cross the border of the program: between chunks of a model, and for objectives
 * whose gradient is known only after the forward. Both do nothing in graphs that do not train.
 *   graph_root       the gradient of v comes from outside: the host writes it into the input
 *                    `name`, of v's shape, before the backward, which may overwrite it
 *   graph_keep_grad  the gradient of input v goes outside: it is kept as the output `name` */
void graph_root(graph *g, val v, const char *name);
void graph_keep_grad(graph *g, val v, const char *name);
/* Adds coef * (sum of v's elements) to what is minimised: an auxiliary loss of a layer, such as the
 * balance of experts. `scaled`: times op_run.grad_scale, as the language-model loss is. */
void graph_aux_loss(graph *g, val v, float coef, bool scaled);
/* Another program of the step has written to the gradient of this parameter before: this one adds
 * to it. */
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
/* Without dropout where the graph does not train. */
val graph_attention(graph *g, const op_attention *spec, val q, val k, val v, val start, val qpos);
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
