/* Chooses the implementation of a matrix product: our kernel for the device's instruction set, or
 * oneDNN when ATHANOR_GEMM=onednn asks for it.
 *
 * Measured at the shapes of bench_ops (one core of an EPYC Zen 4, oneDNN 2.6; GFLOP/s, own first):
 * f32 99-110 against 100-111 on avx512, 103-109 against 100-108 on avx2; bf16 192-222 against
 * 191-219 on avx512_bf16, 107-111 against 38-111 on avx512. Nowhere is oneDNN 5 % faster, and only
 * the own kernels promise bits that do not depend on threads, so they are always the default. */
#include "op/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "op/cpu/tables.h"
#include "op/gemm_onednn.h"

typedef struct gemm_cache {
    onednn_cache *onednn;
    bool prefer_onednn; /* ATHANOR_GEMM=onednn */
} gemm_cache;

static void *gemm_cache_new(dev *d) {
    gemm_cache *c = xmalloc(sizeof *c);
    const char *choice = getenv("ATHANOR_GEMM");
    c->prefer_onednn = choice && strcmp(choice, "onednn") == 0;
    c->onednn = onednn_cache_new(dev_threads(d));
    return c;
}

static void gemm_cache_free(void *cache) {
    gemm_cache *c = cache;
    onednn_cache_free(c->onednn);
    free(c);
}

int64_t gemm_ws_bytes(cpu_isa isa, int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt,
                      dtype c_dt) {
    return cpu_kernels_of(isa)->gemm_ws(threads, m, n, k, ab_dt, c_dt);
}

const char *gemm_impl_name(gemm_impl impl) {
    return impl == GEMM_ONEDNN ? "onednn" : "own";
}

static const gemm_cache *cache_of(dev *d) {
    return dev_kernel_cache(d, gemm_cache_new, gemm_cache_free);
}

bool gemm_run_with(dev *d, gemm_impl impl, const gemm_args *g, void *ws) {
    if (impl == GEMM_ONEDNN) {
        int64_t bytes =
            gemm_ws_bytes(dev_isa(d), dev_threads(d), g->m, g->n, g->k, g->ab_dt, g->c_dt);
        return onednn_run(cache_of(d)->onednn, g, ws, bytes);
    }
    cpu_kernels_of(dev_isa(d))->gemm(dev_threads(d), g, ws);
    return true;
}

void gemm_run(dev *d, const gemm_args *g, void *ws) {
    if (cache_of(d)->prefer_onednn && gemm_run_with(d, GEMM_ONEDNN, g, ws)) return;
    gemm_run_with(d, GEMM_OWN, g, ws);
}
