/* Float to blocks, rounded as llama.cpp's reference does: the scale of a block is found and divided
 * by in float, and only then stored as f16. The nearest element to a number is found with that
 * float scale, so a block is not always the best one that its stored scale allows.
 *
 * Numbers that are not finite, and scales so small that their inverse is not, must not reach a
 * conversion to an integer, which would be undefined: clamp lets them become some element. */
#include <math.h>

#include "base/quant_blocks.h"

void quant_write_f32(uint8_t *dst, const float *src, int64_t n) {
    if (n > 0) memcpy(dst, src, (size_t)n * 4);
}

void quant_write_f16(uint8_t *dst, const float *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) quant_put_f16(dst + 2 * i, src[i]);
}

void quant_write_bf16(uint8_t *dst, const float *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f32_to_bf16(src[i]);
        memcpy(dst + 2 * i, &h, 2);
    }
}

/* In [0, top]; NaN becomes 0. */
static inline float clamp(float x, float top) {
    x = x > 0 ? x : 0;
    return x < top ? x : top;
}

static inline float inverse(float d) {
    return d != 0 ? 1 / d : 0;
}

/* To nearest, halves away from zero, at most 127 either way. x + 0.5 may itself be rounded up, so
 * the fraction is looked at. */
static inline int8_t round_i8(float x) {
    float a = clamp(fabsf(x), 127);
    int whole = (int)a;
    int q = whole + (a - (float)whole >= 0.5f);
    return (int8_t)(x < 0 ? -q : q);
}

void quant_write_q8_0(uint8_t *dst, const float *src, int64_t n) {
    quant_q8_0 *b = (void *)dst;
    for (; n > 0; n--, b++, src += QUANT_SMALL) {
        float top = 0;
        for (int i = 0; i < QUANT_SMALL; i++) top = fabsf(src[i]) > top ? fabsf(src[i]) : top;
        float d = top / 127, id = inverse(d);
        quant_put_f16(b->d, d);
        for (int i = 0; i < QUANT_SMALL; i++) b->qs[i] = round_i8(src[i] * id);
    }
}

/* Elements of 4 bits, from numbers that are in [0, 16) already but for rounding. */
static inline void pack_nibbles(uint8_t qs[16], const float x[QUANT_SMALL]) {
    for (int i = 0; i < 16; i++) {
        int lo = (int)clamp(x[i], 15), hi = (int)clamp(x[i + 16], 15);
        qs[i] = (uint8_t)(lo | hi << 4);
    }
}

/* The element that is farthest from zero becomes -8, so that its number comes back best. */
void quant_write_q4_0(uint8_t *dst, const float *src, int64_t n) {
    quant_q4_0 *b = (void *)dst;
    for (; n > 0; n--, b++, src += QUANT_SMALL) {
        float far = 0, x[QUANT_SMALL];
        for (int i = 0; i < QUANT_SMALL; i++) far = fabsf(src[i]) > fabsf(far) ? src[i] : far;
        float d = far / -8, id = inverse(d);
        quant_put_f16(b->d, d);
        for (int i = 0; i < QUANT_SMALL; i++) x[i] = src[i] * id + 8.5f;
        pack_nibbles(b->qs, x);
    }
}

void quant_write_q4_1(uint8_t *dst, const float *src, int64_t n) {
    quant_q4_1 *b = (void *)dst;
    for (; n > 0; n--, b++, src += QUANT_SMALL) {
        float lo = src[0], hi = src[0], x[QUANT_SMALL];
        for (int i = 1; i < QUANT_SMALL; i++) {
            lo = src[i] < lo ? src[i] : lo;
            hi = src[i] > hi ? src[i] : hi;
        }
        float d = (hi - lo) / 15, id = inverse(d);
        quant_put_f16(b->d, d);
        quant_put_f16(b->m, lo);
        for (int i = 0; i < QUANT_SMALL; i++) x[i] = (src[i] - lo) * id + 0.5f;
        pack_nibbles(b->qs, x);
    }
}
