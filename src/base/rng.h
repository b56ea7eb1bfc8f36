/* Counter-based random numbers: a value is a pure function of (key, counter), so it does not depend
 * on how work is split over threads, ranks or micro-batches. Philox4x32-10 (Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Normals use integer arithmetic only, so
 * every machine gets the same bits. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/philox.h"

/* Key from a seed and a stream name or number; different streams are independent. */
rng_key rng_key_named(uint64_t seed, const char *name);
rng_key rng_key_numbered(uint64_t seed, uint64_t stream);

/* 128 random bits for one counter value. */
void rng_block(rng_key key, uint64_t counter, uint64_t counter_hi, uint32_t out[4]);
uint32_t rng_u32(rng_key key, uint64_t counter);
/* Uniform in [0, 1) with 24 bits. */
float rng_uniform(rng_key key, uint64_t counter);
/* Standard normal as a fixed-point integer with 24 fraction bits: element `index` of the stream.
 * Inverse distribution function by table and integer interpolation; |error| < 1e-4, tails to beyond
 * 6 sigma. */
int32_t rng_normal_q24(rng_key key, uint64_t index);
/* The normal that 64 bits of the stream make. */
int32_t rng_normal_from_bits(uint64_t bits);
/* out[i] = (float)(std * normal(first + i)); the product is rounded once, from double. This is the
 * definition; op/vecops.h draws many at a time, the same bits. */
void rng_fill_normal(rng_key key, uint64_t first, float *out, int64_t n, double std);
/* Makes them normals cut at `cut` standard deviations (torch's trunc_normal_: what is inside keeps
 * its density, so the deviation is a little below std). An element beyond is drawn again, try t
 * from counter_hi = t of its counter, until one is inside: still a pure function of (key, index).
 */
void rng_cut_normal(rng_key key, uint64_t first, float *x, int64_t n, double std, double cut);

/* A keyed permutation of [0, n): a balanced Feistel network with cycle walking. O(1), no memory. */
uint64_t rng_permute(rng_key key, uint64_t n, uint64_t index);

#endif
