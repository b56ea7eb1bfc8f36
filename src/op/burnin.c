/* Reading order: sizes_for, then burnin_products, burnin_memory, burnin_copies and burnin_cores. */
#include "op/burnin.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "dev/cuda.h"
#include "op/op.h"
#include "op/vecops.h"

enum { MOST_OUTPUTS = 8, ENOUGH_BATCHES = 6, PATTERNS = 4, COPIES = 8 };
enum { LEFT_OF_GPU = 4 }; /* chunks, for tables and the driver */

static const uint8_t pattern[PATTERNS] = {0x55, 0xaa, 0x00, 0xff};

/* How much at a time: a batch is some milliseconds of a GPU, and less than one of a core. */
typedef struct sizes {
    int64_t rows, width, out; /* of x, of both, of w */
    int outputs;              /* products of a batch, each with memory of its own */
    int64_t chunk_bytes, most_chunks;
} sizes;

static bool is_gpu(const dev *d) {
    return dev_get_kind(d) == DEV_CUDA;
}

static sizes sizes_for(const dev *d) {
    if (!is_gpu(d)) return (sizes){256, 512, 256, 1, 64 << 20, 1 << 20};
    if (cuda_is_emulated(d)) return (sizes){16, 64, 16, 2, 64 << 10, 8};
    return (sizes){2048, 8192, 2048, MOST_OUTPUTS, 64 << 20, 1 << 20};
}

/* ---- products ---- */

typedef struct work {
    dev *d;
    sizes of;
    dtype dt;
    op_call call;
    op_attr attr;
    op_run run;
    float *y; /* [outputs, rows, out] */
    int next; /* output */
    op_fn fn;
    float *want; /* of the host: one output */
    uint64_t digest;
    size_t x_bytes, w_bytes, y_bytes;
} work;

/* -7 to 7, not 0: all bits of an element change from row to row. */
static int small(uint64_t i) {
    int v = (int)(mix64(i) % 14) - 7;
    return v < 0 ? v : v + 1;
}

static int sign(int64_t i) {
    return mix64((uint64_t)i + 77) & 1 ? 1 : -1;
}

/* a[n] s[i], in the format of the products. */
static void *factor(const work *k, uint64_t first, int64_t rows) {
    int64_t width = k->of.width;
    char *to = xmalloc((size_t)(rows * width) * dtype_bytes(k->dt));
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < width; i++) {
            float v = (float)(small(first + (uint64_t)n) * sign(i));
            if (k->dt == DT_BF16)
                ((uint16_t *)(void *)to)[n * width + i] = f32_to_bf16(v);
            else
                ((float *)(void *)to)[n * width + i] = v;
        }
    return to;
}

enum { ROWS_OF_X = 0, ROWS_OF_W = 1 << 20 }; /* first numbers of what is drawn */

/* spans[outputs]: the same array again and again. */
static vec_spans outputs_of(const work *k, vec_span *spans) {
    vec_spans s = {.item = spans, .n = k->of.outputs};
    int64_t n = k->of.rows * k->of.out;
    for (int i = 0; i < s.n; i++) spans[i] = (vec_span){.at = i * n, .n = n, .counted = true};
    vec_spans_index(&s);
    return s;
}

static status know_result(work *k, err *e) {
    vec_span one = {.n = k->of.rows * k->of.out, .counted = true};
    vec_spans s = {.item = &one, .n = 1};
    vec_spans_index(&s);
    k->want = xmalloc((size_t)one.n * sizeof *k->want);
    for (int64_t n = 0; n < k->of.rows; n++)
        for (int64_t o = 0; o < k->of.out; o++)
            k->want[n * k->of.out + o] = (float)(k->of.width * small(ROWS_OF_X + (uint64_t)n) *
                                                 small(ROWS_OF_W + (uint64_t)o));
    dev *cpu;
    TRY(dev_open(&cpu, DEV_CPU, is_gpu(k->d) ? 0 : dev_threads(k->d), e));
    k->digest = vec_digest(cpu, &s, k->want) * (uint64_t)k->of.outputs;
    dev_close(cpu);
    return ST_OK;
}

static status put_factor(work *k, uint64_t first, int64_t rows, const char *what, void **at,
                         size_t *bytes, err *e) {
    *bytes = (size_t)(rows * k->of.width) * dtype_bytes(k->dt);
    TRY(dev_reserve(k->d, at, *bytes, what, e));
    void *host = factor(k, first, rows);
    dev_write(k->d, *at, host, *bytes);
    dev_sync(k->d); /* the host's bytes go */
    free(host);
    return ST_OK;
}

static status infer_products(work *k, err *e) {
    op_infer io = {.kind = OP_LINEAR, .attr = &k->attr, .dev = k->d};
    io.in[0] = k->call.in[0], io.in[1] = k->call.in[1];
    TRY(op_infer_call(&io, e));
    k->call.out[0] = io.out[0];
    k->call.ws_bytes = io.fwd.ws_bytes;
    const op_impl *impl = op_find(k->d, OP_LINEAR, k->dt);
    CHECK(impl && impl->fwd, "no products of %s", dtype_name(k->dt));
    k->fn = impl->fwd;
    return dev_reserve(k->d, &k->call.ws, (size_t)k->call.ws_bytes, "workspace", e);
}

static status work_open(work *k, dev *d, err *e) {
    *k = (work){.d = d, .of = sizes_for(d), .dt = is_gpu(d) ? DT_BF16 : DT_F32};
    const sizes *z = &k->of;
    k->attr.linear.exact = true;
    k->run.dev = d;
    k->call = (op_call){.kind = OP_LINEAR, .attr = &k->attr, .run = &k->run};
    k->call.in[0] = (tensor){NULL, k->dt, z->rows, z->width, z->width};
    k->call.in[1] = (tensor){NULL, k->dt, z->out, z->width, z->width};
    TRY(know_result(k, e));
    TRY(put_factor(k, ROWS_OF_X, z->rows, "x", &k->call.in[0].data, &k->x_bytes, e));
    TRY(put_factor(k, ROWS_OF_W, z->out, "w", &k->call.in[1].data, &k->w_bytes, e));
    TRY(infer_products(k, e));
    k->y_bytes = (size_t)(z->outputs * z->rows * z->out) * sizeof *k->y;
    void *y;
    TRY(dev_reserve(d, &y, k->y_bytes, "products", e));
    k->y = y;
    return ST_OK;
}

static void work_close(work *k) {
    dev_release(k->d, k->call.in[0].data, k->x_bytes);
    dev_release(k->d, k->call.in[1].data, k->w_bytes);
    dev_release(k->d, k->call.ws, (size_t)k->call.ws_bytes);
    dev_release(k->d, k->y, k->y_bytes);
    free(k->want);
}

static void give_product(const void *args) {
    work *k = *(work *const *)args;
    int i = k->next++ % k->of.outputs;
    k->call.out[0].data = k->y + i * k->of.rows * k->of.out;
    op_launch(k->d, k->fn, &k->call);
}

/* Seconds of a product, the mean of a batch. */
static double time_batch(work *k) {
    const void *args = &k;
    if (is_gpu(k->d)) return cuda_seconds(k->d, k->of.outputs, give_product, args);
    int64_t began = clock_thread_ns();
    for (int i = 0; i < k->of.outputs; i++) give_product(args);
    return (double)(clock_thread_ns() - began) * 1e-9 / k->of.outputs;
}

static void find_wrong(const work *k, burnin_result *r) {
    dev_room room = {0};
    const float *y = dev_look(k->d, k->y, k->y_bytes, &room);
    int64_t one = k->of.rows * k->of.out, n = one * k->of.outputs, i = 0;
    while (i < n && y[i] == k->want[i % one]) i++;
    snprintf(r->wrong, sizeof r->wrong, "an element of product %ld is %.9g and must be %.9g",
             (long)r->products, i < n ? (double)y[i] : 0, (double)k->want[i % one]);
    dev_room_free(&room);
}

static void run_products(work *k, double seconds, burnin_result *r) {
    vec_span spans[MOST_OUTPUTS];
    vec_spans all = outputs_of(k, spans);
    double flops = 2.0 * (double)(k->of.rows * k->of.width * k->of.out);
    double window = seconds < 3 ? seconds / 3 : 1, now = 0;
    int64_t began = clock_now_ns();
    for (int batch = 0; !r->wrong[0] && (now < seconds || batch < ENOUGH_BATCHES); batch++) {
        double took = time_batch(k), rate = took > 0 ? flops / took : 0;
        r->products += k->of.outputs;
        if (vec_digest(k->d, &all, k->y) != k->digest) find_wrong(k, r);
        if ((batch == 0 || now < window) && rate > r->first_flops) r->first_flops = rate;
        now = clock_since_s(began);
        bool last = batch > 0 && now > seconds - window;
        if (!last) r->last_flops = 0;
        if (last && rate > r->last_flops) r->last_flops = rate;
    }
}

status burnin_products(dev *d, double seconds, burnin_result *r, err *e) {
    work k;
    status st = work_open(&k, d, e);
    if (st == ST_OK) run_products(&k, seconds, r);
    work_close(&k);
    return st == ST_OK ? dev_check(d, e) : st;
}

/* ---- memory ---- */

typedef struct chunks {
    void **at;
    int n, cap;
    int64_t bytes; /* of each */
    vec_span span;
    vec_spans spans;
    uint64_t digest[PATTERNS]; /* of a chunk that is filled with it */
} chunks;

static uint8_t *filled(int64_t bytes, int byte) {
    return memset(xmalloc((size_t)bytes), byte, (size_t)bytes);
}

static status know_digests(chunks *c, err *e) {
    dev *cpu;
    c->span = (vec_span){.n = c->bytes / (int64_t)sizeof(float), .counted = true};
    c->spans = (vec_spans){.item = &c->span, .n = 1};
    vec_spans_index(&c->spans);
    TRY(dev_open(&cpu, DEV_CPU, 0, e));
    for (int i = 0; i < PATTERNS; i++) {
        uint8_t *host = filled(c->bytes, pattern[i]);
        c->digest[i] = vec_digest(cpu, &c->spans, (const float *)(const void *)host);
        free(host);
    }
    dev_close(cpu);
    return ST_OK;
}

/* Takes chunks until the memory or a third of the time has an end. */
static void take_chunks(dev *d, double seconds, const sizes *z, chunks *c) {
    int64_t began = clock_now_ns();
    double all = (double)dev_available_bytes(d);
    all = is_gpu(d) ? all - LEFT_OF_GPU * (double)c->bytes : all / 2;
    while (c->n < z->most_chunks && (double)(c->n + 1) * (double)c->bytes <= all) {
        void *at;
        err full;
        if (c->n > 0 && clock_since_s(began) > seconds / 3) return;
        if (dev_reserve(d, &at, (size_t)c->bytes, "a chunk", &full) != ST_OK) return;
        VEC_PUSH(c->at, c->n, c->cap, at);
        dev_fill(d, at, pattern[0], (size_t)c->bytes); /* the system gives it now */
        dev_sync(d);
    }
}

static int pattern_of(int chunk, int round) {
    return (chunk + round) % PATTERNS;
}

static void find_flipped(dev *d, const chunks *c, int i, int byte, burnin_result *r) {
    dev_room room = {0};
    const uint8_t *is = dev_look(d, c->at[i], (size_t)c->bytes, &room);
    int64_t at = 0;
    while (at < c->bytes && is[at] == byte) at++;
    if (at < c->bytes)
        snprintf(r->wrong, sizeof r->wrong, "byte %ld of chunk %d is 0x%02x and must be 0x%02x",
                 (long)at, i, is[at], byte);
    else
        snprintf(r->wrong, sizeof r->wrong, "a byte of chunk %d was wrong, and then right", i);
    dev_room_free(&room);
}

static void run_round(dev *d, const chunks *c, int round, burnin_result *r) {
    for (int i = 0; i < c->n; i++)
        dev_fill(d, c->at[i], pattern[pattern_of(i, round)], (size_t)c->bytes);
    for (int i = 0; i < c->n && !r->wrong[0]; i++) {
        int k = pattern_of(i, round);
        if (vec_digest(d, &c->spans, c->at[i]) != c->digest[k])
            find_flipped(d, c, i, pattern[k], r);
    }
    r->memory_bytes = (double)c->n * (double)c->bytes;
}

status burnin_memory(dev *d, double seconds, burnin_result *r, err *e) {
    sizes z = sizes_for(d);
    chunks c = {.bytes = z.chunk_bytes};
    TRY(know_digests(&c, e));
    take_chunks(d, seconds, &z, &c);
    int64_t began = clock_now_ns();
    for (int round = 1; round <= PATTERNS && !r->wrong[0]; round++)
        if (round == 1 || clock_since_s(began) < seconds / 3) run_round(d, &c, round, r);
    for (int i = 0; i < c.n; i++) dev_release(d, c.at[i], (size_t)c.bytes);
    free(c.at);
    return dev_check(d, e);
}

/* ---- copies ---- */

typedef struct copies {
    dev *d;
    void *host, *back, *a, *b; /* back: of the host, too */
    size_t bytes;
} copies;

/* Straight from where the bytes lie, which dev_write does not do. */
static void copy_in(const void *args) {
    const copies *c = args;
    cu_result r =
        cuda_driver(c->d)->copy_in((cu_ptr)(uintptr_t)c->a, c->host, c->bytes, cuda_stream(c->d));
    if (r != 0) cuda_note_error(c->d, "a copy to the GPU", cuda_error_text(c->d, r));
}
static void copy_within(const void *args) {
    const copies *c = args;
    dev_copy(c->d, c->b, c->a, c->bytes);
}
static void copy_out(const void *args) {
    const copies *c = args;
    dev_read(c->d, c->back, c->b, c->bytes);
}

static double copy_rate(const copies *c, void (*copy)(const void *args)) {
    double s = cuda_seconds(c->d, COPIES, copy, c);
    return s > 0 ? (double)c->bytes / s : 0;
}

static void run_copies(const copies *c, burnin_result *r) {
    uint64_t *word = c->host;
    for (size_t i = 0; i < c->bytes / sizeof *word; i++) word[i] = mix64(i);
    r->in_bytes_per_s = copy_rate(c, copy_in);
    r->within_bytes_per_s = copy_rate(c, copy_within);
    r->out_bytes_per_s = copy_rate(c, copy_out);
    dev_sync(c->d);
    if (memcmp(c->host, c->back, c->bytes) != 0)
        snprintf(r->wrong, sizeof r->wrong, "what was copied there and back has changed");
}

status burnin_copies(dev *d, burnin_result *r, err *e) {
    copies c = {.d = d, .bytes = (size_t)sizes_for(d).chunk_bytes};
    status st = dev_reserve(d, &c.a, c.bytes, "copies", e);
    if (st == ST_OK) st = dev_reserve(d, &c.b, c.bytes, "copies", e);
    c.host = cuda_pinned(d, c.bytes);
    c.back = cuda_pinned(d, c.bytes);
    if (st == ST_OK && c.host && c.back) run_copies(&c, r);
    cuda_pinned_free(d, c.host);
    cuda_pinned_free(d, c.back);
    dev_release(d, c.a, c.bytes);
    dev_release(d, c.b, c.bytes);
    return st == ST_OK ? dev_check(d, e) : st;
}

/* ---- cores ---- */

typedef struct core {
    double seconds;
    int cpu;
    burnin_result *r;
    status st;
    err e;
} core;

static void *run_core(void *arg) {
    core *c = arg;
    dev *d;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((size_t)c->cpu, &only);
    pthread_setaffinity_np(pthread_self(), sizeof only, &only);
    c->st = dev_open(&d, DEV_CPU, 1, &c->e);
    if (c->st == ST_OK) c->st = burnin_products(d, c->seconds, c->r, &c->e);
    dev_close(d);
    return NULL;
}

status burnin_cores(double seconds, const int *cpu, int n, burnin_result *r, err *e) {
    core *c = xcalloc((size_t)n, sizeof *c);
    pthread_t *thread = xcalloc((size_t)n, sizeof *thread);
    int started = 0;
    status st = ST_OK;
    for (; started < n && st == ST_OK; started++) {
        c[started] = (core){.seconds = seconds, .cpu = cpu[started], .r = &r[started]};
        if (!thread_start(&thread[started], run_core, &c[started]))
            st = err_set(e, ST_FAILED, "no thread can be started for core %d", cpu[started--]);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        if (st == ST_OK && c[i].st != ST_OK) st = c[i].st, *e = c[i].e;
    }
    free(thread);
    free(c);
    return st;
}
