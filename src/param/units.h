/* How data-parallel ranks share the flat arrays of a store (ZeRO, Rajbhandari et al. 2020).
 *
 * The matrices are cut into units, each a layer or several; a unit is gathered, reduced and updated
 * as one. Units of what is frozen come after those of what is trained. With ZeRO each of the
 * `shards` ranks owns an equal piece of every unit: of the optimizer state (stage 1), of the summed
 * gradients (2), of the weights (3). Vectors (norms, biases) form a unit of their own, or two where
 * some are frozen, of which every rank has all: they are a hundredth of a percent, and so the
 * compute copies that travel are of one dtype.
 *
 * Three kinds of arrays: flat ones hold everything; piece arrays hold what this rank owns; slot
 * arrays hold what is in use: outer units (embeddings, head) have slots of their own, layers take
 * turns in two, of which one is filled or emptied while the other computes.
 *
 *                    zero 0    1       2       3
 *   masters fp32     flat      piece*  piece*  piece     *: flat in fp32 programs, which read them
 *   compute bf16     flat      flat    flat    slots (+ piece: what is sent)
 *   gradients        flat      flat    slots + piece   slots + piece
 *   optimizer state  flat      piece   piece   piece */
#ifndef PARAM_UNITS_H
#define PARAM_UNITS_H

#include "param/param.h"

typedef struct param_sharding {
    int shards, rank;     /* ranks that share, and which of them this is */
    int zero;             /* 0 .. 3; without other ranks nothing is shared */
    int64_t bucket_elems; /* layers are joined until a unit has so many (not with zero 3) */
} param_sharding;

/* Gradients at .. at + n - 1 of a unit that are summed over `copies` successive tensor-parallel
 * ranks: of what these hold together (split.h). The same n on each. */
typedef struct param_partial {
    int64_t at, n;
    int copies;
} param_partial;

typedef struct param_unit {
    bool whole;             /* every rank has all of it */
    bool frozen;            /* it is not trained: nothing reduces or updates it */
    int64_t at, n;          /* in flat arrays */
    int64_t piece, piece_n; /* this rank's: first element in flat arrays */
    int64_t state;          /* the same in piece arrays */
    int64_t slot;           /* of the unit in slot arrays */
    bool shares_slot;       /* with other units */
    vec_spans spans;        /* of the piece, counted from its beginning */
    param_partial *partial;
    int n_partial;
} param_unit;

/* Lays the parameters out for ranks; all have been added, none is mapped. */
void param_store_shard(param_store *s, const param_sharding *how);

/* Weights come to slots before they are read (zero 3); gradients leave slots when they are summed
 * (zero 2, 3). Otherwise every rank holds all of them. */
bool param_weights_in_slots(const param_store *s);
bool param_grads_in_slots(const param_store *s);

int param_units(const param_store *s);
const param_unit *param_unit_at(const param_store *s, int u);

/* What this rank updates of unit u. Pointers are to the first element of the piece. */
typedef struct param_piece {
    float *master;
    void *grad;     /* summed, fp32 or fixed point; NULL without training, and of what is frozen */
    uint16_t *work; /* compute copies to be written; NULL: none */
    const vec_spans *spans;
    int64_t state; /* first element in optimizer state arrays */
} param_piece;
param_piece param_piece_of(const param_store *s, int u);

/* The spans of one parameter, counted from the beginning of the piece of its unit. */
vec_spans param_spans_of(arena *a, const param_store *s, int index);

/* What travels of unit u's weights: `in`, this rank's piece of n elements, to `out`, n elements of
 * every shard. n 0: nothing does. */
typedef struct param_transfer {
    const void *in;
    void *out;
    int64_t n;
    dtype dt;
} param_transfer;
param_transfer param_weights_transfer(const param_store *s, int u);
/* Of its gradients: `in`, this rank's contribution to all n * shards elements, to `out`, the sum of
 * the piece. Where the gradients are in slots (zero 2, 3) sums of micro-batches are added up in
 * `out`; else out lies in `in`. A whole unit's n is all of it. */
param_transfer param_grads_transfer(const param_store *s, int u);

#endif
