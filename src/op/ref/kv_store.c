/* cache[(b*K + h)*Tmax + qpos[b] + t, :] = head h of src[b*T + t, :]. */
#include <string.h>

#include "op/ref/ref.h"

static const float F16_MAX = 65504.0f;

static uint16_t to_f16(float x) {
    float size = fabsf(x);
    return f32_to_f16(size > F16_MAX && size < INFINITY ? copysignf(F16_MAX, x) : x);
}

static void copy_row(const tensor *to, int64_t row, const STORE *src) {
    size_t bytes = dtype_bytes(to->dt);
    void *dst = (char *)to->data + (size_t)(row * to->ld) * bytes;
    if (to->dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t))
        for (int64_t i = 0; i < to->cols; i++) ((uint16_t *)dst)[i] = to_f16((float)load(src[i]));
    else
        memcpy(dst, src, (size_t)to->cols * bytes);
}

static void copy_cache(const tensor *to, const tensor *from) {
    size_t bytes = dtype_bytes(to->dt);
    for (int64_t n = 0; n < to->rows; n++)
        memcpy((char *)to->data + (size_t)(n * to->ld) * bytes,
               (char *)from->data + (size_t)(n * from->ld) * bytes, (size_t)to->cols * bytes);
}

static void kv_store_fwd(const op_call *c) {
    const tensor *cache = &c->in[0], *src = &c->in[1], *out = &c->out[0];
    int64_t T = c->attr->kv.T, Tmax = c->attr->kv.Tmax, K = c->attr->kv.K;
    if (out->data != cache->data) copy_cache(out, cache);
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t b = n / T, at = int_at(&c->in[2], b) + n % T;
        CHECK(at >= 0 && at < Tmax, "kv_store: row %lld is outside the cache of %lld",
              (long long)at, (long long)Tmax);
        for (int64_t h = 0; h < K; h++)
            copy_row(out, (b * K + h) * Tmax + at, row_of(src, n) + h * out->cols);
    }
}

const op_impl REF_IMPL(KV_STORE) = {kv_store_fwd, NULL, NULL, NULL};
