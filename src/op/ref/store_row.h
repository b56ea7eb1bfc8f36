/* How a row of keys or values is put into a cache, whose numbers may be narrower. */
#ifndef OP_REF_STORE_ROW_H
#define OP_REF_STORE_ROW_H

#include <string.h>

#include "op/ref/ref.h"

static inline uint16_t to_f16(float x) {
    const float F16_MAX = 65504.0f;
    float size = fabsf(x);
    return f32_to_f16(size > F16_MAX && size < INFINITY ? copysignf(F16_MAX, x) : x);
}

static inline void store_row(const tensor *to, int64_t row, const STORE *src) {
    size_t bytes = dtype_bytes(to->dt);
    void *dst = (char *)to->data + (size_t)(row * to->ld) * bytes;
    if (to->dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t))
        for (int64_t i = 0; i < to->cols; i++) ((uint16_t *)dst)[i] = to_f16((float)load(src[i]));
    else
        memcpy(dst, src, (size_t)to->cols * bytes);
}

static inline void copy_cache(const tensor *to, const tensor *from) {
    size_t bytes = dtype_bytes(to->dt);
    for (int64_t n = 0; n < to->rows; n++)
        memcpy((char *)to->data + (size_t)(n * to->ld) * bytes,
               (char *)from->data + (size_t)(n * from->ld) * bytes, (size_t)to->cols * bytes);
}

#endif
