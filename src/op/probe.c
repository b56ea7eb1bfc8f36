/* Measuring this machine; see probe.h.
 *
 * Reading order: probe_run, measure_layers, run_rounds. */
#include "op/probe.h"

#include <omp.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "op/gemm_bench.h"
#include "op/peak.h"

/* Largest sizes: 0.27 GFLOP a product, some ms. With so many rows its packing counts as
 * little as in a real one. */
enum { MOST_ROWS = 512, MOST_WIDTH = 512 };
enum { CALLS = 2, LEAST_ROUNDS = 3, MOST_ROUNDS = 8, AGAIN = 8, THREAD_ROUNDS = 12 };
static const double HOPELESS = 3; /* times slower than another one of the same product */
static const double BEHIND = 1.08;
static const double ALONE = 0.9; /* of the time of a slice, on a core */

/* ---- layers ---- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double work_of(const machine_layer *l) {
    return (double)l->rows * (double)l->in * (double)l->width;
}

static bool same_sizes(const machine_layer *a, const machine_layer *b) {
    return a->rows == b->rows && a->in == b->in && a->width == b->width;
}

machine_layer probe_usual_layer(void) {
    return (machine_layer){.rows = MOST_ROWS, .in = MOST_WIDTH, .width = MOST_WIDTH};
}

static machine_layer cut(const machine_layer *l) {
    return (machine_layer){.rows = least(l->rows, MOST_ROWS),
                           .in = least(l->in, MOST_WIDTH),
                           .width = least(l->width, MOST_WIDTH)};
}

/* Work of all layers that become `c` when they are cut. */
static double work_like(const machine_layer *layers, int n, const machine_layer *c) {
    double work = 0;
    for (int i = 0; i < n; i++) {
        machine_layer k = cut(&layers[i]);
        if (same_sizes(&k, c)) work += work_of(&layers[i]);
    }
    return work;
}

int probe_pick(const machine_layer *layers, int n, machine_layer out[PROBE_LAYERS]) {
    int found = 0;
    double work[PROBE_LAYERS] = {0};
    for (int i = 0; i < n; i++) {
        machine_layer c = cut(&layers[i]);
        bool known = false;
        for (int k = 0; k < i && !known; k++) {
            machine_layer before = cut(&layers[k]);
            known = same_sizes(&before, &c);
        }
        if (known) continue; /* thousands of layers and experts are alike */
        double w = work_like(layers, n, &c);
        int at = found < PROBE_LAYERS ? found++ : PROBE_LAYERS;
        for (; at > 0 && work[at - 1] < w; at--) {
            if (at == PROBE_LAYERS) continue;
            out[at] = out[at - 1], work[at] = work[at - 1];
        }
        if (at < PROBE_LAYERS) out[at] = c, work[at] = w;
    }
    return found;
}

/* ---- products ---- */

typedef struct candidate {
    dev *dev;
    gemm_args g;
    gemm_impl impl;
    double *ms;   /* where the best slice goes */
    double *peer; /* those of all implementations of this product */
    bool out;     /* has no such product, or is hopeless */
} candidate;

/* Operands of the largest layer, which all products use. */
typedef struct operands {
    char *memory;
    size_t bytes;
    char *a[2], *b[2], *c[2], *ws; /* a, b: [bf16]; c: [bf16] */
} operands;

typedef struct probe {
    dev *dev, *wide; /* one thread: with all instructions; without dot products */
    dev *all;        /* all threads */
    operands x;
    candidate list[PROBE_LAYERS * ARITHS * GEMM_LAYOUTS * GEMM_IMPLS];
    int n;
} probe;

/* Each thread of such a product has enough to do for its waiting at barriers not to count. */
static int64_t rows_for(int threads) {
    int64_t rows = 64 * (int64_t)threads;
    return rows > MOST_ROWS ? rows : MOST_ROWS;
}

static size_t workspace_of(dev *d) {
    int64_t m = rows_for(dev_threads(d)), n = MOST_WIDTH;
    int64_t most = 0;
    for (int i = 0; i < 2 * GEMM_LAYOUTS; i++) {
        gemm_args g = gemm_args_of((gemm_layout)(i / 2), m, n, n, i % 2 ? DT_BF16 : DT_F32);
        int64_t bytes = gemm_ws_bytes(d, &g);
        if (bytes > most) most = bytes;
    }
    return (size_t)most;
}

/* Small numbers that are not all alike: the speed of some processors depends on them. */
static void fill(char *at, size_t bytes, bool bf16) {
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        float v = (float)((int)(i * 7919 % 1021) - 510) / 1024.0f;
        if (bf16)
            ((uint16_t *)(void *)at)[i] = f32_to_bf16(v);
        else
            ((float *)(void *)at)[i] = v;
    }
}

static status set_up(probe *p, int threads, err *e) {
    TRY(dev_open(&p->dev, DEV_CPU, 1, e));
    TRY(dev_open(&p->wide, DEV_CPU, 1, e));
    dev_limit(p->wide, ISA_AVX512, 1);
    TRY(dev_open(&p->all, DEV_CPU, threads, e));
    operands *x = &p->x;
    size_t each = (size_t)rows_for(threads) * MOST_WIDTH * sizeof(float);
    x->bytes = 6 * each + workspace_of(p->dev) + workspace_of(p->wide) + workspace_of(p->all);
    void *memory;
    TRY(dev_reserve(p->all, &memory, x->bytes, "measuring this machine", e));
    dev_expect_whole(p->all, memory, x->bytes);
    x->memory = memory;
    char **parts[] = {&x->a[0], &x->a[1], &x->b[0], &x->b[1], &x->c[0], &x->c[1], &x->ws};
    for (int i = 0; i < ARRAY_LEN(parts); i++) *parts[i] = x->memory + (size_t)i * each;
    for (int i = 0; i < 4; i++) fill(*parts[i], each, i & 1);
    memset(x->c[0], 0, x->bytes - 4 * each); /* pages exist */
    return ST_OK;
}

static void tear_down(probe *p) {
    dev_release(p->all, p->x.memory, p->x.bytes);
    dev_close(p->all);
    dev_close(p->wide);
    dev_close(p->dev);
}

static gemm_args product_of(const probe *p, const machine_layer *l, gemm_layout layout, dtype dt) {
    const operands *x = &p->x;
    int64_t m = l->rows, n = l->width, k = l->in;
    if (layout == GEMM_BACKWARD_INPUT) n = l->in, k = l->width;
    if (layout == GEMM_BACKWARD_WEIGHT) m = l->width, n = l->in, k = l->rows;
    gemm_args g = gemm_args_of(layout, m, n, k, dt);
    g.a = x->a[dt == DT_BF16], g.b = x->b[dt == DT_BF16], g.c = x->c[g.c_dt == DT_BF16];
    return g;
}

/* Every way to compute the layer. oneDNN widens nothing where it can do without, and does not obey
 * ATHANOR_ISA: where that asks for less than the machine has, it is left out. */
static void add_layer(probe *p, machine_layer *l) {
    bool dots = dev_isa(p->dev) >= ISA_AVX512_BF16;
    bool own_only = work_of(l) < GEMM_RULE_LEAST || dev_isa(p->dev) < dev_machine_isa();
    for (int a = 0; a < ARITHS; a++) {
        dtype dt = a == ARITH_F32 ? DT_F32 : DT_BF16;
        if (a == ARITH_DOTS && !dots) continue;
        for (int k = 0; k < GEMM_LAYOUTS * GEMM_IMPLS; k++) {
            gemm_layout layout = (gemm_layout)(k / GEMM_IMPLS);
            gemm_impl impl = (gemm_impl)(k % GEMM_IMPLS);
            if (impl == GEMM_ONEDNN && (a == ARITH_WIDE || own_only)) continue;
            double *ms = l->ms[a][layout];
            p->list[p->n++] = (candidate){.dev = a == ARITH_WIDE ? p->wide : p->dev,
                                          .g = product_of(p, l, layout, dt),
                                          .impl = impl,
                                          .ms = &ms[impl],
                                          .peer = ms};
        }
    }
}

/* A slice; false: there is no such product. The second call finds in the caches what the first one has
 * used, also when a neighbour had the core before. */
static bool run_slice(const probe *p, candidate *c) {
    for (int i = 0; i < CALLS; i++) {
        int64_t began = clock_thread_ns();
        if (!gemm_run_with(c->dev, c->impl, &c->g, p->x.ws)) return false;
        double ms = (double)(clock_thread_ns() - began) / 1e6;
        if (*c->ms == 0 || ms < *c->ms) *c->ms = ms;
    }
    return true;
}

/* When to stop. A neighbour that takes most of the time must not leave us with too few slices: then it
 * takes longer. */
typedef struct budget {
    double seconds;
    int64_t began, began_thread;
} budget;

/* round_s: processor time of the last round. */
static bool is_spent(const budget *b, int rounds, double round_s) {
    double used = (double)(clock_thread_ns() - b->began_thread) / 1e9;
    if (rounds >= MOST_ROUNDS || used + round_s > b->seconds) return true;
    return rounds >= LEAST_ROUNDS && clock_since_s(b->began) > b->seconds;
}

static double other_of(const candidate *c) {
    return c->peer[c->impl == GEMM_OWN ? GEMM_ONEDNN : GEMM_OWN];
}

/* Takes those out that another implementation of the same product leaves far behind. */
static void drop_hopeless(probe *p) {
    for (int i = 0; i < p->n; i++) {
        candidate *c = &p->list[i];
        if (other_of(c) > 0 && *c->ms > HOPELESS * other_of(c)) c->out = true;
    }
}

/* A slice of each; its processor time in seconds. */
static double run_round(probe *p) {
    int64_t began = clock_thread_ns();
    for (int i = 0; i < p->n; i++)
        if (!p->list[i].out) p->list[i].out = !run_slice(p, &p->list[i]);
    return (double)(clock_thread_ns() - began) / 1e9;
}

/* What is clearly behind has had bad luck, or is slower: it gets more slices. */
static void look_again(probe *p) {
    for (int i = 0; i < AGAIN * p->n; i++) {
        candidate *c = &p->list[i % p->n];
        if (!c->out && other_of(c) > 0 && *c->ms > BEHIND * other_of(c)) run_slice(p, c);
    }
}

/* The first call of each is one to warm up, as oneDNN makes its code in it; on a processor that is
 * so slow that there is no time for another, it counts. */
static void run_rounds(probe *p, const budget *b) {
    double round_s = run_round(p);
    if (is_spent(b, 0, round_s)) return;
    for (int i = 0; i < p->n; i++) *p->list[i].ms = 0;
    for (int round = 0; !is_spent(b, round, round_s); round++) {
        round_s = run_round(p);
        drop_hopeless(p);
    }
    look_again(p);
}

static void keep(machine_facts *f, const machine_layer *l) {
    if (f->n_layers == MACHINE_LAYERS_MAX) {
        memmove(f->layer, f->layer + 1, sizeof *l * (MACHINE_LAYERS_MAX - 1));
        f->n_layers--;
    }
    f->layer[f->n_layers++] = *l;
}

static void measure_layers(probe *p, machine_facts *f, const machine_layer *layers, int n,
                           const budget *b) {
    machine_layer mine[PROBE_LAYERS];
    int lacking = 0;
    for (int i = 0; i < n; i++)
        if (!machine_find(f, &layers[i])) mine[lacking++] = layers[i];
    for (int i = 0; i < lacking; i++) add_layer(p, &mine[i]);
    run_rounds(p, b);
    for (int i = 0; i < lacking; i++) keep(f, &mine[i]);
}

/* ---- threads ---- */

/* Wall time of a product, since its threads wait for each other. A slice counts only if all of them
 * had a core nearly all the time, which they have not beside a neighbour. */
static void run_with_threads(const probe *p, dev *d, double *best_ms) {
    machine_layer l = {
        .rows = rows_for(dev_threads(p->all)), .in = MOST_WIDTH, .width = MOST_WIDTH};
    gemm_args g = product_of(p, &l, GEMM_FORWARD, DT_F32);
    int64_t began = clock_now_ns(), began_cpu = clock_process_ns();
    gemm_run_with(d, GEMM_OWN, &g, p->x.ws);
    double ms = clock_since_s(began) * 1e3;
    double used_ms = (double)(clock_process_ns() - began_cpu) / 1e6;
    bool alone = used_ms > ALONE * ms * dev_threads(d);
    if (alone && (*best_ms == 0 || ms < *best_ms)) *best_ms = ms;
}

/* Hyper-threads of one core share its arithmetic: two of them may be no faster than one. */
static status measure_threads(const probe *p, machine_facts *f, err *e) {
    int all = f->threads, cores = dev_cores();
    f->best_threads = all;
    if (cores >= all) return ST_OK;
    dev *fewer;
    double ms[2] = {0};
    TRY(dev_open(&fewer, DEV_CPU, cores, e));
    for (int i = 0; i < 2 * THREAD_ROUNDS; i++)
        run_with_threads(p, i & 1 ? fewer : p->all, &ms[i & 1]);
    if (machine_fewer_threads(ms[0], ms[1])) f->best_threads = cores;
    dev_close(fewer);
    return ST_OK;
}

/* ---- the whole ---- */

bool probe_applies(const dev *d) {
    return dev_get_kind(d) == DEV_CPU || dev_get_kind(d) == DEV_TWIN;
}

bool probe_is_needed(const machine_facts *f, const machine_layer *layers, int n) {
    bool lacks = f->best_threads == 0;
    for (int i = 0; i < n; i++) lacks = lacks || !machine_find(f, &layers[i]);
    return lacks;
}

status probe_memory(machine_facts *f, double seconds, err *e) {
    dev *d;
    double bytes_per_s;
    int before = omp_get_max_threads();
    TRY(dev_open(&d, DEV_CPU, f->threads, e));
    status st = peak_bandwidth(d, seconds, &bytes_per_s, e);
    if (st == ST_OK) f->memory_gb_per_s = bytes_per_s / 1e9;
    dev_close(d);
    omp_set_num_threads(before);
    return st;
}

static status measure_machine(const probe *p, machine_facts *f, err *e) {
    f->fma_gflops = peak_flops(p->dev, DT_F32) / 1e9;
    f->dot_gflops = 0;
    if (dev_isa(p->dev) >= ISA_AVX512_BF16) f->dot_gflops = peak_flops(p->dev, DT_BF16) / 1e9;
    return measure_threads(p, f, e);
}

status probe_run(machine_facts *f, const machine_layer *layers, int n, double seconds, err *e) {
    probe p = {0};
    budget b = {seconds, clock_now_ns(), clock_thread_ns()};
    int before = omp_get_max_threads(); /* opening a device changes it */
    status st = set_up(&p, f->threads, e);
    if (st == ST_OK && f->best_threads == 0) st = measure_machine(&p, f, e);
    if (st == ST_OK) measure_layers(&p, f, layers, n, &b);
    tear_down(&p);
    omp_set_num_threads(before);
    return st;
}
