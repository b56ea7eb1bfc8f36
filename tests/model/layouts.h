/* One training step of a tiny model on tensor-parallel ranks that are threads, in double, fp32 or
 * bf16: what every rank computed, and the whole gradients put together from it. */
#ifndef TESTS_MODEL_LAYOUTS_H
#define TESTS_MODEL_LAYOUTS_H
#include "test.h"

#include <pthread.h>

#include "base/rng.h"
#include "comm/mesh.h"
#include "model/config_file.h"
#include "model/family.h"
#include "param/units.h"
#include "prog_memory.h"

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        err must_err = {0};                                                                        \
        if ((expr) != ST_OK) fail_msg("%s: %s", #expr, must_err.message);                          \
    } while (0)
#define E (&must_err)

typedef struct layout {
    dtype dt;
    int tp;
    bool sequence_parallel, async;
    recompute_policy recompute;
    bool keep_collectives;
    int64_t chunk_rows;
    bool valid;    /* no gradients */
    bool deferred; /* the gradient of each nll is given */
    bool logits;   /* of all tokens, through a cache, instead of losses */
    double capacity_factor;
    bool forget_sum; /* partial gradients are taken as they are */
} layout;

enum {
    LAYOUT_B = 2,
    LAYOUT_T = 8,
    LAYOUT_N = LAYOUT_B * LAYOUT_T,
    LAYOUT_RANKS = 8,
    LAYOUT_CACHE = 11
};

/* What one rank has. */
typedef struct rank_work {
    const model_config *mc;
    const layout *l;
    comm_world *world; /* NULL: one rank */
    mesh mesh;
    arena *a;
    dev *dev;
    param_store *store;
    prog *p;
    prog_frame where;
    double nll[LAYOUT_N], *logits;
    uint64_t digest; /* of initial weights */
    char error[1100];
} rank_work;

/* What a layout computed: gradients as one array per parameter, of the whole. */
typedef struct outcome {
    double nll[LAYOUT_N];
    uint64_t digest;
    int n;
    const char *name[512];
    int64_t elems[512];
    double *grad[512];
    int64_t n_logits;
    double *logits;
    int collectives_again; /* in recomputed forward passes */
    int async_products;    /* of the forward */
    arena *a;
} outcome;

static inline model_config layout_config(arena *a, const char *name) {
    char path[640];
    snprintf(path, sizeof path, "%s/golden/models/%s/config.json", TEST_DIR, name);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    model_config mc;
    MUST(model_config_read_file(a, config, &mc, E));
    json_decref(config);
    return mc;
}

/* Not the initial values: biases and norms must make a difference. */
static inline double layout_value(const param *p, int64_t whole) {
    rng_key key = rng_key_named(7, p->name);
    double u = 2.0 * (double)rng_uniform(key, (uint64_t)whole) - 1.0;
    if (p->rank == 1) return (p->init.kind == INIT_ONES ? 1.0 : 0.0) + 0.3 * u;
    return 1.7 * u / sqrt((double)p->split.cols);
}

static inline int64_t layout_whole(const param_range *g, int64_t i) {
    return g->index + i / g->run * g->stride + i % g->run;
}

static inline void layout_fill(rank_work *w) {
    bool wide = w->l->dt == DT_F64;
    for (int i = 0; i < param_count(w->store); i++) {
        const param *p = param_at(w->store, i);
        for (int k = 0; k < p->split.runs; k++) {
            param_range g = param_range_at(p, k);
            for (int64_t j = 0; j < g.n; j++) {
                double v = layout_value(p, layout_whole(&g, j));
                int64_t at = p->offset + g.first + j;
                float narrow = (float)v;
                if (wide)
                    ((double *)w->where.base[SPACE_MASTER])[at] = v;
                else
                    ((float *)w->where.base[SPACE_MASTER])[at] = narrow;
                if (w->where.base[SPACE_WORK])
                    ((uint16_t *)w->where.base[SPACE_WORK])[at] = f32_to_bf16(narrow);
            }
        }
    }
}

static inline void *layout_memory(int64_t bytes) {
    size_t size = ((size_t)bytes + 127) / 64 * 64;
    void *p = aligned_alloc(64, size);
    memset(p, 0xff, size); /* NaN */
    return p;
}

static inline int32_t *layout_ints(const rank_work *w, const char *name) {
    return prog_at(w->p, name);
}

static inline void layout_inputs(rank_work *w) {
    for (int n = 0; n < LAYOUT_N; n++) {
        rng_key key = rng_key_numbered(3, (uint64_t)n);
        layout_ints(w, "ids")[n] = (int32_t)(rng_uniform(key, 0) * (double)w->mc->vocab_size);
        layout_ints(w, "pos")[n] = n % LAYOUT_T;
        if (w->l->logits) {
            layout_ints(w, "rows")[n] = n;
            layout_ints(w, "qpos")[n / LAYOUT_T] = 0;
            continue;
        }
        int32_t target = (int32_t)(rng_uniform(key, 1) * (double)w->mc->vocab_size);
        layout_ints(w, "targets")[n] = n % 5 == 3 ? -1 : target;
        if (!w->l->deferred) continue;
        double d = 2 * (double)rng_uniform(key, 2) - 1;
        if (w->l->dt == DT_F64)
            ((double *)prog_at(w->p, "grad.nll"))[n] = d;
        else
            ((float *)prog_at(w->p, "grad.nll"))[n] = (float)d;
    }
}

static inline status layout_record(rank_work *w, err *e) {
    const layout *l = w->l;
    bool many = w->world != NULL;
    w->store = param_store_new(w->a, l->dt == DT_BF16 ? DT_BF16 : DT_F32);
    if (many) {
        param_ranks ranks = {
            .n = l->tp, .rank = w->mesh.rank[MESH_TP], .sequence_parallel = l->sequence_parallel};
        param_store_split(w->store, &ranks);
    }
    model_declare(w->mc, w->store);
    graph_options opt = {.dev = w->dev,
                         .dt = l->dt,
                         .train = !l->valid,
                         .recompute = l->recompute,
                         .keep_collectives = l->keep_collectives,
                         .mesh = many ? &w->mesh : NULL,
                         .sequence_parallel = many && l->sequence_parallel,
                         .async_products = l->async};
    model_rec r = {.g = graph_new(w->a, &opt),
                   .mc = w->mc,
                   .params = w->store,
                   .task = l->deferred ? TASK_NLL : TASK_LM,
                   .B = LAYOUT_B,
                   .T = LAYOUT_T,
                   .chunk_rows = l->chunk_rows,
                   .z_loss = l->valid || l->deferred ? 0.0f : 0.01f,
                   .routing.capacity_factor = l->capacity_factor};
    if (l->logits) r.task = TASK_LOGITS, r.n_logits = LAYOUT_N, r.Tmax = LAYOUT_CACHE;
    model_record(&r);
    return prog_finish(&w->p, r.g, e);
}

static inline void layout_bind(rank_work *w) {
    const prog_stats *s = prog_get_stats(w->p);
    param_sizes z = param_store_sizes(w->store);
    int wide = w->l->dt == DT_F64 ? 2 : 1;
    w->where.base[SPACE_FRAME] = layout_memory(s->frame_bytes);
    w->where.base[SPACE_PINNED] = layout_memory(s->pinned_bytes);
    w->where.base[SPACE_CONST] = layout_memory(s->const_bytes);
    w->where.base[SPACE_MASTER] = layout_memory(wide * z.master_bytes);
    w->where.base[SPACE_GRAD] = layout_memory(wide * z.grad_bytes);
    if (w->l->logits)
        w->where.base[SPACE_STATE] = layout_memory(
            model_cache_bytes(w->mc, w->l->tp, LAYOUT_B, LAYOUT_CACHE, w->l->dt, w->l->dt));
    if (w->l->dt == DT_BF16) w->where.base[SPACE_WORK] = layout_memory(z.work_bytes);
    param_arrays arrays = {.master = w->where.base[SPACE_MASTER],
                           .work = w->where.base[SPACE_WORK]};
    param_store_bind(w->store, w->dev, &arrays);
    param_init_all(w->store, 42);
    w->digest = param_digest(w->store);
    layout_fill(w);
    prog_bind(w->p, &w->where, 1);
}

static inline double layout_get(const void *p, int64_t i, bool wide) {
    return wide ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static inline void *layout_rank(void *arg) {
    rank_work *w = arg;
    err e = {0};
    w->a = arena_new("rank");
    mesh_shape shape = {.dp_replicate = 1, .tp = w->l->tp, .cp = 1, .pp = 1};
    status st = dev_open(&w->dev, DEV_CPU, 1, &e);
    if (st == ST_OK) st = mesh_resolve(&shape, w->l->tp, &e);
    if (st == ST_OK && w->world) mesh_open(&w->mesh, &shape, w->world);
    if (st == ST_OK) st = layout_record(w, &e);
    if (st != ST_OK) {
        snprintf(w->error, sizeof w->error, "%s", e.message);
        return NULL;
    }
    layout_bind(w);
    layout_inputs(w);
    op_run run = {.dev = w->dev,
                  .mesh = &w->mesh,
                  .seed = 1,
                  .step = 5,
                  .micro_batch = 3,
                  .first_micro = true,
                  .grad_scale = 1.0f / 13};
    prog_replay(w->p, PROG_ALL, &run);
    tensor y = prog_named(w->p, w->l->logits ? "logits" : "nll");
    w->logits = ARENA_ARRAY(w->a, double, y.rows *y.cols);
    double *to = w->l->logits ? w->logits : w->nll;
    for (int64_t i = 0; i < y.rows * y.cols; i++) to[i] = layout_get(y.data, i, w->l->dt == DT_F64);
    return NULL;
}

/* Adds a rank's range of a gradient to the whole, or compares what others have too. */
static inline void layout_merge(outcome *o, int i, const rank_work *w, const param *p,
                                const param_range *g) {
    for (int64_t j = 0; j < g->n; j++) {
        double *to = &o->grad[i][layout_whole(g, j)];
        double v =
            layout_get(w->where.base[SPACE_GRAD], p->offset + g->first + j, w->l->dt == DT_F64);
        bool sum = g->partial && !w->l->forget_sum;
        if (sum)
            *to += v;
        else if (g->counted)
            *to = v;
        else if (*to != v && !w->l->forget_sum)
            fail_msg("%s: ranks that must agree have %.17g and %.17g", p->name, *to, v);
    }
}

static inline outcome layout_outcome(rank_work *works, int n) {
    outcome o = {.a = arena_new("outcome")};
    for (int i = 0; i < prog_get_stats(works[0].p)->ops; i++) {
        prog_op k = prog_get_op(works[0].p, i);
        o.async_products +=
            (k.kind == OP_GATHER_LINEAR || k.kind == OP_LINEAR_SUM) && k.phase == PHASE_F;
        o.collectives_again += k.recomputed && (op_classes[k.kind].flags & OPF_COMMUNICATES);
    }
    if (works[0].l->logits) {
        o.n_logits = LAYOUT_N * works[0].mc->vocab_size;
        o.logits = arena_memdup(o.a, works[0].logits, (size_t)o.n_logits * sizeof *o.logits);
    }
    memcpy(o.nll, works[0].nll, sizeof o.nll);
    o.n = param_count(works[0].store);
    for (int r = 0; r < n; r++) {
        o.digest += works[r].digest;
        if (memcmp(works[r].nll, o.nll, sizeof o.nll)) fail_msg("ranks have other losses");
    }
    for (int i = 0; i < o.n; i++) {
        const param *p = param_at(works[0].store, i);
        o.name[i] = arena_strdup(o.a, p->name);
        o.elems[i] = param_whole_elems(p);
        o.grad[i] = ARENA_ARRAY(o.a, double, o.elems[i]);
        for (int r = 0; r < n && !works[0].l->valid; r++) {
            const param *mine = param_at(works[r].store, i);
            for (int k = 0; k < mine->split.runs; k++) {
                param_range g = param_range_at(mine, k);
                layout_merge(&o, i, &works[r], mine, &g);
            }
        }
    }
    return o;
}

static inline outcome layout_run(const model_config *mc, const layout *l) {
    rank_work works[LAYOUT_RANKS] = {0};
    comm_world *worlds[LAYOUT_RANKS] = {0};
    pthread_t threads[LAYOUT_RANKS];
    if (l->tp > 1) comm_open_threads(l->tp, worlds);
    for (int r = 0; r < l->tp; r++) {
        works[r] = (rank_work){.mc = mc, .l = l, .world = worlds[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, layout_rank, &works[r]), 0);
    }
    for (int r = 0; r < l->tp; r++) pthread_join(threads[r], NULL);
    if (works[0].error[0]) fail_msg("%s", works[0].error);
    outcome o = layout_outcome(works, l->tp);
    for (int r = 0; r < l->tp; r++) {
        for (int s = 0; s < SPACE_COUNT; s++) free(works[r].where.base[s]);
        if (worlds[r]) comm_close(worlds[r]);
        dev_close(works[r].dev);
        arena_free(works[r].a);
    }
    return o;
}

/* max |a-b| / max |b| over one array. */
static inline double layout_distance(const double *a, const double *b, int64_t n) {
    double diff = 0, size = 1e-300;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        if (!(d <= diff)) diff = d; /* NaN counts */
        if (fabs(b[i]) > size) size = fabs(b[i]);
    }
    return diff / size;
}

/* The largest distance of losses and of any gradient; *where: which. */
static inline double outcome_distance(const outcome *a, const outcome *b, const char **where) {
    double worst = layout_distance(a->nll, b->nll, LAYOUT_N);
    *where = "nll";
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->elems[i], b->elems[i]);
        double d = layout_distance(a->grad[i], b->grad[i], a->elems[i]);
        if (!(d <= worst)) worst = d, *where = b->name[i];
    }
    return worst;
}

#endif
