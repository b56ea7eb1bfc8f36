/* KV_STORE: cache[(b K + h) Tmax + qpos[b] + t, :] = head h of src[b T + t, :]. A number read and one
 * written. In f32 programs the cache may be f16; numbers beyond its range become the largest. Where
 * the new cache is not the old one's memory, that is copied first. */
#include "op/cuda/pieces.h"

typedef struct kv_args {
    mat cache, src, qpos, out;
    pieces p, all;         /* of src, of the cache */
    int32_t T, Tmax, K, D; /* D columns of a head */
    int32_t as_f16;
} kv_args;

KERNEL(kv_copy, kv_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    if (!my_piece(&a->all, &n, &c)) return;
    if (a->as_f16) {
        ((uint16_t *)a->out.p)[n * a->out.ld + c] =
            ((const uint16_t *)a->cache.p)[n * a->cache.ld + c];
        return;
    }
    float v[VEC];
    piece_load(v, row_of(a->cache, n) + c, a->all.wide);
    piece_store(row_of(a->out, n) + c, v, a->all.wide);
}

GPU_FN uint16_t to_f16(float x) {
    float size = fabsf(x);
    bool beyond = size > 65504.0f && size < INFINITY;
    return f16_store(beyond ? copysignf(65504.0f, x) : x);
}

KERNEL(kv_store, kv_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    if (!my_piece(&a->p, &n, &c)) return;
    int64_t b = n / a->T, at = *i32_row_of(a->qpos, b) + n % a->T;
    kernel_check(at >= 0 && at < a->Tmax, "finds a position outside the cache");
    int64_t row = (b * a->K + c / a->D) * a->Tmax + at;
    const STORE *src = row_of(a->src, n) + c;
    if (a->as_f16) {
        ((uint16_t *)a->out.p)[row * a->out.ld + c % a->D] = to_f16(load(*src));
        return;
    }
    float v[VEC];
    piece_load(v, src, a->p.wide);
    piece_store(row_of(a->out, row) + c % a->D, v, a->p.wide);
}

#ifndef __CUDACC__

static void kv_store_fwd(const op_call *c) {
    const tensor *cache = &c->in[0], *src = &c->in[1], *out = &c->out[0];
    kv_args a = {.cache = mat_of(cache), .src = mat_of(src), .out = mat_of(out)};
    a.qpos = mat_of(&c->in[2]);
    a.T = c->attr->kv.T, a.Tmax = c->attr->kv.Tmax, a.K = c->attr->kv.K, a.D = (int32_t)out->cols;
    a.as_f16 = out->dt == DT_F16 && sizeof(STORE) > sizeof(uint16_t);
    a.p = pieces_of(src->rows, src->cols, !a.as_f16 && is_wide(src) && is_wide(out));
    a.all = pieces_of(out->rows, out->cols, !a.as_f16 && is_wide(cache) && is_wide(out));
    if (out->data != cache->data) launch(c, &kv_copy, grid_of_pieces(&a.all), &a);
    launch(c, &kv_store, grid_of_pieces(&a.p), &a);
}

const op_impl CUDA_IMPL(KV_STORE) = {kv_store_fwd, NULL, NULL, NULL};
#endif
