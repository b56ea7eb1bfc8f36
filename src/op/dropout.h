/* Which elements dropout keeps: a pure function of (seed, step, stream, counter), the same in every
 * kernel. One Philox block decides for four consecutive counters.
 *
 * Counter of element (n, i) of an [N,C] tensor: micro_batch * N*C + n*C + i. Counter of an
 * attention probability: micro_batch * B*H*Tq*Tk + ((b*H + h)*Tq + i)*Tk + j. N, H, n and h are
 * those of the whole tensor, also if this rank has only some of its rows or heads. */
#ifndef OP_DROPOUT_H
#define OP_DROPOUT_H

#include "base/rng.h"
#include "op/op.h"

typedef struct dropout_draw {
    rng_key key;
    uint32_t threshold; /* dropped when the 32 bits of the element are below */
    uint32_t bits[4];   /* of block `block` */
    uint64_t block;
} dropout_draw;

/* Of all draws of a step. */
static inline uint64_t dropout_seed(const op_run *run) {
    return mix64(run->seed) ^ mix64(~run->step);
}

static inline uint32_t dropout_threshold(float p) {
    return (uint32_t)((double)p * 4294967296.0);
}

static inline dropout_draw dropout_open(const op_run *run, float p, uint32_t stream) {
    dropout_draw d = {.block = UINT64_MAX};
    d.key = rng_key_numbered(dropout_seed(run), stream);
    d.threshold = dropout_threshold(p);
    return d;
}

/* Counter of the first element of row n of a call's tensor t. */
static inline uint64_t dropout_row_counter(const op_call *c, const tensor *t, int64_t n) {
    int64_t all = c->attr->dropout.all_rows ? c->attr->dropout.all_rows : t->rows;
    uint64_t row = (uint64_t)c->run->micro_batch * (uint64_t)all;
    int64_t cols = c->attr->dropout.all_cols ? c->attr->dropout.all_cols : t->cols;
    row += (uint64_t)(c->attr->dropout.first_row + n);
    return row * (uint64_t)cols + (uint64_t)c->attr->dropout.first_col;
}

/* Counter of the probability of query i and key 0 in head h of sequence b of a call. */
static inline uint64_t dropout_query_counter(const op_call *c, int64_t b, int64_t h, int64_t i) {
    const op_attr *at = c->attr;
    int64_t H = at->attention.all_heads ? at->attention.all_heads : at->attention.H;
    int64_t B = at->attention.B, Tq = at->attention.Tq;
    int64_t row = (b * H + at->attention.first_head + h) * Tq + i;
    uint64_t before = (uint64_t)c->run->micro_batch * (uint64_t)(B * H * Tq);
    return (before + (uint64_t)row) * (uint64_t)at->attention.Tk;
}

/* Calls with rising counters cost one Philox block per four. */
static inline bool dropout_keeps(dropout_draw *d, uint64_t counter) {
    if (counter >> 2 != d->block) {
        d->block = counter >> 2;
        rng_block(d->key, d->block, 0, d->bits);
    }
    return d->bits[counter & 3] >= d->threshold;
}

/* The factor of values that are kept. */
static inline float dropout_scale(float p) {
    return (float)(1.0 / (1.0 - (double)p));
}

#endif
