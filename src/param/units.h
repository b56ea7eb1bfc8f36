/* How data-parallel ranks share the arrays of a store (ZeRO, Rajbhandari et al. 2020).
 *
 * Three words:
 *
 *   unit    what is gathered, summed and updated at once: neighbouring matrices in the flat array,
 *           those of one layer or of several (`bucket_elems`). All vectors together are a unit.
 *   piece   n ranks that share (`shards`) cut a unit into n equal pieces, and rank r owns piece r:
 *           only rank r updates it. The unit of vectors is not cut: every rank owns all of it. That
 *           costs little (0.01 % of a model), and all weights that travel are of one format.
 *   slot    room for one whole unit while it is in use. Embeddings and the head have slots of their
 *           own. The units of layers share two slots in turn: while ops use the unit in one, the
 *           other is filled with weights, or its gradients are reduced.
 *
 * So there are three lengths of arrays. With 2 shards, on rank 1:
 *
 *   flat     | vectors | embedding      | layers 3,2     | layers 1,0     |    all units, whole
 *            |         | piece0 |piece1 | piece0 |piece1 | piece0 |piece1 |
 *   pieces   | vectors |piece1 |piece1 |piece1 |                             what rank 1 owns
 *   slots    | vectors | embedding      | layers, slot A | layers, slot B |    what is in use
 *
 * The stage of ZeRO says which arrays are of which length:
 *
 *                       zero 0    1         2                3
 *   masters, fp32       flat      pieces*   pieces*          pieces
 *   work, 16 bits       flat      flat      flat             slots + pieces
 *   gradients, fp32     flat      flat      slots + pieces   slots + pieces
 *   optimizer states    flat      pieces    pieces           pieces
 *
 *   *: flat in fp32 runs, whose programs read the masters
 *
 * Pieces of masters, and in zero 3 of work copies, may lie in a file (parallel.offload). What is gathered from there is
 * read to this rank's place in the slot. Vectors stay in memory, and one rank alone may have slots, too.
 *
 * "slots + pieces" are two arrays. Programs use the slots. The pieces are what this rank owns: the
 * work copies that it sends to the others, and the sums of the gradients.
 *
 * Frozen parameters are in units of their own. These come after all trained units, in the arrays
 * and by number.
 *
 * Experts that ranks share out (parallel.ep) are in units of their own, too: fewer ranks hold the same ones, so
 * each of them has a larger piece. */
#ifndef PARAM_UNITS_H
#define PARAM_UNITS_H

#include "param/param.h"

typedef struct param_sharding {
    int shards, rank;     /* how many ranks share, and which of them this is */
    int zero;             /* the stage: 0 .. 3; one rank alone shares nothing, whatever it says */
    int64_t bucket_elems; /* a unit takes layers until it has so many; zero 3: one layer each */
    /* Layers between which units end: those of a chunk of layers are complete together. */
    const int *cut;
    int cuts;
    bool masters_away; /* masters of matrices lie in a file (param_away) */
    bool weights_away; /* zero 3: what is gathered lies there, too. One rank alone has slots then */
} param_sharding;

/* Elements at .. at + n - 1, counted from the beginning of the unit, whose gradient is partial
 * (split.h): `copies` successive tensor-parallel ranks each have a summand, and sum them. */
typedef struct param_partial {
    int64_t at, n;
    int copies;
} param_partial;

/* All positions and lengths are in elements. */
typedef struct param_unit {
    bool whole;             /* it is not cut: every rank owns all of it */
    bool vectors;           /* it is that of vectors, which are in memory whatever lies in files */
    bool of_experts;        /* only every ep-th rank of those that share has them */
    bool frozen;            /* nothing reduces or updates it */
    int begin, end;         /* its parameters are among these numbers, in this order */
    int64_t at, n;          /* its first element in flat arrays, and its length */
    int64_t piece, piece_n; /* the same of this rank's piece of it, in flat arrays too */
    int64_t state;          /* where that piece is in arrays of pieces */
    int64_t slot;           /* where its slot is in arrays of slots */
    bool shares_slot;       /* the slot is one of the two of the layers */
    vec_spans spans;        /* the parameters, or parts of them, in the piece; counted from the
                               beginning of the piece */
    param_partial *partial; /* [n_partial] */
    int n_partial;
} param_unit;

/* Makes the units, and gives the parameters new offsets: vectors first, then matrices in the order
 * in which they were added. Called once, when all have been added. */
void param_store_shard(param_store *s, const param_sharding *how);

/* Whether weights are gathered into slots before they are read (zero 3), and whether gradients are
 * written to slots and summed from there (zero 2, 3). If not, the flat array has all of them. */
bool param_weights_in_slots(const param_store *s);
bool param_grads_in_slots(const param_store *s);

/* Whether a unit's gradients lie in a slot that other units need, too: they are summed and leave it after
 * every micro-batch. Those in slots of their own are summed once a step. */
bool param_grads_leave(const param_store *s, int u);

int param_units(const param_store *s);
const param_unit *param_unit_at(const param_store *s, int u);

/* What this rank updates of a unit; pointers are to the first element of its piece. */
typedef struct param_piece {
    float *master;
    void *grad;     /* the sum over ranks, fp32 or fixed point; NULL: the unit is frozen */
    uint16_t *work; /* the work copies, to be written with the masters; NULL: none */
    const vec_spans *spans;
    int64_t state; /* index of the first element in each array of optimizer state */
    bool away;     /* masters lie in the file: master is NULL */
    int64_t at;    /* index of the first element in the array of masters; of `state` in the file */
} param_piece;
param_piece param_piece_of(const param_store *s, int u);

/* Successive elements of a piece, while they are in memory; spans count from the first of them. */
typedef struct param_window {
    const vec_spans *spans;
    float *master;
    uint16_t *work; /* NULL: none */
} param_window;
typedef void (*param_window_fn)(void *ctx, const param_window *w);

/* Masters in a file (optim/offload.h). `visit` brings one window of a unit after the other into memory, and
 * what fn wrote back. An error of the file is told by the next call for it that can. */
typedef struct param_away {
    struct offload *file;
    void (*visit)(struct offload *file, int unit, bool writes, param_window_fn fn, void *ctx);
} param_away;
/* For a store with masters_away, when it has memory. */
void param_store_put_away(param_store *s, const param_away *away);
struct offload *param_file(const param_store *s); /* NULL: none */

/* The elements of a span that lie in elements from .. from + n - 1; `at` then counts from there. n 0:
 * none do. */
vec_span param_cut_span(vec_span k, int64_t from, int64_t n);

/* The spans of one parameter, counted from the beginning of the piece of its unit. */
vec_spans param_spans_of(arena *a, const param_store *s, int index);

/* What one collective moves: from `in` to `out`, two addresses in the store's arrays. */
typedef struct param_transfer {
    const void *in;
    void *out;
    int64_t n;
    dtype dt;
    bool from_file; /* of weights: `in`, a part of `out`, must be read before (weights_away) */
} param_transfer;
/* The gather of a unit's weights. in: this rank's piece, n elements. out: the unit, n * shards
 * elements. n 0: the unit is whole, and nothing moves. */
param_transfer param_weights_transfer(const param_store *s, int u);
/* The sum of a unit's gradients. in: this rank's gradients of the whole unit, n * shards elements
 * (of a unit that is not cut: n). out: n sums, those of the piece. With slots (zero 2, 3) the sum
 * of each micro-batch is added to `out` where gradients leave their slots; without slots, `out` is a part of `in`. */
param_transfer param_grads_transfer(const param_store *s, int u);

#endif
