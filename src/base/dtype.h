/* Number formats of stored values, and their conversion. Arithmetic is always in float (or double
 * in the oracle); bf16 and f16 are storage. Rounding is to nearest, ties to even; NaN stays NaN. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum dtype {
    DT_F32,
    DT_BF16,
    DT_F16,
    DT_F64,
    DT_I32,
    DT_I64,
    DT_U8,
    DT_Q4_0, /* blocks of a row (base/quant.h), only of weights that are read */
    DT_Q4_1,
    DT_Q5_0,
    DT_Q5_1,
    DT_Q8_0,
    DT_Q4_K,
    DT_Q5_K,
    DT_Q6_K,
    DT_FP8, /* rows of 8-bit floats with factors (base/fp8.h), only of weights that are read */
    DT_NF4, /* rows of 4-bit NormalFloats (base/nf4.h), only of weights that are read */
    DT_COUNT
} dtype;

size_t dtype_bytes(dtype dt);   /* of one element; a block format has no such size */
bool dtype_is_blocks(dtype dt); /* also DT_FP8 and DT_NF4 */
bool dtype_is_listed(
    dtype dt); /* DT_FP8, DT_NF4: a matrix is a list of its rows, whose numbers lie elsewhere */
/* Bytes of n elements of a row; n is a multiple of the block. Of a listed format: from a row to the next in the list. */
int64_t dtype_span_bytes(dtype dt, int64_t n);
/* Bytes that are read for a row of n elements, wherever they lie. */
int64_t dtype_row_bytes(dtype dt, int64_t n);
const char *dtype_name(dtype dt); /* "f32", "bf16", ... */
/* From our names and from safetensors names ("F32", "BF16"), any case. Returns false when unknown.
 */
bool dtype_parse(const char *s, dtype *dt);

static inline float bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* f16: exact for subnormals, and the same with and without instructions for it. All cases are
 * computed and one is taken, so that loops over these become vector code. */
static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu, u;
    float f = (float)(int32_t)mag * 0x1p-24f; /* right for subnormals: a multiple of 2^-24 */
    memcpy(&u, &f, 4);
    uint32_t normal = (mag << 13) + (mag < 0x7c00u ? 112u << 23 : 224u << 23);
    u = sign | (mag < 0x400u ? u : normal);
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu, tiny;
    memcpy(&f, &mag, 4);
    f += 0.5f; /* below 2^-14: the last bit of the sum is worth 2^-24, as that of a subnormal */
    memcpy(&tiny, &f, 4);
    /* a carry out of the mantissa raises the exponent */
    uint32_t normal = (mag - (112u << 23) + 0xfffu + ((mag >> 13) & 1u)) >> 13;
    uint32_t h = mag < 0x38800000u ? tiny - 0x3f000000u : normal;
    h = mag >= 0x477ff000u ? 0x7c00u : h; /* 65520 and above round to infinity */
    h = mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x3ffu) : h;
    return (uint16_t)(sign | h);
}

/* dst[i] = convert(src[i]) between any two of f32, bf16, f16, f64. */
void dtype_convert(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n);

#endif
