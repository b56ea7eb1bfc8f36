/* The op table: what operations exist, what each backward needs, and which kernel runs it.
 *
 * Reading order: ops.def (the table and the exact semantics), this file (the contract of a kernel),
 * infer.c and rules/ (output shapes, workspace, FLOPs), ref/ (the portable reference, compiled for float and
 * for double), cpu/ (tuned kernels, compiled once per instruction set), table.c (which kernel is
 * chosen), cuda/ (kernels for CUDA devices).
 *
 * Tensors are matrices: `rows` rows of `cols` contiguous elements, `ld` elements apart. An
 * activation [B,T,C] has rows = B*T and cols = C; the query part of a packed [B,T,(H+2K)*D] buffer
 * has cols = H*D and ld = (H+2K)*D. All other dimensions (B, T, H, K, D) are attributes of the op.
 *
 * A kernel returns void, allocates nothing, and checks nothing that `infer` could check: everything
 * was verified when the program was recorded. It must give the same bits on every call, whatever
 * the number of threads. */
#ifndef OP_OP_H
#define OP_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "comm/mesh.h"
#include "dev/dev.h"

enum { OP_MAX_IN = 8, OP_MAX_OUT = 4, OP_MAX_HEAD_DIM = 1024, OP_HEAD_STATS_COLS = 3 };
enum { OP_MAX_TAPS = 16 }; /* of a convolution over time */

/* Which input has the sinks. */
enum { ATTENTION_SINKS = 7, PAGE_ATTENTION_SINKS = 5, RING_SINKS = 5 };

typedef struct tensor {
    void *data; /* NULL: absent optional input, or a value on the meta device */
    dtype dt;
    int64_t rows, cols, ld; /* rows 0: absent */
} tensor;

typedef enum op_kind {
#define OP(ID, ...) OP_##ID,
#include "op/ops.def"
#undef OP
    OP_COUNT
} op_kind;

/* Under which class a profile (`bench`) counts the time of an op. */
typedef enum op_profile {
    OPP_MATMUL,
    OPP_HEAD, /* the largest product with softmax, loss and their gradients */
    OPP_ATTENTION,
    OPP_NORM,
    OPP_ACTIVATION,
    OPP_ROTARY,
    OPP_ELEMENTWISE, /* additions, copies, embeddings, dropout */
    OP_PROFILES
} op_profile;

typedef enum op_flag {
    OPF_CHEAP = 1,        /* bandwidth-bound: selective recompute drops its outputs */
    OPF_RANDOM = 2,       /* draws random numbers, from run seed, step and the stream in its attr */
    OPF_COMMUNICATES = 4, /* a collective */
    OPF_REMADE = 8,       /* its outputs are dropped under every recompute policy and made again */
    OPF_FUSED_BWD = 16,   /* bwd_input also produces the weight gradients; there is no bwd_weight */
    OPF_INPLACE_0 = 32,   /* out 0 may be the same memory as in 0 (and din 0 as dout 0) */
    OPF_INPLACE_1 = 64,   /* out 0 may be the same memory as in 1 */
    OPF_GRAD_IN_FWD = 128, /* fwd also computes the gradients, if din[] is given (the head) */
    OPF_SAME_MEMORY = 256, /* out 0 is in 0, which may still be read; din 0 takes dout 0's memory */
    OPF_SUMS_GRAD = 512,   /* adds in 0 to out 0, the sum of a parameter's gradient */
    OPF_PRODUCT = 1024,    /* multiplies in 0 by in 1, in the forward pass row by row */
    OPF_FIXES = 4096, /* adds to gradients of parameters in fixed point by itself, where they are */
    OPF_STORES = 2048 /* of in 0 it writes what in 1 has, and reads nothing */
} op_flag;

typedef enum act_kind {
    ACT_GELU_TANH,
    ACT_GELU_EXACT,
    ACT_SILU,
    ACT_RELU,
    ACT_RELU2,
    ACT_SIGMOID,
    ACT_SOFTCAP, /* with a constant; not for gated */
    ACT_CLAMP
} act_kind;

typedef struct op_attention {
    int32_t B, Tq, Tk, H, K, D, Dv;
    float scale, softcap; /* softcap 0: none */
    int32_t window;       /* keys j with 0 <= i - j < window; 0 = no window */
    int32_t chunk;        /* keys of the same piece of so many positions; 0 = all */
    bool causal;
    bool by_head; /* keys and values lie as in a cache of KV_STORE */
    float dropout;
    uint32_t stream; /* of random numbers; each random op has its own */
    /* If this rank has H of more heads: how many there are (0: H), and which is the first here. */
    int32_t all_heads, first_head;
    int32_t bias_zero; /* the row of the bias for a key at the query's own position */
    /* Visible (query, key) pairs of a head of a sequence, for FLOPs, where start and end say all of
     * what is seen; 0: counted from the other members. */
    float pairs;
} op_attention;

/* Of LINEAR. */
typedef struct op_linear {
    bool exact;  /* y is f32, whatever the program's dtype */
    bool by_row; /* the bits of a row of y do not depend on the other rows */
    bool
        rounds; /* x may be rounded to 16 bits, with a scale for each 32 elements, where w is of 4 or 8 bits */
} op_linear;

/* Of GATHER_LINEAR and LINEAR_SUM. */
typedef struct op_async {
    op_linear linear; /* first, so that LINEAR takes the same attributes */
    bool shares_rows; /* outside of the product each rank has 1/ranks of the rows */
    int32_t ranks, rank, pieces;
    const char *what; /* for comm_call */
} op_async;

/* Of RING_ATTENTION. */
typedef struct op_ring {
    op_attention attention; /* first, so that ATTENTION takes the same attributes */
    int32_t ranks, rank;
    const char *what; /* for comm_call */
} op_ring;

/* Of a cache of pages. */
typedef struct op_paged {
    int32_t page;     /* positions of a page */
    int32_t K;        /* kv heads */
    bool turned;      /* of PAGE_STORE: the cache of keys */
    int32_t H, D, Dv; /* of PAGE_ATTENTION: query heads, columns of a head */
    int32_t window;   /* this and the rest: as in op_attention */
    int32_t chunk;
    float scale, softcap;
} op_paged;

/* Of products and keys of latent attention. */
typedef struct op_heads {
    int32_t heads;
    int32_t D, Dv;   /* LATENT_KV: columns of a head's key without position, and of its value */
    int32_t in, out; /* HEADWISE, this and the next */
    int32_t tail, step, first;
    bool turned, zero;
} op_heads;

/* Of a router of experts. */
typedef struct op_router {
    int32_t experts, k; /* E, and how many a token goes through */
    int32_t groups, kept, best;
    int32_t layers; /* ROUTER_BALANCE: routers whose load it is */
    int32_t
        sequences; /* ROUTER_LOAD, ROUTER_SORT: of which rows are; each has a load of its own. 0: one */
    int32_t capacity; /* ROUTER_SORT: picks of a sequence that an expert takes; 0: all */
    float scale;
    bool sigmoid, renormalise;
} op_router;

/* Of the gated delta rule. */
typedef struct op_delta {
    int32_t B, T, Hk, Hv, Dk, Dv;
    float q_scale, k_scale;
    bool by_row; /* DELTA_STATE: T rows of all sequences, each computed as if it were alone */
} op_delta;

/* Of the matrices of n experts. */
typedef struct op_experts {
    int32_t n;
    bool by_row; /* the bits of a row of y do not depend on the other rows */
    bool rounds; /* as of LINEAR */
    /* Where each expert's matrix begins, in bytes from the first; NULL: one behind the other. Not
     * copied: it must live as long as the program. */
    const int64_t *at;
} op_experts;

/* Whether EXPERT_LINEAR multiplies so many rows of all experts one by one, which has other bits than tiles of rows. Ranks
 * that share out experts ask it of the whole, too. */
static inline bool op_experts_have_few(int64_t rows, int64_t experts) {
    enum { FEW_ROWS = 4 };
    return rows <= FEW_ROWS * experts;
}

/* Of EXPERT_RANKS. */
typedef struct op_expert_ranks {
    int32_t experts;     /* E of all ranks; each has E / ranks in a row */
    int32_t ranks, rank; /* along MESH_EP */
    int32_t rows;        /* that go from one rank to another at a time, at most */
    act_kind act;
    bool gated; /* act(gate) * up, the columns of one product, in place of act */
    bool fixed; /* gradients of weights are sums of integers (op/fixed.h) */
    const char *what;
} op_expert_ranks;

/* Attributes; which member is meant follows from the op kind. Plain data, copied as
 * bytes. */
typedef union op_attr {
    struct {
        dtype dt;           /* of y */
        int32_t no_grad_id; /* -1: none */
        /* If the table is a part of a larger one: the rows of that, and which is the first here. */
        int64_t all_rows;
        int32_t first;
    } embed;
    op_linear linear;
    op_async async; /* gather_linear, linear_sum */
    struct {
        float eps;
        bool unit_offset; /* multiply by (1 + w) */
        int32_t width;    /* columns of one group; 0: the whole row */
        /* With _RANKS: columns of a whole row, how many ranks hold the same ones, which axis. */
        int64_t all_cols;
        int32_t copies;
        mesh_axis axis;
    } norm; /* rmsnorm, layernorm, and these with _ranks */
    struct {
        int32_t T, by, otherwise;
    } ahead;
    struct {
        int32_t heads; /* leading heads of the row that are rotated; the rest of the row passes
                          through */
        int32_t head_dim, rotary_dim;
        int32_t first;    /* element of a head with which the rotated ones begin */
        bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + rotary_dim/2) */
    } rope;
    struct {
        float eps;
        bool unit_offset;                    /* as of norm */
        int32_t head_dim, rotary_dim, first; /* as of rope */
        bool interleaved;
    } norm_rope;
    op_attention attention;
    op_ring ring;
    struct {
        act_kind kind;
        float c;
    } act; /* act, gated */
    struct {
        float c;
    } scale;
    struct {
        float c;
        bool scaled; /* y is multiplied by run->grad_scale */
    } fill;
    struct {
        float p;
        uint32_t stream;
        /* If this rank has some of more rows or columns: how many there are, and which is the first here. */
        int64_t all_rows, first_row, all_cols, first_col;
    } dropout;
    struct {
        int64_t chunk_rows;         /* rows of logits that exist at a time; 0 = automatic */
        float z_loss;               /* coefficient of mean(logsumexp^2) */
        float weight;               /* of the objective; for the only head of a program 1 */
        float softcap;              /* of the logits; 0: none */
        float distill, temperature; /* HEAD_DISTILL: weight of the teacher, and of both softmaxes */
        bool with_grad; /* HEAD_CE: dx (out 2) and dw (din 1) are made in the forward pass */
        /* HEAD_STATS, HEAD_GRAD: size of the whole vocabulary, and the id of this rank's logit 0. */
        int32_t all_rows, first;
        dtype dt; /* HEAD_GRAD: of dlogits */
    } head;
    struct {
        mesh_axis axis;
        int32_t ranks, rank;
        int64_t cols;     /* GATHER_COLS */
        const char *what; /* for comm_call */
    } comm;
    struct {
        int32_t B, T, Tmax, K; /* K heads, of which each row has its part */
    } kv;
    op_paged paged; /* page_store, page_attention */
    op_heads heads; /* latent_kv, headwise */
    op_router router;
    op_experts experts; /* expert_linear */
    op_expert_ranks expert_ranks;
    op_delta delta;
    struct {
        int32_t B, T, W; /* taps */
        bool by_row;     /* CONV_STATE: as of op_delta */
    } conv;
    uint8_t raw[88];
} op_attr;

/* What is the same for every op of one replay. On some devices a kernel runs after op_launch has
 * returned. The run itself is then copied, but what it points to must stay until dev_sync, and
 * *fixed_overflow may be read only after dev_sync. */
typedef struct op_run {
    dev *dev;
    const mesh *mesh;     /* for programs that communicate */
    uint64_t seed;        /* train.seed */
    uint64_t step;        /* optimizer step, for random ops */
    uint32_t micro_batch; /* index inside the step (global, over ranks) */
    int frame;            /* of the program: where its activations lie (prog/prog.h) */
    bool first_micro;     /* acc_param does not add (op_accumulates): the step's gradients begin */
    float grad_scale;     /* d(objective)/d(sum of nll): 1 / unmasked tokens of the whole step */
    float fixed_unscale;  /* FIXED_ADD: contributions are multiplied by it: 1 / the loss scale */
    float fixed_limit;    /* FIXED_ADD: largest magnitude of a contribution (op/fixed.h) */
    bool *fixed_overflow; /* set by a kernel when one was larger, or NaN; kernels never clear it */
} op_run;

/* One call of a kernel. In fwd only in/out/ws are set (and din for OPF_GRAD_IN_FWD); in bwd_*
 * in/out hold what ops.def says that backward reads (others have data NULL), dout the gradients of
 * the outputs, din where the gradients of the inputs go (data NULL: not wanted). */
typedef struct op_call {
    op_kind kind;
    const op_attr *attr;
    tensor in[OP_MAX_IN], out[OP_MAX_OUT];
    tensor dout[OP_MAX_OUT], din[OP_MAX_IN];
    uint8_t acc;       /* bit i: add to din[i] (FIXED_ADD: out[i]) instead of writing it */
    uint8_t acc_param; /* bit i: the same, unless run->first_micro; for gradients of parameters */
    void *ws;          /* workspace of the size that infer asked for, 64-byte aligned */
    int64_t ws_bytes;  /* that size */
    const op_run *run;
} op_call;

static inline bool op_accumulates(const op_call *c, int i) {
    return ((c->acc >> i) & 1u) || (((c->acc_param >> i) & 1u) && !c->run->first_micro);
}

typedef void (*op_fn)(const op_call *c);

/* Runs a kernel of c->kind on the device, in the order of calls. On the CPU it runs
 * at once; elsewhere the call is copied, with c->run, and may run later. */
void op_launch(dev *d, op_fn fn, const op_call *c);
/* Before a graph (dev_graph_launch) that was made of op_launch calls: it runs as if the calls had
 * `run`, in which first_micro is as it was then. */
void op_set_run(dev *d, const op_run *run);

struct op_infer;

/* The kernels of one op on one backend. NULL: this op needs no such kernel. */
typedef struct op_impl {
    op_fn fwd, bwd_input, bwd_weight;
    /* Bytes of c->ws that fwd, bwd_input and bwd_weight want, in this order, into a zeroed array.
     * NULL: none. May depend on shapes, attributes, want_grad, and on threads and instruction set
     * of io->dev (also set on a meta device: a plan made there must equal the real run). */
    void (*workspace)(const struct op_infer *io, int64_t ws[3]);
} op_impl;

/* One row of the table. Masks: bit i = input or output i. */
typedef struct op_class {
    const char *name;
    const char *ins, *outs; /* space-separated names; "?" after a name: optional */
    op_profile profile;
    uint8_t diff;    /* inputs that can receive a gradient from bwd_input */
    uint8_t weights; /* inputs whose gradient is a weight gradient (bwd_weight, or fused) */
    /* Inputs whose gradient is that of out 0, unchanged (the summands of a sum): prog gives them
     * the same buffer, and no kernel runs. graph_add may give an optional one after the op was
     * recorded: the residual of a product. */
    uint8_t passes;
    uint8_t bwd_in, bwd_out; /* inputs and outputs that the backward reads: they are kept for it */
    uint8_t looked_up;  /* inputs of which the forward reads at most as many rows as out 0 has */
    uint8_t shape_only; /* inputs whose elements are never read, only their shape */
    uint32_t flags;     /* op_flag */
} op_class;

extern const op_class op_classes[OP_COUNT];

int op_inputs(op_kind kind); /* slots, optional ones included */
int op_outputs(op_kind kind);
bool op_input_optional(op_kind kind, int i);
/* Name of input or output i ("x", "bias"), without the "?". */
const char *op_input_name(op_kind kind, int i, char out[16]);
const char *op_output_name(op_kind kind, int i, char out[16]);

/* What a call of a kernel takes. */
typedef struct op_cost {
    int64_t ws_bytes;    /* workspace */
    double flops, bytes; /* multiply-add = 2; memory traffic, read + written once */
} op_cost;

/* What must be known of an op to record it. The caller sets kind, attr, in[] (absent: rows = 0),
 * dev and want_grad; op_infer_call sets the rest. No data is read. */
typedef struct op_infer {
    op_kind kind;
    const op_attr *attr;
    tensor in[OP_MAX_IN];
    dev *dev;          /* not NULL; may be meta */
    uint8_t want_grad; /* bit i: input i wants a gradient */
    /* results */
    tensor out[OP_MAX_OUT]; /* rows 0: this output does not exist in this call */
    op_cost fwd, bwd_input, bwd_weight;
    double flops_bwd_again; /* of bwd_input: what forward has computed before */
} op_infer;

/* Checks shapes and dtypes, fills the results. ST_USAGE names the op and the two sizes that
 * disagree. */
status op_infer_call(op_infer *io, err *e) ATH_MUST_USE;

/* The part of rank `rank` when `ranks` ranks share n things as evenly as possible. */
typedef struct op_part {
    int64_t first, n;
} op_part;
static inline op_part op_part_of(int64_t n, int64_t ranks, int64_t rank) {
    return (op_part){n * rank / ranks, n * (rank + 1) / ranks - n * rank / ranks};
}

/* Visible (query, key) pairs of one head of one sequence of ATTENTION, as far as they are known without
 * documents. */
double op_attention_pairs(const op_attention *a);

/* Columns of one group of a norm, for rows of `cols` columns. */
int64_t op_norm_width(const op_attr *attr, int64_t cols);

/* The matrix of expert e in w of EXPERT_LINEAR, or in its gradient. */
static inline void *op_expert_at(const op_attr *attr, const tensor *w, int64_t e) {
    if (attr->experts.at) return (char *)w->data + attr->experts.at[e];
    return (char *)w->data + w->rows / attr->experts.n * e * dtype_span_bytes(w->dt, w->ld);
}

/* Rows that the slots of EXPERT_SUM name. */
static inline int64_t op_expert_rows(const tensor *slots) {
    int64_t n = 0;
    for (int64_t i = 0; i < slots->rows; i++)
        for (int64_t j = 0; j < slots->cols; j++)
            n += ((const int32_t *)slots->data)[i * slots->ld + j] >= 0;
    return n;
}

/* Rows of logits that the head makes at a time: attr.chunk_rows, or the automatic choice. */
int64_t op_head_chunk_rows(const op_attr *attr, int64_t rows, int64_t vocab);

/* The kernels for an op whose activations have dtype `dt` on this device. On the CPU and its twin:
 * the tuned kernel for the device's instruction set, else the portable reference.
 * ATHANOR_KERNELS=reference in the environment forces the reference everywhere. On a meta device:
 * kernels that do nothing, if its kind has kernels. There is no fallback to another dtype or
 * device: NULL means that there is no kernel, and the caller fails and names the op. */
const op_impl *op_find(const dev *d, op_kind kind, dtype dt);
/* The kernels of this device's kind, also when `d` is meta: what infer asks for workspace. */
const op_impl *op_find_of_kind(const dev *d, op_kind kind, dtype dt);
/* Whether the kernels of this device's kind make one pass over memory of the products and activations
 * that LINEAR_DGELU joins, in this dtype: elsewhere two ops are as fast, and have bits of their own. */
bool op_joins(const dev *d, dtype dt);
/* Who computes an op there: on the CPU the name of an instruction set or "reference"; on CUDA "own",
 * "cublaslt" (own kernels around its products) or "host" (who gives collectives, and the calls of ops that are made of
 * other ops' kernels). NULL: there is no kernel. */
const char *op_made_by(const dev *d, op_kind kind, dtype dt);
/* ST_USAGE: ATHANOR_KERNELS or ATHANOR_GEMM has a word that it does not know. */
status op_check_environment(err *e) ATH_MUST_USE;
/* The portable reference for tests and for the debug walk (dt F64: compiled in double). */
const op_impl *op_find_reference(op_kind kind, dtype dt);

#endif
