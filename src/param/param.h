/* Parameters: the named tensors that a model learns, and where their numbers are in memory.
 *
 * A store is the list of a model's parameters. Each has an offset, and every array with a number
 * for each weight is laid out by these offsets: element i of parameter p is number p->offset + i
 * of each. Optimizers, digests and checkpoints therefore walk over arrays, not over objects.
 *
 *                          offset 0                                                 flat_elems
 *                          +-----------+-----------+-----------+-----+-----------+-----+
 *   masters, fp32          | q_proj    | k_proj    | v_proj    | gap | o_proj    | ... |
 *   work copies, 16 bits   | q_proj    | k_proj    | v_proj    | gap | o_proj    | ... |
 *   gradients, fp32        | q_proj    | k_proj    | v_proj    | gap | o_proj    | ... |
 *   each optimizer state   | q_proj    | k_proj    | v_proj    | gap | o_proj    | ... |
 *                          +-----------+-----------+-----------+-----+-----------+-----+
 *                           \__ pack "qkv_proj", one matrix __/
 *
 * Such an array is called flat. Gaps round offsets up to 64 elements.
 *
 * Words:
 *   master   the fp32 number that the optimizer changes and a checkpoint keeps
 *   work     its copy in bf16 or f16, which matrix products read in such a run. An fp32 run has no work
 *            copies: products read the masters. Vectors are read as masters in every run.
 *   matrix, vector   a parameter of rank 2, [out,in]; of rank 1: norms and biases, one row
 *   whole    the tensor as the model defines it and as files hold it
 *   part     what this rank has of a tensor that tensor-parallel ranks share: some rows, some
 *            columns, or all (split.h). A param's rows and cols are those of the part.
 *   pack     parameters that follow each other without a gap. A program reads them as one matrix;
 *            files and digests have each of them by its own name.
 *   frozen   not trained: no gradient, no optimizer state. So are all parameters of a reference
 *            model, and those of a model that trains adapters only.
 *   mapped   in no flat array: the parameter stays in a file, and programs read it there; or, frozen, in 4 bits
 *            (DT_NF4) in a piece of memory beside the arrays
 *   unit     neighbours in the flat array that data-parallel ranks gather, sum and update at once
 *            (units.h). A store that nobody shares is one unit, or two: trained and frozen.
 *
 * Memory: the store, its list and the names are in the arena that it was made with. It owns no
 * numbers. Whoever made it reserves the arrays (the plan does) and says where they are.
 *
 * Who calls what, in this order:
 *   param_store_new; param_store_fix_grads, _split, _map where they apply    the plan
 *   param_add, param_pack_begin and _end                                     model/declare.c
 *   param_store_shard (units.h) or param_store_put_trained_first             the plan
 *   param_ref, for each parameter that a program reads                       model/transformer.c
 *   param_store_sizes, then param_store_bind                                 the plan
 *   param_init_all, or a reader of files and then param_refresh_work         train, io
 *   param_piece_of and the transfers of units.h, in every step               optim, step, train */
#ifndef PARAM_PARAM_H
#define PARAM_PARAM_H

#include "base/arena.h"
#include "base/dtype.h"
#include "op/vecops.h"
#include "param/split.h"
#include "prog/graph.h"

typedef enum param_init_kind { INIT_NORMAL, INIT_ZEROS, INIT_ONES, INIT_UNIFORM } param_init_kind;

/* The numbers before training: drawn from a normal or a uniform distribution around 0, or all the
 * same. */
typedef struct param_init {
    param_init_kind kind;
    double std;   /* normal: standard deviation */
    double cut;   /* normal: values beyond cut * std are drawn again; 0: none are */
    double bound; /* uniform: values lie between mean - bound and mean + bound */
    double mean;
} param_init;

/* Files of Hugging Face may have the rows of a matrix, or the elements of a vector, in another
 * order than memory has. */
typedef enum param_order {
    ROWS_SAME,
    ROWS_BY_HEAD, /* files: [heads][parts]; memory: [parts][heads]. part_rows: rows of each part of a head, as of q, k and v */
    ROWS_PAIRS,   /* the first `rotary` rows of each head. files: row j and row j + rotary / 2 are
                     rotated together; memory: rows 2j and 2j + 1 are */
} param_order;

enum { PARAM_MAX_PARTS = 4 };

typedef struct param {
    /* set by the caller of param_add */
    const char *name;   /* as in a Hugging Face checkpoint */
    int part, layer;    /* which tensor of the model: its model_part (model/family.h; not the part
                           of a rank), and the layer that has it; -1: outside of the layers */
    int64_t rows, cols; /* given to param_add: of the whole; param_add makes them those of this
                           rank's part. A vector has one row */
    int rank;           /* 2: a matrix, 1: a vector; in files, too */
    bool transposed;    /* files hold [in,out] (GPT-2) */
    bool table;         /* rows are looked up: token and position embeddings */
    bool by_rule;       /* training moves it by a rule, not by its gradient: it does not decay */
    param_order order;
    int64_t heads, head_dim, rotary; /* what `order` needs to know */
    int64_t part_rows[PARAM_MAX_PARTS];
    int64_t experts; /* whose matrices are one tensor, one behind the other; 0: it is one matrix */
    bool of_expert;  /* ranks along MESH_EP hold those of other experts */
    int taps; /* a vector that files hold as [cols / taps, 1, taps], a convolution; 0: it is none */
    param_init init;
    param_split split; /* how ranks share it; param_add fills in what this rank has */
    bool
        copy; /* of a parameter of another stage of a pipeline, which counts it in norms and digests and
                  writes it to files */
    /* set by the store */
    int64_t
        offset; /* first element in every flat array; mapped: first byte in the file, or of the rows in `quant` */
    int unit; /* number of its unit */
    bool frozen;
    bool mapped;
    dtype stored; /* mapped: the format in the file, or DT_NF4 */
} param;

/* At which row of the file row i of the whole is. Of a vector: at which element, element i. */
int64_t param_file_row(const param *p, int64_t i);

typedef struct param_store param_store;

/* ---- declaring ---- */

/* compute: in which format matrix products read weights: DT_BF16, DT_F16 or
 * DT_F32. */
param_store *param_store_new(arena *a, dtype compute);
/* The deterministic mode: gradients are sums of int64 in fixed point (op/fixed.h). Called before
 * anything refers to a parameter. */
void param_store_fix_grads(param_store *s);
bool param_grads_are_fixed(const param_store *s);
/* Tensor-parallel ranks share the parameters (split.h). Called before the first is added. */
void param_store_split(param_store *s, const param_ranks *ranks);
/* Which of E experts this store has. */
op_part param_store_experts(const param_store *s, int64_t E);

/* Called for each parameter that is added. Returns whether it stays in the file; if so, also gives
 * its format there, and its offset from the address at which the file is mapped. DT_NF4: it is quantised instead, and
 * the offset is that in param_arrays.quant. */
typedef bool (*param_locate_fn)(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes);
/* Called before the first parameter is added. In such a store param_pack_begin makes no pack, since
 * members may differ in format. */
void param_store_map(param_store *s, param_locate_fn locate, void *ctx);

/* What is added from now on is frozen (true), or trained (false). */
void param_store_freeze(param_store *s, bool frozen);
/* A parameter that was added as frozen is trained after all. Before the store is laid out; it is
 * not mapped. */
void param_store_thaw(param_store *s, int index);
/* No packs from now on: each parameter is a matrix of its own, with a product of its own. For
 * models with adapters, since an adapter adds to the product of one parameter. */
void param_store_keep_apart(param_store *s);

/* Adds a parameter and gives it an offset behind those before. Returns its index. */
int param_add(param_store *s, const param *p);
/* What is added between the two is a pack of that name. All members have the same cols. */
void param_pack_begin(param_store *s, const char *name);
void param_pack_end(param_store *s);
/* Between the two the matrices of experts are added, those of each expert behind each other. In memory they
 * are the pack `name`, in any store. Where all of them can stay in a file there are instead `each` stacks: matrix i of
 * all experts is one matrix, stacks[i], if all have one format. */
void param_experts_begin(param_store *s, const char *name);
void param_experts_end(param_store *s, const char *const *stacks, int each);

/* For a store that is not sharded, when all parameters have been added. Gives them new offsets:
 * first those that are trained, then those that are frozen. Arrays of gradients and optimizer state
 * can then end where the frozen ones begin. */
void param_store_put_trained_first(param_store *s);

/* ---- the list ---- */

int param_count(const param_store *s);
const param *param_at(const param_store *s, int index);
int param_find(const param_store *s, const char *name); /* -1: absent */
bool param_is_bias(const param *p);
static inline int64_t param_elems(const param *p) {
    return p->rows * p->cols;
}
/* Shape of the whole tensor, of which this rank may hold a part. */
static inline int64_t param_whole_rows(const param *p) {
    return p->split.rows;
}
static inline int64_t param_whole_cols(const param *p) {
    return p->split.cols;
}
static inline int64_t param_whole_elems(const param *p) {
    return p->split.rows * p->split.cols;
}

/* A stretch of a parameter: elements first .. first + n - 1 of this rank's part. In the whole they
 * are rows of one run (split.h), or a block of columns. A parameter has one range for each run of
 * its split: a fused q|k|v has three, gate|up two, all others one. */
typedef struct param_range {
    int64_t first, n;
    /* Which elements of the whole they are: index, index + 1, ..., index + run - 1, then the same
     * from index + stride on, and so forth. Rows: one run of n. Columns: a run for each row. */
    int64_t index, run, stride;
    int copies;   /* how many successive tensor-parallel ranks hold these same elements. The first
                     of them is rank / copies * copies, where `rank` is this one */
    bool counted; /* this rank is the first of them: only there norms and digests count them */
    bool partial; /* each of them has only a summand of the gradient, which is the sum over them */
} param_range;
/* k: 0 .. p->split.runs - 1. */
param_range param_range_at(const param *p, int k);

/* ---- programs ---- */

/* Where a program finds the parameter, the pack or the stack of that name, and where its gradient: space,
 * offset in bytes, shape, format. False: there is no such name. */
bool param_ref(const param_store *s, const char *name, graph_param_ref *out);
/* Makes it a reference in a program of doubles (an oracle of the tests): flat arrays are arrays of
 * double there, with the same offsets in elements. */
void param_ref_widen(graph_param_ref *ref);

/* ---- memory ---- */

/* How long the arrays are, on this rank. Where data-parallel ranks share, an array may be of pieces
 * or of slots instead of flat (units.h). */
typedef struct param_sizes {
    int64_t elems;         /* numbers in the whole model, each parameter once */
    int64_t trained_elems; /* of those, the ones that are not frozen */
    int64_t flat_elems;    /* length of a flat array: this rank's parts, and gaps */
    int64_t piece_elems;   /* length of an array with nothing but what this rank owns */
    int64_t master_bytes, work_bytes, grad_bytes;
    int64_t trained_master_bytes; /* of the masters, from the beginning: all that are trained */
    int64_t work_piece_bytes, grad_piece_bytes; /* 0: no such arrays */
    int64_t state_bytes;                        /* of one array of optimizer state */
} param_sizes;
param_sizes param_store_sizes(const param_store *s);

/* The arrays, all on one device, or in the host's memory. NULL: there is none, as work in fp32
 * runs, or gradients without training. */
typedef struct param_arrays {
    float *master;
    void *work, *work_piece;
    void *grad, *grad_piece; /* fp32, or int64 in fixed point */
    void *quant;             /* what is in 4 bits */
} param_arrays;
/* Tells the store where its arrays are. They stay the caller's. d NULL: the host's memory. */
void param_store_bind(param_store *s, dev *d, const param_arrays *arrays);
/* The flat arrays of a store that nobody shares. */
float *param_master(const param_store *s);
uint16_t *param_work(const param_store *s); /* bf16 or f16, of matrices only */
float *param_grad(const param_store *s);    /* not in fixed point */
/* Where a matrix in 4 bits lies, of param_quant_bytes; NULL: it is not in 4 bits. */
void *param_quant(const param_store *s, int index);
int64_t param_quant_bytes(const param *p);

/* Gives all masters their initial numbers, and their work copies. Element i of the whole depends on
 * (seed, name, i) only: not on ranks, threads or other parameters. */
void param_init_all(param_store *s, uint64_t seed);
/* Rounds the masters into the work copies. */
void param_refresh_work(const param_store *s);

/* A fingerprint of the weights that are trained; of a store in which none is, of all that are in
 * memory. Equal weights have equal digests. It is a sum, modulo 2^64, over the elements that this
 * rank counts; summed over the ranks that share the weights it does not depend on how they share
 * them, or on threads. Each summand mixes name, index in the whole and the bits of the master. */
uint64_t param_digest(const param_store *s);
/* The summands of one parameter. */
uint64_t param_digest_of(const param_store *s, int index);

/* The device of the arrays; NULL: the host's memory. */
dev *param_device(const param_store *s);
/* Masters in the host's memory, of a store that was bound without a device. NULL: not bound yet. */
float *param_host_master(const param_store *s);

/* ---- stores of some layers ---- */

/* A store may have the parameters of some layers only, as a rank of a pipeline has. But files hold
 * those of all layers, and all ranks must agree on what is in each file. So files are read and
 * written by `whole`, a store of the whole model: it declares all parameters, unsplit, in the order
 * of s. It needs no arrays, and lives as long as s. Called when s has all its parameters. */
void param_store_set_whole(param_store *s, const param_store *whole);
/* The store of the whole model; s itself where none was set. */
const param_store *param_store_whole(const param_store *s);
/* The index in that store of parameter `index` of s. */
int param_number_in_whole(const param_store *s, int index);

#endif
