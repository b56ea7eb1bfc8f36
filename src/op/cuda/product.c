/* Matrix products by cuBLASLt, and the plans that were made for them.
 *
 * cuBLASLt takes matrices column by column. A matrix whose rows lie one after the other is the
 * transposed one for it, so C = A B is given as C' = B' A': its A is our B, its m our n.
 *
 * A plan holds the descriptors and the algorithm of one shape. It is made when the shape first comes,
 * in the first step, and kept with the device. The algorithm is the first that the library's
 * heuristic names, so the same machine and library give the same bits. */
#include "op/cuda/product.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { WS_MOST = 32 << 20, WS_ALIGN = 256, ALIGN_MOST = 16 };

/* Everything on which the choice of an algorithm depends; compared as bytes. */
typedef struct plan_key {
    int64_t m, n, k, lda, ldb, ldc, ld_add;
    uint16_t alignment[4]; /* of cuBLASLt's A, B, C and D */
    uint8_t a_trans, b_trans, ab_dt, c_dt, bias;
    uint8_t zero[3];
} plan_key;

typedef struct plan {
    plan_key key;
    lt_desc desc;
    lt_layout layout[4]; /* of cuBLASLt's A, B, C and D */
    lt_algorithm algorithm;
    size_t ws_bytes;
    lt_result state; /* 0: it can be run */
} plan;

typedef struct product_cache {
    dev *dev;
    pthread_mutex_t lock; /* several threads may give work */
    plan *plans;
    int n, cap;
} product_cache;

static void *cache_new(dev *d) {
    product_cache *c = xcalloc(1, sizeof *c);
    c->dev = d;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void cache_free(void *cache) {
    product_cache *c = cache;
    const lt_library *lt = &cuda_get_lt(c->dev)->api;
    for (int i = 0; i < c->n; i++) {
        for (int l = 0; l < 4; l++) lt->layout_destroy(c->plans[i].layout[l]);
        lt->desc_destroy(c->plans[i].desc);
    }
    pthread_mutex_destroy(&c->lock);
    free(c->plans);
    free(c);
}

static int64_t usable_bytes(int64_t m, int64_t n) {
    int64_t parts = 4 * m * n * (int64_t)sizeof(float);
    return parts < WS_MOST ? (parts + WS_ALIGN - 1) / WS_ALIGN * WS_ALIGN : WS_MOST;
}

int64_t cuda_product_ws_bytes(int64_t m, int64_t n) {
    return usable_bytes(m, n) + WS_ALIGN; /* the caller's memory is aligned to less */
}

/* ---- making a plan ---- */

static uint16_t alignment_of(const void *p, int64_t ld, dtype dt) {
    uint64_t at = (uintptr_t)p | (uint64_t)ld * dtype_bytes(dt) | ALIGN_MOST;
    return (uint16_t)(at & (~at + 1)); /* the lowest bit */
}

static plan_key key_of(const cuda_product *p) {
    plan_key k;
    memset(&k, 0, sizeof k);
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.lda = p->lda, k.ldb = p->ldb, k.ldc = p->ldc;
    k.ld_add = p->add ? p->ld_add : p->ldc;
    k.a_trans = p->a_trans, k.b_trans = p->b_trans;
    k.ab_dt = (uint8_t)p->ab_dt, k.c_dt = (uint8_t)p->c_dt, k.bias = p->bias != NULL;
    k.alignment[0] = alignment_of(p->b, p->ldb, p->ab_dt);
    k.alignment[1] = alignment_of(p->a, p->lda, p->ab_dt);
    k.alignment[2] = alignment_of(p->add ? p->add : p->c, k.ld_add, p->c_dt);
    k.alignment[3] = alignment_of(p->c, p->ldc, p->c_dt);
    return k;
}

static int type_of(dtype dt) {
    return dt == DT_F32 ? LT_R_32F : dt == DT_BF16 ? LT_R_16BF : LT_R_16F;
}

/* A matrix of ours with so many rows. */
static lt_result layout_of(const lt_library *lt, lt_layout *l, dtype dt, int64_t rows, int64_t cols,
                           int64_t ld) {
    return lt->layout_create(l, type_of(dt), (uint64_t)cols, (uint64_t)rows, ld);
}

static lt_result describe(const lt_library *lt, plan *p, const cuda_product *x) {
    int32_t turn_a = x->b_trans ? LT_TRANSPOSED : LT_AS_IT_IS;
    int32_t turn_b = x->a_trans ? LT_TRANSPOSED : LT_AS_IT_IS;
    lt_result r = lt->desc_create(&p->desc, LT_COMPUTE_32F, LT_R_32F);
    if (r == 0) r = lt->desc_set(p->desc, LT_DESC_TRANSPOSE_A, &turn_a, sizeof turn_a);
    if (r == 0) r = lt->desc_set(p->desc, LT_DESC_TRANSPOSE_B, &turn_b, sizeof turn_b);
    if (r == 0 && x->bias) {
        /* Of the address only the alignment counts now: the least that later ones have. */
        const void *bias = (const void *)(uintptr_t)ALIGN_MOST;
        uint32_t epilogue = LT_EPILOGUE_BIAS;
        r = lt->desc_set(p->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        if (r == 0) r = lt->desc_set(p->desc, LT_DESC_BIAS, &bias, sizeof bias);
    }
    if (r == 0)
        r = layout_of(lt, &p->layout[0], x->ab_dt, x->b_trans ? x->n : x->k,
                      x->b_trans ? x->k : x->n, x->ldb);
    if (r == 0)
        r = layout_of(lt, &p->layout[1], x->ab_dt, x->a_trans ? x->k : x->m,
                      x->a_trans ? x->m : x->k, x->lda);
    if (r == 0) r = layout_of(lt, &p->layout[2], x->c_dt, x->m, x->n, p->key.ld_add);
    if (r == 0) r = layout_of(lt, &p->layout[3], x->c_dt, x->m, x->n, x->ldc);
    return r;
}

static lt_result choose(const cuda_lt *lt, plan *p) {
    lt_preference prefer;
    lt_choice first;
    int n = 0;
    uint64_t bytes = (uint64_t)usable_bytes(p->key.m, p->key.n);
    lt_result r = lt->api.preference_create(&prefer);
    if (r != 0) return r;
    r = lt->api.preference_set(prefer, LT_PREFER_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (int i = 0; i < 4 && r == 0; i++) {
        uint32_t alignment = p->key.alignment[i];
        r = lt->api.preference_set(prefer, LT_PREFER_ALIGNMENT_A + i, &alignment, sizeof alignment);
    }
    if (r == 0)
        r = lt->api.choose(lt->handle, p->desc, p->layout[0], p->layout[1], p->layout[2],
                           p->layout[3], prefer, 1, &first, &n);
    lt->api.preference_destroy(prefer);
    if (r == 0 && n == 0) r = LT_NOT_SUPPORTED;
    if (r != 0) return r;
    p->algorithm = first.algorithm;
    p->ws_bytes = first.workspace_bytes;
    return first.state;
}

static plan *plan_for(product_cache *c, const cuda_lt *lt, const cuda_product *x) {
    plan_key key = key_of(x);
    for (int i = 0; i < c->n; i++)
        if (memcmp(&c->plans[i].key, &key, sizeof key) == 0) return &c->plans[i];
    plan new = {.key = key};
    new.state = describe(&lt->api, &new, x);
    if (new.state == 0) new.state = choose(lt, &new);
    VEC_PUSH(c->plans, c->n, c->cap, new);
    return &c->plans[c->n - 1];
}

/* ---- running one ---- */

static lt_result multiply(const cuda_lt *lt, const plan *p, const cuda_product *x, char *ws,
                          cu_stream s) {
    const float alpha = 1, beta = x->add ? 1 : 0;
    ws += (WS_ALIGN - (uintptr_t)ws % WS_ALIGN) % WS_ALIGN;
    lt_result r = p->state;
    if (r == 0 && x->bias) r = lt->api.desc_set(p->desc, LT_DESC_BIAS, &x->bias, sizeof x->bias);
    if (r == 0)
        r = lt->api.multiply(lt->handle, p->desc, &alpha, x->b, p->layout[0], x->a, p->layout[1],
                             &beta, x->add ? x->add : x->c, p->layout[2], x->c, p->layout[3],
                             &p->algorithm, ws, p->ws_bytes, s);
    return r;
}

void cuda_product_run(dev *d, const cuda_product *x, void *ws) {
    const cuda_lt *lt = cuda_get_lt(d);
    cu_stream s = cuda_stream(d);
    product_cache *c = dev_kernel_cache(d, cache_new, cache_free);
    pthread_mutex_lock(&c->lock);
    lt_result r = multiply(lt, plan_for(c, lt, x), x, ws, s);
    pthread_mutex_unlock(&c->lock);
    if (r == 0) return;
    char what[160];
    snprintf(what, sizeof what,
             "cuBLASLt's product [%lld,%lld] of %s, with sums of %lld terms in %s", (long long)x->m,
             (long long)x->n, dtype_name(x->ab_dt), (long long)x->k, dtype_name(x->c_dt));
    cuda_note_error(d, what, lt->api.status_text(r));
}
