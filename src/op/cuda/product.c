/* Matrix products by cuBLASLt, and the plans that were made for them.
 *
 * cuBLASLt takes matrices column by column. A matrix whose rows lie one after the other is the
 * transposed one for it, so C = A B is given as C' = B' A': its A is our B, its m our n.
 *
 * A plan holds the descriptors and the algorithm of one shape. It is made when the shape first comes,
 * in the first step, and kept with the device. Its algorithm is the one that a file remembers as the
 * fastest, or that is measured now, else the first that the library's heuristic names.
 *
 * Reading order: product.h, making a plan, measuring, running. */
#include "op/cuda/product.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "op/cuda/product_choice.h"

enum { WS_MOST = 32 << 20, WS_ALIGN = 256, ALIGN_MOST = 16, SLOPE_STEP = 8 };

typedef struct plan {
    product_key key;
    lt_desc desc;
    lt_layout layout[4]; /* of cuBLASLt's A, B, C and D */
    lt_choice candidate[PRODUCT_CANDIDATES];
    int candidates, chosen;
    bool settled;    /* the choice stays */
    lt_result state; /* 0: it can be run */
} plan;

typedef struct product_cache {
    dev *dev;
    pthread_mutex_t lock; /* several threads may give work */
    plan *plans;
    int n, cap;
    bool use_first;
    char gpu[DEV_NAME_MAX];
    product_choices known;
} product_cache;

/* A damaged file must not stop a run that can do without it. */
static void read_known(product_cache *c) {
    char path[4096];
    err e = {0};
    cuda_name(c->dev, c->gpu);
    if (product_choices_path(path, sizeof path) &&
        product_choices_read(&c->known, c->gpu, cuda_get_lt(c->dev)->api.version(), path, &e) !=
            ST_OK)
        log_warn("%s; matrix products are measured again", e.message);
}

static void *cache_new(dev *d) {
    product_cache *c = xcalloc(1, sizeof *c);
    c->dev = d;
    pthread_mutex_init(&c->lock, NULL);
    read_known(c);
    return c;
}

static void cache_free(void *cache) {
    product_cache *c = cache;
    const lt_library *lt = &cuda_get_lt(c->dev)->api;
    for (int i = 0; i < c->n; i++) {
        for (int l = 0; l < 4; l++)
            if (c->plans[i].layout[l]) lt->layout_destroy(c->plans[i].layout[l]);
        if (c->plans[i].desc) lt->desc_destroy(c->plans[i].desc);
    }
    pthread_mutex_destroy(&c->lock);
    product_choices_free(&c->known);
    free(c->plans);
    free(c);
}

static product_cache *cache_of(dev *d) {
    return dev_kernel_cache(d, cache_new, cache_free);
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

static product_key key_of(const cuda_product *p) {
    product_key k;
    memset(&k, 0, sizeof k);
    k.m = p->m, k.n = p->n, k.k = p->k;
    k.lda = p->lda, k.ldb = p->ldb, k.ldc = p->ldc;
    k.ld_add = p->add ? p->ld_add : p->ldc;
    k.a_trans = p->a_trans, k.b_trans = p->b_trans;
    k.ld_slope = p->slope_at ? p->ld_slope : 0;
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

static lt_result describe_operation(const lt_library *lt, plan *p) {
    int32_t turn_a = p->key.b_trans ? LT_TRANSPOSED : LT_AS_IT_IS;
    int32_t turn_b = p->key.a_trans ? LT_TRANSPOSED : LT_AS_IT_IS;
    lt_result r = lt->desc_create(&p->desc, LT_COMPUTE_32F, LT_R_32F);
    if (r == 0) r = lt->desc_set(p->desc, LT_DESC_TRANSPOSE_A, &turn_a, sizeof turn_a);
    if (r == 0) r = lt->desc_set(p->desc, LT_DESC_TRANSPOSE_B, &turn_b, sizeof turn_b);
    if (r != 0 || !(p->key.bias || p->key.ld_slope)) return r;
    /* Of the address only the alignment counts now: the least that later ones have. */
    const void *any = (const void *)(uintptr_t)ALIGN_MOST;
    uint32_t epilogue = p->key.bias ? LT_EPILOGUE_BIAS : LT_EPILOGUE_DGELU;
    r = lt->desc_set(p->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (r == 0 && p->key.ld_slope)
        r = lt->desc_set(p->desc, LT_DESC_AUX_LD, &p->key.ld_slope, sizeof p->key.ld_slope);
    int address = p->key.bias ? LT_DESC_BIAS : LT_DESC_AUX;
    return r ? r : lt->desc_set(p->desc, address, &any, sizeof any);
}

static lt_result describe_matrices(const lt_library *lt, plan *p) {
    const product_key *k = &p->key;
    /* Rows and columns as we see them. */
    const int64_t size[4][3] = {
        {k->b_trans ? k->n : k->k, k->b_trans ? k->k : k->n, k->ldb},
        {k->a_trans ? k->k : k->m, k->a_trans ? k->m : k->k, k->lda},
        {k->m, k->n, k->ld_add},
        {k->m, k->n, k->ldc},
    };
    lt_result r = 0;
    for (int i = 0; i < 4 && r == 0; i++)
        r = lt->layout_create(&p->layout[i], type_of((dtype)(i < 2 ? k->ab_dt : k->c_dt)),
                              (uint64_t)size[i][1], (uint64_t)size[i][0], size[i][2]);
    return r;
}

static lt_result ask_heuristic(const cuda_lt *lt, plan *p, lt_preference prefer) {
    uint64_t bytes = (uint64_t)usable_bytes(p->key.m, p->key.n);
    lt_result r = lt->api.preference_set(prefer, LT_PREFER_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (int i = 0; i < 4 && r == 0; i++) {
        uint32_t alignment = p->key.alignment[i];
        r = lt->api.preference_set(prefer, LT_PREFER_ALIGNMENT_A + i, &alignment, sizeof alignment);
    }
    if (r == 0)
        r = lt->api.choose(lt->handle, p->desc, p->layout[0], p->layout[1], p->layout[2],
                           p->layout[3], prefer, PRODUCT_CANDIDATES, p->candidate, &p->candidates);
    return r ? r : p->candidates > 0 ? p->candidate[0].state : LT_NOT_SUPPORTED;
}

static lt_result make_plan(const cuda_lt *lt, plan *p) {
    lt_preference prefer;
    lt_result r = describe_operation(&lt->api, p);
    if (r == 0) r = describe_matrices(&lt->api, p);
    if (r == 0) r = lt->api.preference_create(&prefer);
    if (r != 0) return r;
    r = ask_heuristic(lt, p, prefer);
    lt->api.preference_destroy(prefer);
    return r;
}

static plan *plan_for(product_cache *c, const cuda_product *x) {
    product_key key = key_of(x);
    for (int i = 0; i < c->n; i++)
        if (memcmp(&c->plans[i].key, &key, sizeof key) == 0) return &c->plans[i];
    plan new = {.key = key};
    new.state = make_plan(cuda_get_lt(c->dev), &new);
    const product_choice *known = product_choices_find(&c->known, &key);
    if (known && !c->use_first && known->algorithm < new.candidates)
        new.chosen = known->algorithm, new.settled = true;
    VEC_PUSH(c->plans, c->n, c->cap, new);
    return &c->plans[c->n - 1];
}

/* ---- running ---- */

typedef struct product_call {
    dev *dev;
    const plan *plan;
    const cuda_product *x;
    const lt_choice *by;
    void *ws;
} product_call;

static void note_failure(const product_call *c, lt_result r) {
    const cuda_product *x = c->x;
    char what[160];
    snprintf(what, sizeof what, "cuBLASLt's product [%lld,%lld] of %s, sums of %lld terms, in %s",
             (long long)x->m, (long long)x->n, dtype_name(x->ab_dt), (long long)x->k,
             dtype_name(x->c_dt));
    cuda_note_error(c->dev, what, cuda_get_lt(c->dev)->api.status_text(r));
}

static void run_call(const void *args) {
    const product_call *c = args;
    const plan *p = c->plan;
    const cuda_product *x = c->x;
    const cuda_lt *lt = cuda_get_lt(c->dev);
    const float alpha = 1, beta = x->add ? 1 : 0;
    lt_result r = p->state;
    if (r == 0 && x->bias) r = lt->api.desc_set(p->desc, LT_DESC_BIAS, &x->bias, sizeof x->bias);
    if (r == 0 && x->slope_at)
        r = lt->api.desc_set(p->desc, LT_DESC_AUX, &x->slope_at, sizeof x->slope_at);
    if (r == 0)
        r = lt->api.multiply(lt->handle, p->desc, &alpha, x->b, p->layout[0], x->a, p->layout[1],
                             &beta, x->add ? x->add : x->c, p->layout[2], x->c, p->layout[3],
                             &c->by->algorithm, c->ws, c->by->workspace_bytes, cuda_stream(c->dev));
    if (r != 0) note_failure(c, r);
}

static product_call call_of(product_cache *c, const plan *p, const cuda_product *x, char *ws) {
    ws += (WS_ALIGN - (uintptr_t)ws % WS_ALIGN) % WS_ALIGN;
    return (product_call){c->dev, p, x, &p->candidate[p->chosen], ws};
}

/* ---- measuring ---- */

static void remember(product_cache *c, const product_choice *made) {
    char path[4096];
    err e = {0};
    VEC_PUSH(c->known.item, c->known.n, c->known.cap, *made);
    if (product_choices_path(path, sizeof path) &&
        product_choices_write(&c->known, c->gpu, cuda_get_lt(c->dev)->api.version(), path, &e) !=
            ST_OK)
        log_warn("%s; the next run measures its matrix products again", e.message);
}

/* C is overwritten, by the same numbers each time but for their last bits. */
static void measure(product_cache *c, plan *p, const cuda_product *x, void *ws) {
    enum { RUNS = 4 };
    product_choice made = {.key = p->key};
    product_call call = call_of(c, p, x, ws);
    for (int i = 0; i < p->candidates && p->candidate[i].state == 0; i++) {
        call.by = &p->candidate[i];
        made.seconds[made.candidates++] = cuda_seconds(c->dev, RUNS, run_call, &call);
    }
    p->chosen = made.algorithm = product_choice_fastest(made.seconds, made.candidates);
    remember(c, &made);
}

/* Whether algorithms may be timed: the result does not depend on what C has held, and no other rank
 * has to choose the same. */
static bool may_measure(const product_cache *c, const plan *p, const cuda_product *x,
                        const op_run *run) {
    bool alone = !run->mesh || run->mesh->size[MESH_WORLD] == 1;
    return p->state == 0 && x->add != x->c && alone && !c->use_first && !cuda_is_emulated(c->dev);
}

void cuda_product_run(const op_run *run, const cuda_product *x, void *ws) {
    product_cache *c = cache_of(run->dev);
    pthread_mutex_lock(&c->lock);
    plan *p = plan_for(c, x);
    if (!p->settled && may_measure(c, p, x, run)) measure(c, p, x, ws);
    p->settled = true; /* the bits of a run do not change in its midst */
    product_call call = call_of(c, p, x, ws);
    run_call(&call);
    pthread_mutex_unlock(&c->lock);
}

bool cuda_product_has_slope(dev *d, const cuda_product *x) {
    bool fits = x->c_dt != DT_F32 && x->ld_slope % SLOPE_STEP == 0;
    if (!fits || (uintptr_t)x->slope_at % ALIGN_MOST != 0) return false;
    product_cache *c = cache_of(d);
    pthread_mutex_lock(&c->lock);
    bool has = plan_for(c, x)->state == 0;
    pthread_mutex_unlock(&c->lock);
    return has;
}

void cuda_product_use_first(dev *d) {
    product_cache *c = cache_of(d);
    pthread_mutex_lock(&c->lock);
    c->use_first = true;
    for (int i = 0; i < c->n; i++) c->plans[i].chosen = 0;
    pthread_mutex_unlock(&c->lock);
}

int cuda_product_measure(dev *d, const cuda_product *x, void *ws) {
    product_cache *c = cache_of(d);
    pthread_mutex_lock(&c->lock);
    plan *p = plan_for(c, x);
    if (p->state == 0) measure(c, p, x, ws);
    p->settled = true;
    int chosen = p->state == 0 ? p->chosen : -1;
    pthread_mutex_unlock(&c->lock);
    return chosen;
}
