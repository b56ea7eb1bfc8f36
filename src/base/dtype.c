/* Conversion between number formats. f16 is done with integers: exact for subnormals, ties to even,
 * and the same on machines with and without conversion instructions. */
#include "base/dtype.h"

#include <strings.h>

#include "base/status.h"

static const struct {
    const char *name, *alias; /* ours and the safetensors name where it differs by more than case */
    size_t bytes;
} DTYPES[DT_COUNT] = {
    [DT_F32] = {"f32", "float32", 4}, [DT_BF16] = {"bf16", "bfloat16", 2},
    [DT_F16] = {"f16", "float16", 2}, [DT_F64] = {"f64", "float64", 8},
    [DT_I32] = {"i32", "int32", 4},   [DT_I64] = {"i64", "int64", 8},
    [DT_U8] = {"u8", "uint8", 1},
};

size_t dtype_bytes(dtype dt) {
    return DTYPES[dt].bytes;
}

const char *dtype_name(dtype dt) {
    return DTYPES[dt].name;
}

bool dtype_parse(const char *s, dtype *dt) {
    for (int i = 0; i < DT_COUNT; i++) {
        if (strcasecmp(s, DTYPES[i].name) == 0 || strcasecmp(s, DTYPES[i].alias) == 0) {
            *dt = (dtype)i;
            return true;
        }
    }
    return false;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 31u, man = h & 0x3ffu, u;
    if (exp == 31) {
        u = sign | 0x7f800000u | man << 13;
    } else if (exp != 0) {
        u = sign | (exp + 112) << 23 | man << 13;
    } else if (man == 0) {
        u = sign;
    } else { /* subnormal: move the leading one into the hidden bit */
        uint32_t shift = (uint32_t)__builtin_clz(man) - 21;
        u = sign | (113 - shift) << 23 | ((man << shift) & 0x3ffu) << 13;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* x / 2^shift, to nearest, ties to even. */
static uint32_t shift_round(uint32_t x, uint32_t shift) {
    uint32_t half = (1u << (shift - 1)) - 1;
    return (x + half + ((x >> shift) & 1u)) >> shift;
}

uint16_t f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7fffffffu, h;
    if (mag > 0x7f800000u) {
        h = 0x7e00u | ((mag >> 13) & 0x3ffu);
    } else if (mag >= 0x477ff000u) { /* 65520 and above round to infinity */
        h = 0x7c00u;
    } else if (mag >= 0x38800000u) { /* a carry out of the mantissa raises the exponent */
        h = shift_round(mag - (112u << 23), 13);
    } else if (mag >= 0x33000000u) { /* subnormal in f16: 2^-25 and above */
        h = shift_round((mag & 0x7fffffu) | 0x800000u, 126 - (mag >> 23));
    } else {
        h = 0;
    }
    return (uint16_t)(sign | h);
}

static double load(const void *src, dtype dt, int64_t i) {
    switch (dt) {
        case DT_F32: return ((const float *)src)[i];
        case DT_BF16: return bf16_to_f32(((const uint16_t *)src)[i]);
        case DT_F16: return f16_to_f32(((const uint16_t *)src)[i]);
        default: return ((const double *)src)[i];
    }
}

/* Narrows to float so that a later rounding to 16 bits equals one direct rounding: when double to
 * float is inexact, the last bit is made odd ("round to odd"). */
static float narrow_to_odd(double x) {
    float f = (float)x;
    if ((double)f == x || x != x) return f;
    uint32_t u;
    memcpy(&u, &f, 4);
    bool away = (x > 0) ? (double)f > x : (double)f < x;
    if (away) u--; /* toward zero first */
    u |= 1u;
    memcpy(&f, &u, 4);
    return f;
}

static void store(void *dst, dtype dt, int64_t i, double x) {
    switch (dt) {
        case DT_F32: ((float *)dst)[i] = (float)x; break;
        case DT_BF16: ((uint16_t *)dst)[i] = f32_to_bf16(narrow_to_odd(x)); break;
        case DT_F16: ((uint16_t *)dst)[i] = f32_to_f16(narrow_to_odd(x)); break;
        default: ((double *)dst)[i] = x; break;
    }
}

static bool is_float(dtype dt) {
    return dt == DT_F32 || dt == DT_BF16 || dt == DT_F16 || dt == DT_F64;
}

void dtype_convert(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n) {
    CHECK(is_float(dst_dt) && is_float(src_dt), "no conversion from %s to %s", dtype_name(src_dt),
          dtype_name(dst_dt));
    if (dst_dt == src_dt) {
        if (n > 0) memmove(dst, src, (size_t)n * dtype_bytes(src_dt));
    } else if (src_dt == DT_F32 && dst_dt == DT_BF16) {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = f32_to_bf16(((const float *)src)[i]);
    } else if (src_dt == DT_BF16 && dst_dt == DT_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = bf16_to_f32(((const uint16_t *)src)[i]);
    } else {
        for (int64_t i = 0; i < n; i++) store(dst, dst_dt, i, load(src, src_dt, i));
    }
}
