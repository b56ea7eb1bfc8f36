/* Conversion between number formats. */
#include "base/dtype.h"

#include <strings.h>

#include "base/fp8.h"
#include "base/nf4.h"
#include "base/quant.h"
#include "base/status.h"

static const struct {
    const char *name, *alias; /* ours and the safetensors name where it differs by more than case */
    size_t bytes;             /* 0: blocks */
} DTYPES[DT_COUNT] = {
    [DT_F32] = {"f32", "float32", 4},       [DT_BF16] = {"bf16", "bfloat16", 2},
    [DT_F16] = {"f16", "float16", 2},       [DT_F64] = {"f64", "float64", 8},
    [DT_I32] = {"i32", "int32", 4},         [DT_I64] = {"i64", "int64", 8},
    [DT_U8] = {"u8", "uint8", 1},           [DT_Q4_0] = {"q4_0", "q4_0", 0},
    [DT_Q4_1] = {"q4_1", "q4_1", 0},        [DT_Q5_0] = {"q5_0", "q5_0", 0},
    [DT_Q5_1] = {"q5_1", "q5_1", 0},        [DT_Q8_0] = {"q8_0", "q8_0", 0},
    [DT_Q4_K] = {"q4_k", "q4_k", 0},        [DT_Q5_K] = {"q5_k", "q5_k", 0},
    [DT_Q6_K] = {"q6_k", "q6_k", 0},        [DT_FP8] = {"fp8_rows", "fp8_rows", 0},
    [DT_NF4] = {"nf4_rows", "nf4_rows", 0},
};

size_t dtype_bytes(dtype dt) {
    CHECK(!dtype_is_blocks(dt), "an element of %s has no size", dtype_name(dt));
    return DTYPES[dt].bytes;
}

bool dtype_is_blocks(dtype dt) {
    return DTYPES[dt].bytes == 0;
}

bool dtype_is_listed(dtype dt) {
    return dt == DT_FP8 || dt == DT_NF4;
}

int64_t dtype_span_bytes(dtype dt, int64_t n) {
    if (!dtype_is_blocks(dt)) return n * (int64_t)DTYPES[dt].bytes;
    if (dt == DT_FP8) return n ? (int64_t)sizeof(fp8_row) : 0;
    if (dt == DT_NF4) return n ? (int64_t)sizeof(int32_t) : 0;
    const quant_format *f = quant_by_dtype(dt);
    CHECK(n % f->block == 0, "%lld elements of %s", (long long)n, f->name);
    return n / f->block * f->bytes;
}

int64_t dtype_row_bytes(dtype dt, int64_t n) {
    if (dt == DT_NF4) return n / 2 + n / NF4_BLOCK;
    return dt == DT_FP8 ? n : dtype_span_bytes(dt, n);
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
    } else if (src_dt == DT_F32 && dst_dt == DT_F16) {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = f32_to_f16(((const float *)src)[i]);
    } else if (src_dt == DT_F16 && dst_dt == DT_F32) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = f16_to_f32(((const uint16_t *)src)[i]);
    } else {
        for (int64_t i = 0; i < n; i++) store(dst, dst_dt, i, load(src, src_dt, i));
    }
}
