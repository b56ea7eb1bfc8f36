/* cache[(b*K + h)*Tmax + qpos[b] + t, :] = head h of src[b*T + t, :]. */
#include "op/ref/ref.h"
#include "op/ref/store_row.h"

static void kv_store_fwd(const op_call *c) {
    const tensor *cache = &c->in[0], *src = &c->in[1], *out = &c->out[0];
    int64_t T = c->attr->kv.T, Tmax = c->attr->kv.Tmax, K = c->attr->kv.K;
    if (out->data != cache->data) copy_cache(out, cache);
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t b = n / T, at = int_at(&c->in[2], b) + n % T;
        CHECK(at >= 0 && at < Tmax, "kv_store: row %lld is outside the cache of %lld",
              (long long)at, (long long)Tmax);
        for (int64_t h = 0; h < K; h++)
            store_row(out, (b * K + h) * Tmax + at, row_of(src, n) + h * out->cols);
    }
}

const op_impl REF_IMPL(KV_STORE) = {kv_store_fwd, NULL, NULL, NULL};
