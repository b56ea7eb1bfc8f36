#include "op/gemm_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "op/cuda/product.h"
#include "op/peak.h"

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 40 };
static const double ENOUGH_S = 0.3; /* of rounds beyond the least number */

static int64_t align_up(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Small numbers that are not all alike. */
static void fill(void *data, dtype dt, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float v = (float)((i * 7919) % 1021 - 510) / 1021.0f;
        dtype_convert((char *)data + i * (int64_t)dtype_bytes(dt), dt, &v, DT_F32, 1);
    }
}

typedef struct job {
    gemm_args g;
    void *ws, *memory;
    size_t bytes;
} job;

static status set_up(job *j, dev *d, const gemm_case *c, err *e) {
    j->g = gemm_args_of(c->layout, c->m, c->n, c->k, c->dt);
    dtype c_dt = j->g.c_dt;
    int64_t item = (int64_t)dtype_bytes(c->dt), m = c->m, n = c->n, k = c->k;
    int64_t a = align_up(m * k * item), b = align_up(k * n * item);
    int64_t y = align_up(m * n * (int64_t)dtype_bytes(c_dt));
    int64_t ws = gemm_ws_bytes(d, &j->g);
    j->bytes = (size_t)(a + b + y + ws);
    TRY(dev_reserve(d, &j->memory, j->bytes, "a matrix product", e));
    dev_expect_whole(d, j->memory, j->bytes);
    char *at = j->memory;
    fill(at, c->dt, m * k);
    fill(at + a, c->dt, k * n);
    memset(at + a + b, 0, (size_t)(y + ws)); /* pages exist */
    j->g.a = at, j->g.b = at + a, j->g.c = at + a + b;
    j->ws = at + a + b + y;
    return ST_OK;
}

/* Seconds of one call; 0: there is no such product. */
static double time_once(dev *d, const job *j, gemm_impl impl) {
    int64_t began = clock_now_ns();
    return gemm_run_with(d, impl, &j->g, j->ws) ? clock_since_s(began) : 0;
}

static double run_round(dev *d, const job *j, gemm_timing *t) {
    double spent = 0;
    for (int i = 0; i < GEMM_IMPLS; i++) {
        double s = time_once(d, j, (gemm_impl)i);
        if (s > 0 && (t->best_s[i] == 0 || s < t->best_s[i])) t->best_s[i] = s;
        spent += s;
    }
    double peak = peak_flops(d, j->g.ab_dt);
    if (peak > t->peak_flops) t->peak_flops = peak;
    return spent;
}

/* ---- on CUDA ---- */

typedef struct gpu_job {
    dev *d;
    op_run run;
    cuda_product p;
    void *ws;
} gpu_job;

static void run_on_gpu(const void *args) {
    const gpu_job *j = args;
    cuda_product_run(&j->run, &j->p, j->ws);
}

static void write_numbers(dev *d, void *at, dtype dt, int64_t n) {
    void *host = xmalloc((size_t)n * dtype_bytes(dt));
    fill(host, dt, n);
    dev_write(d, at, host, (size_t)n * dtype_bytes(dt));
    dev_sync(d);
    free(host);
}

/* As LINEAR gives it to the library in the first micro-batch of a step, which adds to nothing. */
static status bench_gpu(dev *d, const gemm_case *c, gemm_timing *out, err *e) {
    gemm_args g = gemm_args_of(c->layout, c->m, c->n, c->k, c->dt);
    int64_t item = (int64_t)dtype_bytes(c->dt), a = align_up(c->m * c->k * item);
    int64_t b = align_up(c->k * c->n * item);
    int64_t y = align_up(c->m * c->n * (int64_t)dtype_bytes(g.c_dt));
    size_t bytes = (size_t)(a + b + y + cuda_product_ws_bytes(c->m, c->n));
    void *memory;
    TRY(dev_reserve(d, &memory, bytes, "a matrix product", e));
    char *at = memory;
    gpu_job j = {.d = d, .run.dev = d, .ws = at + a + b + y};
    j.p = (cuda_product){.m = g.m, .n = g.n, .k = g.k, .a = at, .b = at + a, .c = at + a + b};
    j.p.lda = g.lda, j.p.ldb = g.ldb, j.p.ldc = g.ldc;
    j.p.a_trans = g.a_trans, j.p.b_trans = g.b_trans;
    j.p.ab_dt = g.ab_dt, j.p.c_dt = g.c_dt;
    write_numbers(d, at, c->dt, c->m * c->k);
    write_numbers(d, at + a, c->dt, c->k * c->n);
    *out = (gemm_timing){.rounds = LEAST_ROUNDS, .peak_flops = peak_flops(d, c->dt)};
    for (int i = 0; i < LEAST_ROUNDS; i++) {
        double s = cuda_seconds(d, MOST_ROUNDS, run_on_gpu, &j);
        if (out->best_s[0] == 0 || s < out->best_s[0]) out->best_s[0] = s;
        if (cuda_is_emulated(d)) break;
    }
    dev_release(d, memory, bytes);
    return dev_check(d, e);
}

status gemm_bench_run(dev *d, const gemm_case *c, gemm_timing *out, err *e) {
    if (dev_get_kind(d) == DEV_CUDA) return bench_gpu(d, c, out, e);
    job j;
    TRY(set_up(&j, d, c, e));
    gemm_timing cold = {0};
    run_round(d, &j, &cold);
    *out = (gemm_timing){0};
    double spent = 0;
    while (out->rounds < LEAST_ROUNDS || (spent < ENOUGH_S && out->rounds < MOST_ROUNDS)) {
        spent += run_round(d, &j, out);
        out->rounds++;
    }
    dev_release(d, j.memory, j.bytes);
    return ST_OK;
}

/* ---- right or wrong ---- */

static double at(const void *data, dtype dt, int64_t i) {
    return dt == DT_BF16 ? (double)bf16_to_f32(((const uint16_t *)data)[i])
                         : (double)((const float *)data)[i];
}

/* The error of element (i, j) of C, which began as zero. */
static double error_at(const gemm_args *g, int64_t i, int64_t j) {
    double sum = 0, terms = 0;
    for (int64_t k = 0; k < g->k; k++) {
        double x = at(g->a, g->ab_dt, g->a_trans ? k * g->lda + i : i * g->lda + k) *
                   at(g->b, g->ab_dt, g->b_trans ? j * g->ldb + k : k * g->ldb + j);
        sum += x, terms += fabs(x);
    }
    double error = fabs(at(g->c, g->c_dt, i * g->ldc + j) - sum);
    return terms > 0 ? error / terms : error;
}

status gemm_bench_error(dev *d, const gemm_case *c, gemm_impl impl, double *out, err *e) {
    job j;
    TRY(set_up(&j, d, c, e));
    *out = gemm_run_with(d, impl, &j.g, j.ws) ? 0 : -1;
    for (int64_t i = 0; *out >= 0 && i < c->m; i++)
        for (int64_t k = 0; k < c->n; k++) {
            double x = error_at(&j.g, i, k);
            if (!(x <= *out)) *out = x; /* NaN, too */
        }
    dev_release(d, j.memory, j.bytes);
    return ST_OK;
}
