/* How the bytes of a block lie. All members are bytes, so a block may stand at any address.
 *
 * Formats of 32 elements: element i < 16 is in the low half of qs[i], element i + 16 in the high
 * half; bit i of qh is the fifth bit of element i.
 *
 * Q4_K and Q5_K: four runs of 64 elements. Of run g, element l < 32 is in the low half of
 * qs[32 g + l] and belongs to group 2 g; element 32 + l is in the high half, group 2 g + 1. Bit j
 * of qh[l] is the fifth bit of element l of group j.
 *
 * Q6_K: two runs of 128 elements, four quarters of 32 each. Quarters 0 and 1 of run h are the low
 * halves of ql[64 h] to ql[64 h + 63], quarters 2 and 3 the high halves; bits 2 k and 2 k + 1 of
 * qh[32 h + l] are the upper bits of element l of quarter k. A scale is for 16 elements. */
#ifndef BASE_QUANT_BLOCKS_H
#define BASE_QUANT_BLOCKS_H

#include <string.h>

#include "base/dtype.h"
#include "base/quant.h"

enum { QUANT_SMALL = 32, QUANT_K = 256 };

typedef struct quant_q4_0 {
    uint8_t d[2], qs[16];
} quant_q4_0;

typedef struct quant_q4_1 {
    uint8_t d[2], m[2], qs[16];
} quant_q4_1;

typedef struct quant_q5_0 {
    uint8_t d[2], qh[4], qs[16];
} quant_q5_0;

typedef struct quant_q5_1 {
    uint8_t d[2], m[2], qh[4], qs[16];
} quant_q5_1;

typedef struct quant_q8_0 {
    uint8_t d[2];
    int8_t qs[32];
} quant_q8_0;

typedef struct quant_q4_k {
    uint8_t d[2], dmin[2], scales[12], qs[128];
} quant_q4_k;

typedef struct quant_q5_k {
    uint8_t d[2], dmin[2], scales[12], qh[32], qs[128];
} quant_q5_k;

typedef struct quant_q6_k {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint8_t d[2];
} quant_q6_k;

static inline float quant_get_f16(const uint8_t bytes[2]) {
    uint16_t h;
    memcpy(&h, bytes, 2);
    return f16_to_f32(h);
}

static inline void quant_put_f16(uint8_t bytes[2], float f) {
    uint16_t h = f32_to_f16(f);
    memcpy(bytes, &h, 2);
}

/* The 6-bit scale and minimum of group j < 8 of Q4_K and Q5_K: those of the first four groups are
 * the low bits of bytes 0-3 and 4-7, whose two upper bits complete the halves of bytes 8-11. */
static inline void quant_get_group(const uint8_t s[12], int j, uint8_t *scale, uint8_t *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (uint8_t)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

/* Of quant_read.c and quant_write.c, for the table. */
quant_read_fn quant_read_f32, quant_read_f16, quant_read_bf16, quant_read_q8_0, quant_read_q4_0,
    quant_read_q4_1, quant_read_q5_0, quant_read_q5_1, quant_read_q4_k, quant_read_q5_k,
    quant_read_q6_k;
quant_write_fn quant_write_f32, quant_write_f16, quant_write_bf16, quant_write_q8_0,
    quant_write_q4_0, quant_write_q4_1;

#endif
