/* The table behind the normals of rng.h, for rng.c and for kernels that draw many at a time.
 * Knot 32 * e + j is the upper quantile, with 24 fraction bits, of tail probability
 * 2^(e + 10 - 64) * (1 + j / 32): values fall from 8.3 sigma to 0. */
#ifndef BASE_RNG_NORMAL_TABLE_H
#define BASE_RNG_NORMAL_TABLE_H

#include <stdint.h>

enum {
    RNG_NORMAL_SUB_BITS = 5, /* a binary octave of probabilities has 32 knots */
    RNG_NORMAL_MIN_EXP = 10,
    RNG_NORMAL_FRACTION_BITS = 24, /* of the place between two knots */
    RNG_NORMAL_KNOTS = ((63 - RNG_NORMAL_MIN_EXP) << RNG_NORMAL_SUB_BITS) + 1,
};

extern const int32_t RNG_NORMAL_Q24[RNG_NORMAL_KNOTS];

#endif
