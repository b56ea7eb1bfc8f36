/* Number formats of stored values, and their conversion. Arithmetic is always in float (or double
 * in the oracle); bf16 and f16 are storage. Rounding is to nearest, ties to even; NaN stays NaN. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum dtype { DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_I64, DT_U8, DT_COUNT } dtype;

size_t dtype_bytes(dtype dt);
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

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);

/* dst[i] = convert(src[i]) between any two of f32, bf16, f16, f64. */
void dtype_convert(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n);

#endif
