/* Which tokens of its sequences a context-parallel rank has, and what its programs are told of them
 * (model/context.c).
 *
 * A sequence of T tokens is cut into pieces, of which each of cp ranks gets as many, T / cp tokens in all and in ascending
 * order. Later tokens see more keys, so equal lengths are unequal work. Without documents rank r gets the pieces r and
 * 2 cp - 1 - r of 2 cp ("zig-zag"), which makes it equal. With a document mask the pieces are smaller, their work is
 * counted in visible keys, and the heaviest piece that is left goes to the rank that has least so far and
 * has room. The choice is a function of the row's `start` alone, so that all ranks make the same one. */
#ifndef TRAIN_CONTEXT_H
#define TRAIN_CONTEXT_H

#include "model/family.h"
#include "train/batch.h"

typedef struct context_piece {
    int32_t number;
    int64_t work; /* keys that its tokens see */
} context_piece;
/* The rank of each token of a row. start [T] as in batch_rows, or NULL. T is a multiple of 2 cp; room [T]. */
void context_divide(const int32_t *start, int T, int cp, int32_t *rank_of, context_piece *room);

/* Made for a mesh; with cp 1 it has no arrays, and nothing below does anything. */
typedef struct context {
    int cp, rank, B, T; /* T: of the whole sequence */
    context_kind kind;
    int n_masks;
    model_mask mask[MODEL_MOST_MASKS];
    bool documents;
    int32_t *place; /* [B, T / cp] of this rank's tokens in their sequence, ascending */
    int32_t *order, *end, *first[MODEL_MOST_MASKS]; /* as the program takes them */
    int32_t *rank_of, *before;                      /* [T], [T + 1]: of a row, at work */
    context_piece *room;                            /* [T] */
} context;

/* The shares of rows `all`, and the room for this rank's in *own, which has all else from `all`. */
void context_new(context *x, arena *a, const mesh *m, context_kind kind, const model_config *mc,
                 const batch_rows *all, batch_rows *own);
int64_t context_bytes(int B, int T, int cp);
/* After `all` was filled: chooses the tokens, copies them to `own`. */
void context_take(const context *x, const batch_rows *all, const batch_rows *own);
/* Gives a program what it is told beside its tokens. */
void context_put(const context *x, const batch_ports *io, int frame);
/* The losses of own tokens, put where they belong in all->nll, which is 0 elsewhere. */
void context_spread(const context *x, const batch_rows *own, const batch_rows *all);

#endif
