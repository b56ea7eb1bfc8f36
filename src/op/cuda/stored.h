/* Weights as files store them (base/quant.h), read where they lie, 8 elements at a time: blocks stand
 * at any address, so bytes are read one by one. Products and sums are rounded as on the CPU. */
#ifndef OP_CUDA_STORED_H
#define OP_CUDA_STORED_H

#include "base/dtype.h"
#include "base/nf4.h"
#include "gpu/kernel.h"

enum { STORED_STEP = 8 };

/* Bytes of so many elements from the start of a row; blocks are not cut. */
GPU_FN int64_t stored_bytes(int32_t dt, int64_t n) {
    switch (dt) {
        case DT_Q4_0: return n / 32 * 18;
        case DT_Q4_1: return n / 32 * 20;
        case DT_Q5_0: return n / 32 * 22;
        case DT_Q5_1: return n / 32 * 24;
        case DT_Q8_0: return n / 32 * 34;
        case DT_Q4_K: return n / 256 * 144;
        case DT_Q5_K: return n / 256 * 176;
        case DT_Q6_K: return n / 256 * 210;
        default: return n * 2;
    }
}

GPU_FN uint16_t stored_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
GPU_FN float stored_f16(const uint8_t *p) {
    return f16_load(stored_u16(p));
}

/* Elements i to i + 7 of a block of 32 whose 16 bytes of halves are at qs, the fifth bits at qh. */
GPU_FN void small_halves(const uint8_t *qs, const uint8_t *qh, int i, int32_t q[STORED_STEP]) {
    int shift = i < 16 ? 0 : 4;
    for (int j = 0; j < STORED_STEP; j++) {
        q[j] = qs[i % 16 + j] >> shift & 15;
        if (qh) q[j] |= (qh[i / 8] >> j & 1) << 4;
    }
}

/* x = d q + m. To add -0 changes nothing, not even the sign of 0. */
GPU_FN void small_scaled(float d, float m, const int32_t q[STORED_STEP], float out[STORED_STEP]) {
    for (int j = 0; j < STORED_STEP; j++) out[j] = mul_rounded(d, (float)q[j]) + m;
}

/* A block of 256 in 8 groups, x = (d s) q - (dmin m): base/quant_blocks.h says how they lie. */
GPU_FN void k_groups(const uint8_t *b, bool fifth, int i, float out[STORED_STEP]) {
    const uint8_t *s = b + 4, *qh = b + 16, *qs = fifth ? b + 48 : b + 16;
    int group = i / 32, l = i % 32, shift = group % 2 * 4;
    int scale = group < 4 ? s[group] & 63 : (s[group + 4] & 15) | (s[group - 4] >> 6) << 4;
    int min = group < 4 ? s[group + 4] & 63 : s[group + 4] >> 4 | (s[group] >> 6) << 4;
    float d = mul_rounded(stored_f16(b), (float)scale);
    float m = mul_rounded(stored_f16(b + 2), (float)min);
    for (int j = 0; j < STORED_STEP; j++) {
        int q = qs[group / 2 * 32 + l + j] >> shift & 15;
        if (fifth) q |= (qh[l + j] >> group & 1) << 4;
        out[j] = mul_rounded(d, (float)q) - m;
    }
}

/* A block of 256 in 16 groups, x = (d s) (q - 32). */
GPU_FN void k_sixteen(const uint8_t *b, int i, float out[STORED_STEP]) {
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *s = (const int8_t *)(b + 192);
    int run = i / 128, quarter = i % 128 / 32, l = i % 32;
    float d = mul_rounded(stored_f16(b + 208), (float)s[i / 16]);
    for (int j = 0; j < STORED_STEP; j++) {
        int low = ql[64 * run + quarter % 2 * 32 + l + j] >> (quarter / 2 * 4) & 15;
        int high = qh[32 * run + l + j] >> (2 * quarter) & 3;
        out[j] = mul_rounded(d, (float)((low | high << 4) - 32));
    }
}

/* NF4 (base/nf4.h): elements i to i + 7 of a row of the list. */
GPU_FN void stored_nf4(const uint8_t *row, int64_t i, float out[STORED_STEP]) {
    static const float level[] = {NF4_LEVELS}, map[] = {NF4_MAP_VALUES};
    int64_t r = *(const int32_t *)row;
    const nf4_matrix *m = (const nf4_matrix *)(row - r * (int64_t)sizeof(int32_t)) - 1;
    const uint8_t *at = (const uint8_t *)m;
    int64_t block = (r * m->cols + i) / NF4_BLOCK;
    float nested = ((const float *)(at + m->nested_at))[block / NF4_NESTED];
    float d = mul_rounded(map[at[m->scale_at + block]], nested) + m->mean;
    int32_t q[STORED_STEP];
    small_halves(at + m->bits_at + (r * m->cols + i) / 32 * 16, NULL, (int)(i % 32), q);
    for (int j = 0; j < STORED_STEP; j++) out[j] = level[q[j]] * d;
}

/* f16 and bf16, n <= 8 of them; the others are 0. */
GPU_FN void stored_plain(const uint8_t *p, bool is_f16, int64_t n, float out[STORED_STEP]) {
    union {
        float f[4];
        uint16_t h[STORED_STEP];
    } u;
    if (n == STORED_STEP && (uintptr_t)p % 16 == 0)
        load4(u.f, p);
    else
        for (int j = 0; j < STORED_STEP; j++) u.h[j] = j < n ? stored_u16(p + 2 * j) : (uint16_t)0;
    for (int j = 0; j < STORED_STEP; j++) out[j] = is_f16 ? f16_load(u.h[j]) : bf16_load(u.h[j]);
}

/* Elements [i, i + 8) of a row of `cols`; i is a multiple of 8. Those behind the row are 0. */
GPU_FN void stored_read8(int32_t dt, const uint8_t *row, int64_t cols, int64_t i,
                         float out[STORED_STEP]) {
    const uint8_t *b = row + stored_bytes(dt, i);
    int in_block = (int)(i % (dt >= DT_Q4_K ? 256 : 32));
    int32_t q[STORED_STEP];
    switch (dt) {
        case DT_Q4_0:
            small_halves(b + 2, NULL, in_block, q);
            for (int j = 0; j < STORED_STEP; j++) q[j] -= 8;
            small_scaled(stored_f16(b), -0.0f, q, out);
            break;
        case DT_Q4_1:
            small_halves(b + 4, NULL, in_block, q);
            small_scaled(stored_f16(b), stored_f16(b + 2), q, out);
            break;
        case DT_Q5_0:
            small_halves(b + 6, b + 2, in_block, q);
            for (int j = 0; j < STORED_STEP; j++) q[j] -= 16;
            small_scaled(stored_f16(b), -0.0f, q, out);
            break;
        case DT_Q5_1:
            small_halves(b + 8, b + 4, in_block, q);
            small_scaled(stored_f16(b), stored_f16(b + 2), q, out);
            break;
        case DT_Q8_0:
            for (int j = 0; j < STORED_STEP; j++) q[j] = (int8_t)b[2 + in_block + j];
            small_scaled(stored_f16(b), -0.0f, q, out);
            break;
        case DT_Q4_K: k_groups(b, false, in_block, out); break;
        case DT_Q5_K: k_groups(b, true, in_block, out); break;
        case DT_Q6_K: k_sixteen(b, in_block, out); break;
        case DT_NF4: stored_nf4(row, i, out); break;
        default:
            stored_plain(b, dt == DT_F16, cols - i < STORED_STEP ? cols - i : STORED_STEP, out);
    }
}

#endif
