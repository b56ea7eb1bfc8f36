/* cache[b*Tmax + qpos[b] + t, :] = src[b*T + t, :]. */
#include <string.h>

#include "op/ref/ref.h"

static void copy_row(const tensor *to, int64_t to_row, const tensor *from, int64_t from_row) {
    STORE *dst = row_of(to, to_row);
    const STORE *src = row_of(from, from_row);
    if (dst != src) memcpy(dst, src, (size_t)to->cols * sizeof(STORE));
}

static void kv_store_fwd(const op_call *c) {
    const tensor *cache = &c->in[0], *src = &c->in[1], *out = &c->out[0];
    int64_t T = c->attr->kv.T, Tmax = c->attr->kv.Tmax;
    for (int64_t n = 0; n < out->rows && out->data != cache->data; n++) copy_row(out, n, cache, n);
    for (int64_t n = 0; n < src->rows; n++) {
        int64_t b = n / T, at = int_at(&c->in[2], b) + n % T;
        CHECK(at >= 0 && at < Tmax, "kv_store: row %lld is outside the cache of %lld",
              (long long)at, (long long)Tmax);
        copy_row(out, b * Tmax + at, src, n);
    }
}

const op_impl REF_IMPL(KV_STORE) = {kv_store_fwd, NULL, NULL, NULL};
