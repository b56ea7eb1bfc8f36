/* Chooses the implementation of a matrix product: the one remembered as faster for this shape on
 * this machine (gemm_choice.h), or what ATHANOR_GEMM=own|onednn says.
 *
 * What was never measured is computed by the own kernels, but bf16 on AMX by oneDNN: at the shapes of GPT-2, SmolLM2 and a
 * small Llama they are at 93-95 % of the multiply-add loop on Zen 4 (docs/performance.md),
 * oneDNN 2.6 is nowhere 3 % faster, and their bits do not depend on the number of threads. */
#include "op/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "op/cpu/tables.h"
#include "op/cuda/product.h"
#include "op/gemm_choice.h"
#include "op/gemm_onednn.h"

typedef struct gemm_cache {
    onednn_cache *onednn;
    gemm_choices choices;
    gemm_policy policy;
} gemm_cache;

/* A damaged file of choices must not stop a run that can do without it. */
static void read_choices(gemm_cache *c, const dev *d) {
    char path[4096];
    err e = {0};
    if (gemm_choices_path(path, sizeof path) &&
        gemm_choices_read(&c->choices, d, path, &e) != ST_OK)
        log_warn("%s; own matrix products are used", e.message);
}

static void *gemm_cache_new(dev *d) {
    gemm_cache *c = xcalloc(1, sizeof *c);
    const char *word = getenv("ATHANOR_GEMM");
    bool said = word && *word;
    c->policy = GEMM_REMEMBERED;
    if (said && strcmp(word, "own") == 0) c->policy = GEMM_ALL_OWN;
    if (said && strcmp(word, "onednn") == 0) c->policy = GEMM_ALL_ONEDNN;
    if (said && c->policy == GEMM_REMEMBERED && strcmp(word, "remembered") != 0)
        log_warn("ATHANOR_GEMM is \"%s\": use own, onednn or remembered", word);
    if (c->policy == GEMM_REMEMBERED) read_choices(c, d);
    c->onednn = onednn_cache_new(dev_threads(d));
    return c;
}

static void gemm_cache_free(void *cache) {
    gemm_cache *c = cache;
    onednn_cache_free(c->onednn);
    gemm_choices_free(&c->choices);
    free(c);
}

static gemm_cache *cache_of(dev *d) {
    return dev_kernel_cache(d, gemm_cache_new, gemm_cache_free);
}

gemm_policy gemm_get_policy(dev *d, int *by_onednn) {
    const gemm_cache *c = cache_of(d);
    *by_onednn = 0;
    for (int i = 0; i < c->choices.n; i++) *by_onednn += c->choices.item[i].impl == GEMM_ONEDNN;
    return c->policy;
}

void gemm_use_own(dev *d) {
    if (dev_get_kind(d) == DEV_CUDA) {
        if (!dev_is_meta(d)) cuda_product_use_first(d);
        return;
    }
    gemm_cache *c = cache_of(d);
    c->policy = GEMM_ALL_OWN;
    gemm_choices_free(&c->choices);
    c->choices = (gemm_choices){0};
}

gemm_impl gemm_unmeasured(const dev *d, dtype ab_dt) {
    return dev_isa(d) == ISA_AMX && ab_dt == DT_BF16 ? GEMM_ONEDNN : GEMM_OWN;
}

/* oneDNN must fit wherever it may be chosen without a measurement, which would know whether it does:
 * it wants the more the more threads there are. */
int64_t gemm_ws_bytes(dev *d, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt) {
    int64_t own = cpu_kernels_of(dev_isa(d), ab_dt)->gemm_ws(dev_threads(d), m, n, k, ab_dt, c_dt);
    if (gemm_unmeasured(d, ab_dt) != GEMM_ONEDNN) return own;
    int64_t other = onednn_ws_bytes(cache_of(d)->onednn, m, n, k, ab_dt, c_dt);
    return other > own ? other : own;
}

const char *gemm_impl_name(gemm_impl impl) {
    return impl == GEMM_ONEDNN ? "onednn" : "own";
}

bool gemm_run_with(dev *d, gemm_impl impl, const gemm_args *g, void *ws) {
    if (impl == GEMM_ONEDNN) {
        if (g->ab_dt == DT_F16) return false;
        int64_t bytes = gemm_ws_bytes(d, g->m, g->n, g->k, g->ab_dt, g->c_dt);
        return onednn_run(cache_of(d)->onednn, g, ws, bytes);
    }
    cpu_kernels_of(dev_isa(d), g->ab_dt)->gemm(dev_threads(d), g, ws);
    return true;
}

static gemm_impl choose(const dev *d, const gemm_cache *c, const gemm_args *g) {
    if (c->policy != GEMM_REMEMBERED) return c->policy == GEMM_ALL_ONEDNN ? GEMM_ONEDNN : GEMM_OWN;
    const gemm_choice *remembered = gemm_choices_find(&c->choices, g);
    return remembered ? remembered->impl : gemm_unmeasured(d, g->ab_dt);
}

void gemm_run(dev *d, const gemm_args *g, void *ws) {
    if (!gemm_run_with(d, choose(d, cache_of(d), g), g, ws)) gemm_run_with(d, GEMM_OWN, g, ws);
}
