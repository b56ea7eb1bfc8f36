/* Philox4x32-10, normals by table, permutations. Pure functions of key and counter: no state.
 * Reading order: philox, draws, normals, permutation. One key serves one kind of draw. */
#include "base/rng.h"

#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "base/rng_normal_table.h"
#include "base/status.h"

rng_key rng_key_named(uint64_t seed, const char *name) {
    return rng_key_numbered(seed, XXH3_64bits(name, strlen(name)));
}

rng_key rng_key_numbered(uint64_t seed, uint64_t stream) {
    return key_of_stream(mixed_seed(seed), stream);
}

void rng_block(rng_key key, uint64_t counter, uint64_t counter_hi, uint32_t out[4]) {
    philox_block(key, counter, counter_hi, out);
}

uint32_t rng_u32(rng_key key, uint64_t counter) {
    uint32_t r[4];
    rng_block(key, counter >> 2, 0, r);
    return r[counter & 3];
}

float rng_uniform(rng_key key, uint64_t counter) {
    return (float)(rng_u32(key, counter) >> 8) * 0x1p-24f;
}

/* The top bit is the sign; the other 63, over 2^64, are the tail probability. Its binary exponent
 * and next five bits choose the knot, the rest interpolates: an error below 6e-5 everywhere. */
int32_t rng_normal_from_bits(uint64_t bits) {
    enum { MIN_EXP = RNG_NORMAL_MIN_EXP, SUB_BITS = RNG_NORMAL_SUB_BITS };
    enum { FRACTION_BITS = RNG_NORMAL_FRACTION_BITS };
    uint64_t u = (bits & INT64_MAX) | (1u << MIN_EXP);
    int e = 63 - __builtin_clzll(u);
    uint64_t mantissa = u << (63 - e) << 1; /* without the leading one */
    int knot = (e - MIN_EXP) << SUB_BITS | (int)(mantissa >> (64 - SUB_BITS));
    int64_t fraction = (int64_t)(mantissa << SUB_BITS >> (64 - FRACTION_BITS));
    int64_t hi = RNG_NORMAL_Q24[knot], lo = RNG_NORMAL_Q24[knot + 1];
    int32_t q = (int32_t)(hi - ((hi - lo) * fraction >> FRACTION_BITS));
    return bits >> 63 ? -q : q;
}

/* One block makes two normals: even and odd index. */
static void normal_pair(rng_key key, uint64_t pair, uint64_t try, int32_t q[2]) {
    uint32_t r[4];
    rng_block(key, pair, try, r);
    q[0] = rng_normal_from_bits((uint64_t)r[1] << 32 | r[0]);
    q[1] = rng_normal_from_bits((uint64_t)r[3] << 32 | r[2]);
}

int32_t rng_normal_q24(rng_key key, uint64_t index) {
    int32_t q[2];
    normal_pair(key, index >> 1, 0, q);
    return q[index & 1];
}

void rng_fill_normal(rng_key key, uint64_t first, float *out, int64_t n, double std) {
    double scale = std * 0x1p-24; /* a power of two: exact, so the product is rounded as if once */
    int64_t i = 0;
    if (n > 0 && (first & 1)) out[i++] = (float)(scale * rng_normal_q24(key, first));
    for (; i + 1 < n; i += 2) {
        int32_t q[2];
        normal_pair(key, (first + (uint64_t)i) >> 1, 0, q);
        out[i] = (float)(scale * q[0]);
        out[i + 1] = (float)(scale * q[1]);
    }
    if (i < n) out[i] = (float)(scale * rng_normal_q24(key, first + (uint64_t)i));
}

static bool beyond(float x, float limit) {
    return (x > limit) | (x < -limit);
}

void rng_cut_normal(rng_key key, uint64_t first, float *x, int64_t n, double std, double cut) {
    enum { GROUP = 16 }; /* most have nothing to draw again: seen without a branch for each */
    CHECK(cut >= 1, "normals cut at %g sigma", cut); /* so that two of three tries are inside */
    double scale = std * 0x1p-24;
    float limit = (float)(cut * std);
    for (int64_t from = 0; from < n; from += GROUP) {
        int64_t end = from + GROUP < n ? from + GROUP : n;
        int any = 0;
        for (int64_t i = from; i < end; i++) any |= beyond(x[i], limit);
        for (int64_t i = from; any && i < end; i++) {
            uint64_t index = first + (uint64_t)i;
            for (uint64_t try = 1; beyond(x[i], limit); try++) {
                int32_t q[2];
                normal_pair(key, index >> 1, try, q);
                x[i] = (float)(scale * q[index & 1]);
            }
        }
    }
}

static uint64_t feistel(uint64_t key, int half_bits, uint64_t x) {
    enum { ROUNDS = 6 };
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t f = mix64(mix64(key + round * 0x9e3779b97f4a7c15u) ^ right) & mask;
        uint64_t next = left ^ f;
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

/* The network permutes [0, 4^half_bits), at most 4 n values; walking the cycle until the value
 * falls in [0, n) again restricts it to a permutation of [0, n), in less than 4 steps on average.
 */
uint64_t rng_permute(rng_key key, uint64_t n, uint64_t index) {
    CHECK(index < n, "index %llu of %llu", (unsigned long long)index, (unsigned long long)n);
    int bits = n > 2 ? 64 - __builtin_clzll(n - 1) : 1;
    int half_bits = (bits + 1) / 2;
    uint64_t k = (uint64_t)key.k[1] << 32 | key.k[0];
    do index = feistel(k, half_bits, index);
    while (index >= n);
    return index;
}
