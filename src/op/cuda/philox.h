/* The draws of op/dropout.h on the device, bit for bit: the host opens them, kernels make factors. */
#ifndef OP_CUDA_PHILOX_H
#define OP_CUDA_PHILOX_H

#include "op/cuda/numbers.h"
#include "op/cuda/store.h"

typedef struct drawing {
    const run_numbers *run;
    uint32_t stream;
    uint32_t threshold; /* dropped when the 32 bits of the element are below */
    float scale;        /* of what is kept: 1 / (1-p); 0: nothing is drawn */
} drawing;

GPU_FN rng_key draw_key(const drawing *d) {
    return key_of_stream(d->run->draws, d->stream);
}

/* The factors, 0 or scale, of counters 4 block to 4 block + 3. */
GPU_FN void draw_factors(const drawing *d, rng_key key, uint64_t block, float factor[4]) {
    uint32_t bits[4];
    philox_block(key, block, 0, bits);
    for (int i = 0; i < 4; i++) factor[i] = bits[i] >= d->threshold ? d->scale : 0.0f;
}

/* The factor of one counter. */
GPU_FN float draw_factor(const drawing *d, rng_key key, uint64_t counter) {
    return philox_u32(key, counter) >= d->threshold ? d->scale : 0.0f;
}

#ifndef __CUDACC__
#include "op/cuda/host.h"
#include "op/dropout.h"

static inline drawing draws_of(const op_call *c, float p, uint32_t stream) {
    return (drawing){cuda_numbers(c->run->dev), stream, dropout_threshold(p), dropout_scale(p)};
}
#endif

#endif
