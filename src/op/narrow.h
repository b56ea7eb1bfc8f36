/* States of an optimizer in bf16, for the C compiler and for nvcc. They are rounded stochastically: to the neighbour
 * above with the probability of what rounding down would cut off. So the mean of many roundings is the number
 * itself. To the nearest, a second moment could not fall: with beta2 = 0.999 a step changes it by at most 0.001 of
 * itself, and half of bf16's last place is 0.00195 or more.
 *
 * The draw is a pure function of (seed, step, tensor, index in the whole tensor): no layout of ranks, number of threads or
 * stop changes a bit. */
#ifndef OP_NARROW_H
#define OP_NARROW_H

#include <stdint.h>

#include "base/philox.h"

enum { NARROW_STATES = 2 }; /* 16 of an element's 32 random bits are for each state */

/* Of all tensors in a step; key_of_stream(draws, name) is the key of one, whose element i has 32 bits of counter i. */
PHILOX_FN uint64_t narrow_draws(uint64_t seed, uint64_t step) {
    return mixed_seed(mixed_seed(seed) + step);
}

/* The bf16 above or below a float, which is given by its bits; draw: 16 random bits. What bf16 has stays as it
 * is, and NaN stays NaN. */
PHILOX_FN uint16_t narrow_round(uint32_t bits, uint32_t draw) {
    uint32_t moved = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + draw;
    return (uint16_t)(moved >> 16);
}

#endif
