/* The parameter store: names, shapes, init rules, and one flat layout that weights, gradients and
 * optimizer state share.
 *
 * A parameter's elements are at the same element offset in every flat array (fp32 master, compute
 * copy, gradient, optimizer moments), so optimizers and checkpoints walk arrays, not objects.
 * Matrices are [out,in] here; a file may hold them transposed (GPT-2). Members of a pack are
 * adjacent rows of one larger matrix (q|k|v, gate|up): families multiply by the pack once, files
 * and digests see the members. */
#ifndef PARAM_PARAM_H
#define PARAM_PARAM_H

#include "base/arena.h"
#include "base/dtype.h"
#include "op/vecops.h"
#include "param/split.h"
#include "prog/graph.h"

typedef enum param_init_kind { INIT_NORMAL, INIT_ZEROS, INIT_ONES } param_init_kind;

typedef struct param_init {
    param_init_kind kind;
    double std;
    double cut; /* values beyond cut * std are drawn again; 0: none are */
} param_init;

/* The order of rows (of elements, for vectors) in Hugging Face files, where it is not ours. */
typedef enum param_order {
    ROWS_SAME,
    ROWS_BY_HEAD, /* files: [heads][q, k, v][head_dim], here [q, k, v][heads][head_dim] */
    ROWS_PAIRS,   /* of each head's first `rotary` rows: here pairs (2i, 2i+1), in files halves */
} param_order;

typedef struct param {
    const char *name;   /* as in a Hugging Face checkpoint */
    int part, layer;    /* what it is to the model (model/family.h); layer -1: outside */
    int64_t rows, cols; /* rows 1 for vectors; declared: of the whole, then those of this rank */
    int rank;           /* in files: 1 or 2 */
    bool transposed;    /* files hold [cols, rows] */
    bool table;         /* rows are looked up: token and position embeddings */
    param_order order;
    int64_t heads, head_dim, rotary; /* of the order */
    param_init init;
    param_split split;
    int64_t offset; /* first element in every flat array; mapped: first byte in the file */
    int unit;       /* units.h; 0 where nothing is shared */
    bool frozen;    /* not trained: it has no gradient and no optimizer state */
    bool mapped;    /* read-only in a file, in the format `stored` (SPACE_FILE) */
    dtype stored;
} param;

/* Where row i of the whole lies in files. */
int64_t param_file_row(const param *p, int64_t i);

typedef struct param_store param_store;

/* compute: dtype of the copies that matrix products read, DT_BF16, or DT_F32: the masters
 * themselves. */
param_store *param_store_new(arena *a, dtype compute);
/* Gradients are int64 in fixed point (op/fixed.h). Said before anything refers to a parameter. */
void param_store_fix_grads(param_store *s);
bool param_grads_are_fixed(const param_store *s);

/* Tensor-parallel ranks share what is added from now on (split.h). */
void param_store_split(param_store *s, const param_ranks *ranks);

/* Weights that stay in a file: asked for every parameter that is added. Returns whether it does,
 * and then its format and first byte. Set before parameters are added; there are no packs then,
 * since parts may differ in format. */
typedef bool (*param_locate_fn)(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes);
void param_store_map(param_store *s, param_locate_fn locate, void *ctx);

/* What is added from now on is frozen, or trained again. Frozen are the weights of a reference, or
 * those under adapters. */
void param_store_freeze(param_store *s, bool frozen);
/* Members of packs are parameters of their own from now on: something is added to one of them. */
void param_store_keep_apart(param_store *s);
/* Once all have been added: those that are trained lie first in flat arrays, so that gradients and
 * optimizer state are the beginning of such arrays. param_store_shard does the same. */
void param_store_put_trained_first(param_store *s);

/* Declares a parameter; offset is filled in. Returns its index. */
int param_add(param_store *s, const param *p);
/* Parameters added between begin and end form a pack of that name, without gaps; all must have
 * equal cols. */
void param_pack_begin(param_store *s, const char *name);
void param_pack_end(param_store *s);

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

/* What of p lies together in the whole and counts alike: elements first .. first + n - 1 of p. */
typedef struct param_range {
    int64_t first, n;
    int64_t index, run, stride; /* in the whole: as in vec_span */
    int copies;                 /* successive tensor-parallel ranks, this among them, hold these */
    bool counted, partial;      /* as in param_run */
} param_range;
/* Range k; the number of ranges is p->split.runs. The ranks of a partial range are those from
 * rank / copies * copies on. */
param_range param_range_at(const param *p, int k);

/* How a graph refers to a parameter or a pack. False: no such name. */
bool param_ref(const param_store *s, const char *name, graph_param_ref *out);
/* The same in a double-precision program: its masters and gradients are flat arrays of double,
 * elements where the store has them. */
void param_ref_widen(graph_param_ref *ref);

/* Sizes in memory. Flat arrays hold every parameter; what ranks share is cut into pieces (units.h),
 * and is flat where nothing is shared. */
typedef struct param_sizes {
    int64_t elems;         /* unique parameters, of all ranks */
    int64_t trained_elems; /* of those, the ones that are not frozen */
    int64_t flat_elems;    /* length of a flat array: elems plus alignment */
    int64_t piece_elems;   /* length of an array that only holds what this rank owns */
    int64_t master_bytes, work_bytes, grad_bytes;
    int64_t work_piece_bytes, grad_piece_bytes; /* 0: no such arrays */
    int64_t state_bytes;                        /* of one array of optimizer state */
} param_sizes;
param_sizes param_store_sizes(const param_store *s);

/* The arrays, on one device or, without one, in the host's memory; NULL where there is none: work
 * when compute is fp32, grad without training. */
typedef struct param_arrays {
    float *master;
    void *work, *work_piece;
    void *grad, *grad_piece; /* fp32, or int64 in fixed point */
} param_arrays;
/* Gives the store its arrays. All parameters have been added. */
void param_store_bind(param_store *s, dev *d, const param_arrays *arrays);
/* Flat arrays, where nothing is shared. */
float *param_master(const param_store *s);
uint16_t *param_work(const param_store *s); /* bf16, of matrices only */
float *param_grad(const param_store *s);    /* not in fixed point */

/* Fills masters by rule, and their copies; element i of a parameter depends on (seed, name, i)
 * only. */
void param_init_all(param_store *s, uint64_t seed);
/* Masters rounded into the compute copies. */
void param_refresh_work(const param_store *s);

/* Sum over the elements that this rank counts of a mix of (name, element index, bits of the
 * master), modulo 2^64: summed over the ranks that share the weights it does not depend on layout,
 * order or thread count. Equal digests: equal weights. */
uint64_t param_digest(const param_store *s);
/* Of what is frozen alone: what an optimizer's pass over the weights leaves out. */
uint64_t param_frozen_digest(const param_store *s);
/* Of one parameter. */
uint64_t param_digest_of(const param_store *s, int index);

/* What the arrays are bound to; NULL: the host's memory. */
dev *param_device(const param_store *s);
/* Masters that the host reads and writes itself: of a store that was bound without a device. NULL:
 * it is not bound. */
float *param_host_master(const param_store *s);

/* A store may have only some of a model's parameters, as a rank of a pipeline has some of the
 * layers. `whole` declares all of them, in the same order and for one rank; it needs no arrays, and
 * lives as long as s. What is read from files and written to them is described by it, so that all
 * ranks agree on every file. Said when all parameters of s have been added. */
void param_store_set_whole(param_store *s, const param_store *whole);
/* The store itself where nothing was said. */
const param_store *param_store_whole(const param_store *s);
/* Which parameter of the whole is this. */
int param_number_in_whole(const param_store *s, int index);

#endif
