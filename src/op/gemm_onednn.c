/* oneDNN matmul with everything that a product needs kept from its first call on: primitive and
 * memory objects by shape, layout and types. Later calls only set pointers. The scratchpad is the
 * caller's workspace, so what is planned does not depend on the implementation.
 *
 * oneDNN chooses its own instruction set and, unlike our kernels, may cut k by the number of
 * threads. Interfaces 2.x and 3.x differ only in how descriptors are held: see the shim. */
#include "op/gemm_onednn.h"

#include <dnnl.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* ---- shim: a descriptor is a value in 2.x, a handle in 3.x ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t desc_ref;
static desc_ref ref_of(const dnnl_memory_desc_t *d) {
    return *d;
}
static void make_desc(dnnl_memory_desc_t *d, const dnnl_dims_t dims, dnnl_data_type_t dt,
                      const dnnl_dims_t strides) {
    if (dnnl_memory_desc_create_with_strides(d, 2, dims, dt, strides) != dnnl_success) *d = NULL;
}
static void drop_desc(dnnl_memory_desc_t *d) {
    if (*d) dnnl_memory_desc_destroy(*d);
}
static dnnl_status_t make_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, desc_ref a,
                                  desc_ref b, desc_ref bias, desc_ref c,
                                  dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(out, engine, a, b, bias, c, attr);
}
#else
typedef const dnnl_memory_desc_t *desc_ref;
static desc_ref ref_of(const dnnl_memory_desc_t *d) {
    return d;
}
static void make_desc(dnnl_memory_desc_t *d, const dnnl_dims_t dims, dnnl_data_type_t dt,
                      const dnnl_dims_t strides) {
    memset(d, 0, sizeof *d);
    (void)dnnl_memory_desc_init_by_strides(d, 2, dims, dt, strides);
}
static void drop_desc(dnnl_memory_desc_t *d) {
    (void)d;
}
static dnnl_status_t make_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine, desc_ref a,
                                  desc_ref b, desc_ref bias, desc_ref c,
                                  dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, a, b, bias, c);
    return s == dnnl_success ? dnnl_primitive_desc_create(out, &d, attr, engine, NULL) : s;
}
#endif

/* ---- cache ---- */

enum { A, B, C, BIAS, SCRATCH, MEMORIES };

typedef struct product {
    gemm_args key; /* pointers NULL, bias NULL or not */
    bool with_bias;
    dnnl_primitive_t primitive; /* NULL: oneDNN cannot */
    dnnl_memory_t memory[MEMORIES];
    int64_t scratch_bytes;
} product;

struct onednn_cache {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    product *products;
    int n, cap;
};

onednn_cache *onednn_cache_new(int threads) {
    onednn_cache *c = xmalloc(sizeof *c);
    *c = (onednn_cache){.threads = threads};
    return c;
}

void onednn_cache_free(onednn_cache *c) {
    for (int i = 0; i < c->n; i++) {
        product *p = &c->products[i];
        for (int m = 0; m < MEMORIES; m++)
            if (p->memory[m]) dnnl_memory_destroy(p->memory[m]);
        if (p->primitive) dnnl_primitive_destroy(p->primitive);
    }
    free(c->products);
    if (c->stream) dnnl_stream_destroy(c->stream);
    if (c->engine) dnnl_engine_destroy(c->engine);
    free(c);
}

static bool start(onednn_cache *c) {
    if (c->stream) return true;
    if (!c->engine && dnnl_engine_create(&c->engine, dnnl_cpu, 0) != dnnl_success) return false;
    return dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags) == dnnl_success;
}

static dnnl_data_type_t type_of(dtype dt) {
    return dt == DT_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* [rows, cols] at stride ld, or its transpose stored. */
static void matrix_desc(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, int64_t ld, bool trans,
                        dtype dt) {
    dnnl_dims_t dims = {rows, cols}, strides = {trans ? 1 : ld, trans ? ld : 1};
    make_desc(d, dims, type_of(dt), strides);
}

static dnnl_primitive_attr_t make_attr(bool accumulate) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success) return NULL;
    bool ok =
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (ok && accumulate) {
        ok = dnnl_post_ops_create(&ops) == dnnl_success &&
#if DNNL_VERSION_MAJOR >= 3
             dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef) == dnnl_success &&
#else
             dnnl_post_ops_append_sum(ops, 1.0f) == dnnl_success &&
#endif
             dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
        if (ops) dnnl_post_ops_destroy(ops);
    }
    if (ok) return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

static bool make_memories(const onednn_cache *c, product *p, const dnnl_memory_desc_t *desc,
                          desc_ref scratch) {
    p->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(scratch);
    for (int m = 0; m < MEMORIES; m++) {
        if (m == BIAS && !p->with_bias) continue;
        desc_ref d = m == SCRATCH ? scratch : ref_of(&desc[m]);
        if (dnnl_memory_create(&p->memory[m], d, c->engine, DNNL_MEMORY_NONE) != dnnl_success)
            return false;
    }
    return true;
}

enum { OPERANDS = 4 };
static void make_operands(const gemm_args *g, dnnl_memory_desc_t desc[OPERANDS]) {
    matrix_desc(&desc[A], g->m, g->k, g->lda, g->a_trans, g->ab_dt);
    matrix_desc(&desc[B], g->k, g->n, g->ldb, g->b_trans, g->ab_dt);
    matrix_desc(&desc[C], g->m, g->n, g->ldc, false, g->c_dt);
    matrix_desc(&desc[BIAS], 1, g->n, g->n, false, DT_F32);
}

/* NULL: oneDNN cannot. */
static dnnl_primitive_desc_t plan_product(const onednn_cache *c, const dnnl_memory_desc_t *desc,
                                          bool with_bias, bool accumulate) {
    dnnl_primitive_attr_t attr = make_attr(accumulate);
    dnnl_primitive_desc_t pd = NULL;
    desc_ref bias = with_bias ? ref_of(&desc[BIAS]) : NULL;
    if (attr && make_product(&pd, c->engine, ref_of(&desc[A]), ref_of(&desc[B]), bias,
                             ref_of(&desc[C]), attr) != dnnl_success)
        pd = NULL;
    if (attr) dnnl_primitive_attr_destroy(attr);
    return pd;
}

static desc_ref scratch_of(dnnl_primitive_desc_t pd) {
    return dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
}

/* On failure p->primitive stays NULL. */
static void make_primitive(const onednn_cache *c, product *p) {
    dnnl_memory_desc_t desc[OPERANDS];
    make_operands(&p->key, desc);
    dnnl_primitive_desc_t pd = plan_product(c, desc, p->with_bias, p->key.accumulate);
    dnnl_primitive_t made = NULL;
    if (pd && make_memories(c, p, desc, scratch_of(pd)) &&
        dnnl_primitive_create(&made, pd) == dnnl_success)
        p->primitive = made;
    if (pd) dnnl_primitive_desc_destroy(pd);
    for (int i = 0; i < OPERANDS; i++) drop_desc(&desc[i]);
}

static bool same(const product *p, const gemm_args *g) {
    const gemm_args *k = &p->key;
    return k->m == g->m && k->n == g->n && k->k == g->k && k->lda == g->lda && k->ldb == g->ldb &&
           k->ldc == g->ldc && k->a_trans == g->a_trans && k->b_trans == g->b_trans &&
           k->ab_dt == g->ab_dt && k->c_dt == g->c_dt && k->accumulate == g->accumulate &&
           p->with_bias == (g->bias != NULL);
}

static const product *find(onednn_cache *c, const gemm_args *g) {
    for (int i = 0; i < c->n; i++)
        if (same(&c->products[i], g)) return &c->products[i];
    product p = {.key = *g, .with_bias = g->bias != NULL};
    p.key.a = p.key.b = p.key.c = NULL, p.key.bias = NULL, p.key.res = NULL;
    make_primitive(c, &p);
    VEC_PUSH(c->products, c->n, c->cap, p);
    return &c->products[c->n - 1];
}

static bool execute(const onednn_cache *c, const product *p, const gemm_args *g, void *ws) {
    static const int names[MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                        DNNL_ARG_SCRATCHPAD};
    const void *data[MEMORIES] = {g->a, g->b, g->c, g->bias, ws};
    dnnl_exec_arg_t args[MEMORIES];
    int n = 0;
    for (int m = 0; m < MEMORIES; m++) {
        if (!p->memory[m]) continue;
        dnnl_memory_set_data_handle(p->memory[m], (void *)(uintptr_t)data[m]);
        args[n++] = (dnnl_exec_arg_t){names[m], p->memory[m]};
    }
    return dnnl_primitive_execute(p->primitive, c->stream, n, args) == dnnl_success &&
           dnnl_stream_wait(c->stream) == dnnl_success;
}

/* C = res, so that the product can be added to it. */
static void copy_residual(const gemm_args *g) {
    int64_t bytes = (int64_t)dtype_bytes(g->c_dt);
    for (int64_t i = 0; i < g->m; i++)
        memcpy((char *)g->c + i * g->ldc * bytes, (const char *)g->res + i * g->ldr * bytes,
               (size_t)(g->n * bytes));
}

bool onednn_run(onednn_cache *c, const gemm_args *g, void *ws, int64_t ws_bytes) {
    gemm_args plain = *g;
    if (g->res) plain.accumulate = true;
    g = &plain;
    if (g->m == 0 || g->n == 0 || g->k == 0 || !start(c)) return false;
    int before = omp_get_max_threads(); /* what oneDNN plans and runs with */
    omp_set_num_threads(c->threads);
    const product *p = find(c, g);
    bool done = p->primitive && p->scratch_bytes <= ws_bytes;
    if (done && g->res) copy_residual(g);
    done = done && execute(c, p, g, ws);
    omp_set_num_threads(before);
    return done;
}
