/* Which elements dropout keeps: a pure function of (seed, step, stream, counter), the same in every
 * kernel. One Philox block decides for four consecutive counters.
 *
 * Counter of element (n, i) of an [N,C] tensor: micro_batch * N*C + n*C + i. Counter of an
 * attention probability: micro_batch * B*H*Tq*Tk + ((b*H + h)*Tq + i)*Tk + j. */
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

static inline dropout_draw dropout_open(const op_run *run, float p, uint32_t stream) {
    dropout_draw d = {.block = UINT64_MAX};
    d.key = rng_key_numbered(mix64(run->seed) ^ mix64(~run->step), stream);
    d.threshold = (uint32_t)((double)p * 4294967296.0);
    return d;
}

/* Calls with rising counters cost one Philox block per four. */
static inline bool dropout_keeps(dropout_draw *d, uint64_t counter) {
    if (counter >> 2 != d->block) {
        d->block = counter >> 2;
        rng_block(d->key, d->block, 0, d->bits);
    }
    return d->bits[counter & 3] >= d->threshold;
}

/* What kept values are multiplied with. */
static inline float dropout_scale(float p) {
    return (float)(1.0 / (1.0 - (double)p));
}

#endif
