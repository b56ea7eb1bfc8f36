/* Blocks to float. Loops have fixed lengths and no branches, so that they become vector code. */
#include "base/quant_blocks.h"

void quant_read_f32(float *dst, const uint8_t *src, int64_t n) {
    if (n > 0) memcpy(dst, src, (size_t)n * 4);
}

void quant_read_f16(float *dst, const uint8_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = quant_get_f16(src + 2 * i);
}

void quant_read_bf16(float *dst, const uint8_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = bf16_to_f32(h);
    }
}

void quant_read_q8_0(float *dst, const uint8_t *src, int64_t n) {
    const quant_q8_0 *b = (const void *)src;
    for (; n > 0; n--, b++, dst += QUANT_SMALL) {
        float d = quant_get_f16(b->d);
        for (int i = 0; i < QUANT_SMALL; i++) dst[i] = d * (float)b->qs[i];
    }
}

void quant_read_q4_0(float *dst, const uint8_t *src, int64_t n) {
    const quant_q4_0 *b = (const void *)src;
    for (; n > 0; n--, b++, dst += QUANT_SMALL) {
        float d = quant_get_f16(b->d);
        for (int i = 0; i < 16; i++) dst[i] = d * (float)((b->qs[i] & 15) - 8);
        for (int i = 0; i < 16; i++) dst[i + 16] = d * (float)((b->qs[i] >> 4) - 8);
    }
}

void quant_read_q4_1(float *dst, const uint8_t *src, int64_t n) {
    const quant_q4_1 *b = (const void *)src;
    for (; n > 0; n--, b++, dst += QUANT_SMALL) {
        float d = quant_get_f16(b->d), m = quant_get_f16(b->m);
        for (int i = 0; i < 16; i++) dst[i] = d * (float)(b->qs[i] & 15) + m;
        for (int i = 0; i < 16; i++) dst[i + 16] = d * (float)(b->qs[i] >> 4) + m;
    }
}

/* The bits of a byte as eight bytes, 16 each where the bit is set: every byte of the product keeps
 * its own bit, and adding 127 brings that bit, whichever it is, to the top. */
static inline uint64_t spread_bits(uint8_t bits) {
    uint64_t own = bits * 0x0101010101010101u & 0x8040201008040201u;
    return (own + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
}

/* The 32 numbers of 5 bits. */
static inline void join_fifth_bits(uint8_t q[QUANT_SMALL], const uint8_t qs[16],
                                   const uint8_t qh[4]) {
    uint8_t fifth[QUANT_SMALL];
    for (int i = 0; i < 4; i++) {
        uint64_t eight = spread_bits(qh[i]);
        memcpy(fifth + 8 * i, &eight, 8);
    }
    for (int i = 0; i < 16; i++) {
        q[i] = (uint8_t)((qs[i] & 15) | fifth[i]);
        q[i + 16] = (uint8_t)(qs[i] >> 4 | fifth[i + 16]);
    }
}

void quant_read_q5_0(float *dst, const uint8_t *src, int64_t n) {
    const quant_q5_0 *b = (const void *)src;
    for (; n > 0; n--, b++, dst += QUANT_SMALL) {
        uint8_t q[QUANT_SMALL];
        float d = quant_get_f16(b->d);
        join_fifth_bits(q, b->qs, b->qh);
        for (int i = 0; i < QUANT_SMALL; i++) dst[i] = d * (float)(q[i] - 16);
    }
}

void quant_read_q5_1(float *dst, const uint8_t *src, int64_t n) {
    const quant_q5_1 *b = (const void *)src;
    for (; n > 0; n--, b++, dst += QUANT_SMALL) {
        uint8_t q[QUANT_SMALL];
        float d = quant_get_f16(b->d), m = quant_get_f16(b->m);
        join_fifth_bits(q, b->qs, b->qh);
        for (int i = 0; i < QUANT_SMALL; i++) dst[i] = d * (float)q[i] + m;
    }
}

/* What the 32 elements of a group of Q4_K and Q5_K have in common: x = d q - m. */
typedef struct group_scale {
    float d, m;
} group_scale;

static inline group_scale scale_of(const uint8_t scales[12], int group, float d, float dmin) {
    uint8_t scale, min;
    quant_get_group(scales, group, &scale, &min);
    return (group_scale){d * (float)scale, dmin * (float)min};
}

void quant_read_q4_k(float *dst, const uint8_t *src, int64_t n) {
    const quant_q4_k *b = (const void *)src;
    for (; n > 0; n--, b++) {
        float d = quant_get_f16(b->d), dmin = quant_get_f16(b->dmin);
        for (int g = 0; g < 8; g += 2, dst += 64) {
            const uint8_t *qs = b->qs + 16 * g;
            group_scale lo = scale_of(b->scales, g, d, dmin);
            group_scale hi = scale_of(b->scales, g + 1, d, dmin);
            for (int i = 0; i < 32; i++) dst[i] = lo.d * (float)(qs[i] & 15) - lo.m;
            for (int i = 0; i < 32; i++) dst[i + 32] = hi.d * (float)(qs[i] >> 4) - hi.m;
        }
    }
}

void quant_read_q5_k(float *dst, const uint8_t *src, int64_t n) {
    const quant_q5_k *b = (const void *)src;
    for (; n > 0; n--, b++) {
        float d = quant_get_f16(b->d), dmin = quant_get_f16(b->dmin);
        for (int g = 0; g < 8; g += 2, dst += 64) {
            const uint8_t *qs = b->qs + 16 * g, *qh = b->qh;
            group_scale lo = scale_of(b->scales, g, d, dmin);
            group_scale hi = scale_of(b->scales, g + 1, d, dmin);
            for (int i = 0; i < 32; i++)
                dst[i] = lo.d * (float)((qs[i] & 15) | (qh[i] >> g & 1) << 4) - lo.m;
            for (int i = 0; i < 32; i++)
                dst[i + 32] = hi.d * (float)((qs[i] >> 4) | (qh[i] >> (g + 1) & 1) << 4) - hi.m;
        }
    }
}

/* Half a quarter of a run of Q6_K: 16 elements of one scale. The shifts must be known when this is
 * compiled, or it is no vector code. */
static inline void read_sixteen(float *dst, float d, const uint8_t *ql, int ql_shift,
                                const uint8_t *qh, int qh_shift) {
    for (int i = 0; i < 16; i++)
        dst[i] = d * (float)(((ql[i] >> ql_shift & 15) | (qh[i] >> qh_shift & 3) << 4) - 32);
}

void quant_read_q6_k(float *dst, const uint8_t *src, int64_t n) {
    const quant_q6_k *b = (const void *)src;
    for (; n > 0; n--, b++) {
        float d = quant_get_f16(b->d);
        for (int run = 0; run < 2; run++, dst += 128) {
            for (int half = 0; half < 2; half++) {
                const int8_t *s = b->scales + 8 * run + half;
                const uint8_t *ql = b->ql + 64 * run + 16 * half,
                              *qh = b->qh + 32 * run + 16 * half;
                float *out = dst + 16 * half;
                read_sixteen(out, d * (float)s[0], ql, 0, qh, 0);
                read_sixteen(out + 32, d * (float)s[2], ql + 32, 0, qh, 2);
                read_sixteen(out + 64, d * (float)s[4], ql, 4, qh, 4);
                read_sixteen(out + 96, d * (float)s[6], ql + 32, 4, qh, 6);
            }
        }
    }
}
