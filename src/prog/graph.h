/* Recording: the forward code of a model calls these builders once, layer by layer. Nothing is
 * computed: the graph notes each op with its operands, and prog_finish (prog.h) makes a program of
 * it, which is then replayed for every micro-batch.
 *
 * A value (val) is the number of a matrix in the graph. Its elements lie in a buffer, and the
 * buffer lies in a space (below). The builders check shapes and types at once.
 *
 * Reading order: graph.h (recording), graph.c (values, buffers, emission), build.c (one builder per
 * op), derive.c (backward and recompute), fixed.c (gradients in integers), pack.c (memory layout of
 * a frame), prog.h / prog.c (binding and replay).
 *
 * Invariants
 *  1. A value is a matrix in a buffer; a buffer lies in one space.
 *  2. Several values may share a buffer: a view is a range of the columns or rows of another value,
 *     and an op that changes nothing on this rank (graph_tp_in) leaves its output in its input.
 *  3. An op that works in place makes a new value in the old buffer, and the old value can no
 *     longer be read. If the backward needs the old value, it computes that again.
 *  4. The first error is kept, and prog_finish reports it. After it the builders do nothing and
 *     return VAL_NONE. So the code of a model family needs no error handling. */
#ifndef PROG_GRAPH_H
#define PROG_GRAPH_H

#include "base/arena.h"
#include "op/op.h"

typedef int32_t val;
enum { VAL_NONE = -1 };

/* Where a buffer lies. prog_bind is given the address at which each space begins. */
typedef enum space {
    SPACE_FRAME,   /* activations of one micro-batch: buffers that are never in use at the same time
                     share memory */
    SPACE_SCRATCH, /* what lives within one pass of a micro-batch, and found no room in its frame
                     (graph_options.shares_scratch): one area for all frames and programs */
    SPACE_PINNED,  /* inputs and outputs of one program in one frame: no other buffer shares their
                     memory, so they stay until the next replay */
    SPACE_CONST,   /* constants of one program (rotary tables), for all its frames */
    SPACE_MASTER,  /* fp32 parameters */
    SPACE_WORK,    /* parameters in the compute dtype, where that is not fp32 */
    SPACE_GRAD,    /* parameter gradients: fp32, or int64 with fixed_grads */
    SPACE_STATE,   /* KV caches */
    SPACE_FILE,    /* weights as a mapped file holds them; read only */
    SPACE_QUANT,   /* frozen weights in 4 bits (base/nf4.h); read only */
    SPACE_COUNT
} space;

/* What the backward computes again, within blocks, instead of keeping it from the forward: nothing;
 * the outputs of cheap ops (OPF_CHEAP); all values of a block but its inputs. */
#define RECOMPUTE_POLICIES(W)                                                                      \
    W(RECOMPUTE_NONE, "none")                                                                      \
    W(RECOMPUTE_SELECTIVE, "selective")                                                            \
    W(RECOMPUTE_FULL, "full")
typedef enum recompute_policy { RECOMPUTE_POLICIES(LIST_ENUMERATOR) } recompute_policy;

/* How context-parallel ranks get at the keys and values of all tokens:
 *   allgather  each gathers them, once for the forward and once for the backward (Llama 3, section 3.3.2)
 *   ring       they go round, while each rank works on those at hand (Liu et al. 2023)
 *   ulysses    they trade tokens for heads: each has all tokens of some heads (Jacobs et al. 2023) */
#define CONTEXT_KINDS(W)                                                                           \
    W(CONTEXT_ALLGATHER, "allgather")                                                              \
    W(CONTEXT_RING, "ring")                                                                        \
    W(CONTEXT_ULYSSES, "ulysses")
typedef enum context_kind { CONTEXT_KINDS(LIST_ENUMERATOR) } context_kind;

typedef struct graph graph;

typedef struct graph_options {
    dev *dev;
    dtype dt;   /* storage of activations */
    bool train; /* record for training: dropout is active, the head makes gradients */
    recompute_policy recompute; /* of blocks */
    bool
        keep_collectives; /* what a collective gave is kept under every policy: none runs a second time */
    /* Weight gradients come behind all other ops, where they have entries of their own: they are a part of the backward that
     * may run later (prog_stats.ops_back). What they read stays until then. */
    bool split_backward;
    /* Parameter gradients lie at the beginning of the frame. Possible where one replay is the whole
     * step: no gradient is there before its first write, and until then activations may use its
     * memory. */
    bool grads_in_frame;
    /* Several frames, or programs, hold activations at a time, and one of them runs: frames keep what
     * lives from one pass (forward, backward, weight gradients that run later) to another, and lend
     * what is free of them; all else lies in SPACE_SCRATCH. */
    bool shares_scratch;
    /* Parameter gradients are int64 in fixed point (op/fixed.h): the deterministic mode. */
    bool fixed_grads;
    /* How many ranks there are along each axis, and which this is; copied. The connections
     * themselves come with op_run. NULL: one rank. */
    const mesh *mesh;
    /* Each tensor-parallel rank holds 1/tp of the rows, but all between graph_tp_in and _tp_out. */
    bool sequence_parallel;
    /* Where it can be, what tensor-parallel ranks send travels beside a product, in pieces (GATHER_LINEAR, LINEAR_SUM). */
    bool async_products;
    /* Each context-parallel rank of the mesh holds 1/cp of the tokens of each sequence. Otherwise each
     * has them all. */
    bool context_parallel;
    context_kind context;
    /* Rows that go from one rank of experts to another at a time, as a multiple of those of an even load. */
    double expert_load;
    /* For a graph of some layers of a model (a chunk): how many random ops the chunks before it
     * have. The chunks then draw the same random numbers as one graph of all layers would. */
    uint32_t random_ops_before;
    /* No row of an activation depends on another one, to the bit, but through attention: products
     * are LINEAR with by_row. For programs whose rows are of several texts. */
    bool by_row;
    /* Activations may be rounded to 16 bits where they meet weights of 4 or 8 (LINEAR): in programs that write text. */
    bool rounds;
} graph_options;

/* The graph lives in `a`, as does the program made from it. */
graph *graph_new(arena *a, const graph_options *opt);
const graph_options *graph_get_options(const graph *g);
/* Tensor-parallel ranks, and which of them records; 1 and 0 without a mesh. */
int graph_tp(const graph *g);
int graph_tp_rank(const graph *g);
/* Ranks that share out experts. */
int graph_ep(const graph *g);
/* The same for context-parallel ranks; 1 and 0 where the graph does not share tokens. */
int graph_cp(const graph *g);
int graph_cp_rank(const graph *g);

/* ---- values that come from outside ---- */

/* A matrix that the host writes before a replay: prog_find_port finds it by name. */
val graph_input(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols);
typedef void (*const_fill)(void *dst, const void *ctx);
/* Filled once when the program is bound; `ctx` (ctx_bytes of plain data) is copied. Programs that lie at the same
 * place share what is filled from the same bytes, so those between members must be set, too. */
val graph_const(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols, const_fill fill,
                const void *ctx, size_t ctx_bytes);
/* Where a parameter lies. Offsets are in bytes from the beginning of its space. */
typedef struct graph_param_ref {
    const char *name;
    space where; /* SPACE_MASTER, SPACE_WORK or SPACE_FILE */
    dtype dt;
    int64_t rows, cols, offset_bytes, grad_offset_bytes;
    /* Bytes from the beginning of this gradient to that of the next one in the flat array. The gap
     * between the two is included, since ranks sum it, too. 0: there is no gap. */
    int64_t grad_room_bytes;
    int unit; /* parameters of one unit are gathered and reduced together (param/units.h) */
    bool trainable;
    bool
        grad_leaves; /* its gradient is taken away after each micro-batch, and begins anew with the next one */
    /* Of the matrices of experts in a file: as in op_experts. It lives as long as the program. */
    const int64_t *experts_at;
} graph_param_ref;
val graph_param(graph *g, const graph_param_ref *ref); /* one value for each parameter */
/* A KV cache, or a part of one, at this offset in SPACE_STATE. */
val graph_state(graph *g, const char *name, dtype dt, int64_t rows, int64_t cols,
                int64_t offset_bytes);

/* Columns [col0, col0 + cols) of v. */
val graph_view(graph *g, val v, int64_t col0, int64_t cols);

/* Tensor parallelism (Shoeybi et al. 2019; sequence_parallel: Korthikanti et al. 2022). Between
 * tp_in and tp_out each rank multiplies by its part of the weights (param/split.h).
 *
 *                             graph_tp_in                     graph_tp_out
 *   plain              fwd    leaves x as it is               sums x over the ranks
 *                      bwd    sums the gradient               leaves the gradient as it is
 *   sequence_parallel  fwd    gathers the rows of all ranks   sums, each rank keeps its own rows
 *                      bwd    sums, each keeps its own rows   gathers the rows of all ranks
 *
 * On one rank both return x. */
val graph_tp_in(graph *g, val x);
val graph_tp_out(graph *g, val x);
/* Gathers the columns of a matrix of which each tensor-parallel rank has some; cols: of all ranks.
 * The result has no gradient. */
val graph_tp_cols(graph *g, val x, int64_t cols);

/* Context parallelism: each rank has some tokens of each sequence, and all that is not attention treats them as
 * it would treat others. order: see GATHER_KV.
 *   graph_cp_kv      keys k and values v of all tokens, side by side
 *   graph_cp_heads   of x [N, H*D] the heads of this rank, of all tokens; graph_cp_tokens is the way back */
val graph_cp_kv(graph *g, val k, val v, val order);
val graph_cp_heads(graph *g, val x, val order);
val graph_cp_tokens(graph *g, val x, val order);

/* Makes v an output: it stays in pinned memory after the replay, and prog_find_port finds it as
 * `name`. Messages and profiles still call it by its own name (graph_name). Must be called right
 * after v was made. */
void graph_output(graph *g, val v, const char *name);

/* Gradients that cross the border of the program: between chunks of a model, and for objectives
 * whose gradient is known only after the forward. Both do nothing in graphs that do not train.
 *   graph_root       the gradient of v comes from outside: before the backward, the host writes it
 *                    to the input `name`, of v's shape. The backward may overwrite it
 *   graph_keep_grad  the gradient of input v goes outside: it becomes the output `name`
 *   graph_hand_over  v is the output `name`, and a root. Its gradient comes when whoever works with v
 *                    has it, so it may lie where v lay */
void graph_root(graph *g, val v, const char *name);
void graph_keep_grad(graph *g, val v, const char *name);
void graph_hand_over(graph *g, val v, const char *name, const char *grad_name);
/* Adds coef * (sum of v's elements) to what is minimised: an auxiliary loss of a layer, such as the
 * balance of experts. scaled: its gradient is multiplied by op_run.grad_scale, as that of the
 * language-model loss is. */
void graph_aux_loss(graph *g, val v, float coef, bool scaled);
/* Says that an earlier program of the step writes the gradient of this parameter: this program adds
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
/* The table is this rank's part of a table of `rows` rows. An id that is in another rank's part
 * gives zeros; graph_tp_out then sums the results of the ranks. */
val graph_embed_part(graph *g, val table, int64_t rows, val ids, int32_t no_grad_id);
/* Rows of an activation, by their numbers; a negative one gives zeros. */
val graph_take_rows(graph *g, val x, val rows);
/* ids of `by` rows later, within sequences of T rows and, with `start`, within documents; where there
 * is none `otherwise`. */
val graph_ahead(graph *g, val like, val x, val start, int T, int by, int32_t otherwise);
val graph_concat(graph *g, val a, val b); /* columns side by side */
val graph_linear(graph *g, val x, val w, val bias);
/* The same as fp32, whatever the program's dtype. */
val graph_linear_exact(graph *g, val x, val w, val bias);
val graph_bias(graph *g, val x, val bias); /* returns x if bias is VAL_NONE */
/* a + b. If b is the product that was recorded last, that op adds a. Otherwise an op of its own
 * does: in b's buffer, if b is a whole value of this block that its own backward does not read. */
val graph_add(graph *g, val a, val b);
/* width: columns of one group (one norm per head), 0 for the whole row. */
val graph_rmsnorm(graph *g, val x, val w, float eps, bool unit_offset, int width);
/* rmsnorm of rows that tensor-parallel ranks share: a whole row has `cols` columns, each rank has
 * some of them, and `copies` successive ranks have the same. */
val graph_rmsnorm_ranks(graph *g, val x, val w, float eps, bool unit_offset, int64_t cols,
                        int copies);
val graph_layernorm(graph *g, val x, val w, val b, float eps, int width);
val graph_layernorm_ranks(graph *g, val x, val w, val b, float eps, int64_t cols, int copies);
/* Rotates the first `heads` heads of each row in place: of each the elements [first, first +
 * rotary_dim). */
val graph_rope(graph *g, val x, val pos, val table, int heads, int head_dim, int first,
               int rotary_dim, bool interleaved);
/* rmsnorm of each head of head_dim columns, and rope of all of them, in one pass. */
val graph_norm_rope(graph *g, val x, val w, float eps, bool unit_offset, val pos, val table,
                    int head_dim, int first, int rotary_dim, bool interleaved);
/* What ATTENTION knows of queries beside their numbers; VAL_NONE: nothing. */
typedef struct graph_seen {
    val start, end; /* which keys each query sees */
    val qpos;       /* position of the first query of each sequence */
    val bias;       /* of scores, by distance */
    val sinks;      /* a score of each head that has no key */
} graph_seen;
static const graph_seen GRAPH_SEES_ALL = {VAL_NONE, VAL_NONE, VAL_NONE, VAL_NONE, VAL_NONE};
/* Without dropout where the graph does not train. */
val graph_attention(graph *g, const op_attention *spec, val q, val k, val v,
                    const graph_seen *seen);
/* Attention to keys and values that go round (RING_ATTENTION); first, sinks may be VAL_NONE. */
val graph_ring_attention(graph *g, const op_attention *spec, val q, val k, val v, val first,
                         val end, val sinks);
/* Latent attention (LATENT_KV): keys of all heads, behind them their values. */
val graph_latent_kv(graph *g, const op_heads *spec, val kv, val rope);
val graph_headwise(graph *g, const op_heads *spec, val x, val w); /* without gradient */
val graph_act(graph *g, val x, act_kind kind);
val graph_softcap(graph *g, val x, float cap); /* returns x if cap is 0 */
val graph_clamp(graph *g, val x, float limit); /* returns x if limit is 0 */
val graph_scale(graph *g, val x, float c);     /* returns x if c is 1 */
val graph_gated(graph *g, val gate, val up, act_kind kind);
/* Dropout of the residual stream. Returns x if p is 0, or if the graph does not train. */
val graph_dropout(graph *g, val x, float p);
/* The same of something that tensor-parallel ranks have columns of, as inside a branch. */
val graph_dropout_columns(graph *g, val x, float p);
/* The same where x itself is still read. */
val graph_dropout_copy(graph *g, val x, float p);
/* The head with its loss: the negative log-likelihood of the targets, nll [N,1] for x [N,C]. In
 * training the gradients of x, w and bias are made here, too. Tensor-parallel: w and bias are
 * this rank's part of the vocabulary; x goes through tp_in here; nll is the same on all ranks. w may
 * be in any stored format where it is not trained. */
typedef struct graph_head_spec {
    int64_t chunk_rows; /* 0: automatic */
    float z_loss, softcap;
    float weight; /* of the loss, in its gradients; for the only head of a program 1 */
    float distill, temperature; /* of graph_head_distill */
    int64_t vocab;              /* of all ranks */
} graph_head_spec;
val graph_head_ce(graph *g, const graph_head_spec *spec, val x, val w, val bias, val targets);
/* The same with a teacher's logits [N,V], or with those of `tokens` [N,k] (HEAD_DISTILL), on one tensor-parallel rank, with
 * w in the format of x. */
val graph_head_distill(graph *g, const graph_head_spec *spec, val x, val w, val bias, val targets,
                       val teacher, val tokens);
/* The same nll [N,1], for a loss that is computed outside of the program: the gradient of nll comes
 * by graph_root, and those of x, w and bias are made in the backward. Without z_loss. */
val graph_head_nll(graph *g, const graph_head_spec *spec, val x, val w, val bias, val targets);
/* Writes src, the keys or values of T positions, to the cache at positions qpos: K heads of B
 * sequences. The cache has room for Tmax positions. Returns the cache, for graph_attention. */
val graph_kv_store(graph *g, val cache, val src, val qpos, int B, int K, int T, int Tmax);
/* The same for a cache of pages: row n goes to place at[n] of it (PAGE_STORE); turned: of keys. */
val graph_page_store(graph *g, val cache, val src, val at, int K, int page, bool turned);
/* Attention of rows of several sequences with such caches (PAGE_ATTENTION); v and sinks may be VAL_NONE. */
val graph_page_attention(graph *g, const op_paged *spec, val q, val k, val v, val pages, val place,
                         val sinks);

/* ---- linear attention by the gated delta rule ---- */

val graph_delta_gates(graph *g, val ba, val A_log, val dt_bias);
val graph_delta(graph *g, const op_delta *d, val qk, val v, val gates, val start);
/* The same of sequences that go on: the state is changed in place, and o returned (DELTA_STATE). */
val graph_delta_state(graph *g, const op_delta *d, val state, val qk, val v, val gates, val span);
/* Each column convolved over time with W taps of its own, then SiLU; of sequences that go on (CONV_STATE). */
val graph_conv(graph *g, int B, int T, int W, val x, val w, val start);
val graph_conv_state(graph *g, int B, int T, int W, val state, val x, val w, val span);

/* ---- experts; attributes of all: r->experts is E ---- */

/* Which experts each token goes through, and what that needs. */
typedef struct graph_routes {
    val probs;   /* [N,E] */
    val weights; /* [N,k] */
    val picks;   /* [N,k] */
    val rows;    /* [M,1]: the token of each place, sorted by expert; M = N*k without a capacity */
    val slots;   /* [N,k]: the place of each pick; -1: it is dropped */
    val starts;  /* [1,E+1]: the first place of each expert */
} graph_routes;
/* logits [N,E]; bias [1,E] or VAL_NONE: ROUTER_PICK. */
graph_routes graph_route(graph *g, const op_router *r, val logits, val bias);
/* x [M,I] in the order of places, w [E*O,I]; returns [M,O]. */
val graph_expert_linear(graph *g, const op_router *r, val x, val w, val starts);
/* The whole part of experts, whose weights ranks share out: w_in [E/ep*H,C], w_out [E/ep*C,F]; x and z [M,C]. Only where graph_ep is above
 * 1. */
typedef struct graph_spread {
    val z, rounds; /* rounds [1,1]: EXPERT_RANKS */
} graph_spread;
graph_spread graph_expert_ranks(graph *g, const op_router *r, act_kind act, val x, val w_in,
                                val w_out, val starts);
/* z [M,C] of all places, back to tokens: [N,C], plus res [N,C] or VAL_NONE. */
val graph_expert_sum(graph *g, val z, const graph_routes *to, val res);
/* Load [2S,E] of one router, S = r->sequences, plus that of others before it, or VAL_NONE. */
val graph_router_load(graph *g, const op_router *r, const graph_routes *to, val before);
/* The loss of that load, N times that of one token; r->layers routers. counts [1,E] or VAL_NONE: of the
 * picks of more rows than these. */
val graph_router_balance(graph *g, const op_router *r, val load, val counts);
/* The z-loss of the rows of logits, N times that of one token. */
val graph_router_z(graph *g, val logits);
/* Picks, probs, entropy and taken picks of each expert, for reports: [4,E]. */
val graph_router_tally(graph *g, const op_router *r, const graph_routes *to);

#endif
