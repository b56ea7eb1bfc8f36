/* Whole flat arrays of parameters and gradients (op/vecops.h): one launch over all spans. A block
 * takes a block of a span, VEC_BLOCK elements; it finds the span by bisection in the device's copy of
 * the table, which is made once. Threads take four successive elements at a time.
 *
 * Bytes per element: update 28, with a 16-bit copy 30, from fixed point 32, with narrow states 8 less; 12 FLOPs, a root and a
 * quotient among them. Sum of squares 4 (fixed point 8), digest 4, rounding 6, addition 12 (24).
 * Sums of floats: a block adds up in a fixed order, and one last block adds the sums of blocks.
 * Integer sums have no order, so blocks add theirs by atomics. */
#include "base/philox.h"
#include "gpu/kernel.h"
#include "op/clip.h"
#include "op/narrow.h"

enum { VECOPS_THREADS = 256, BLOCK = 1 << 14, FOUR = 4, FIXED_BITS = 50, LIMBS = 6 };
enum { NO_COPY, COPY_BF16, COPY_F16 };

/* A vec_span. */
typedef struct span_part {
    int64_t at, n, first_block;
    int64_t index, run, stride, skip;
    uint64_t name;
    int32_t counted, copy, decay, reserved;
} span_part;

typedef struct spans_part {
    const span_part *item;
    int64_t blocks;
    int32_t n, aligned; /* arrays begin at multiples of 16 bytes (16-bit copies: of 8) */
} spans_part;

/* Of the block that asks: its span, and elements first .. end - 1 of that. */
typedef struct my_block {
    const span_part *span;
    int64_t first, end;
    bool wide; /* four elements at a time may be read at once */
} my_block;

GPU_FN my_block find_block(const spans_part *s, int64_t b) {
    int32_t lo = 0, hi = s->n;
    while (hi - lo > 1) {
        int32_t middle = lo + (hi - lo) / 2;
        if (s->item[middle].first_block <= b)
            lo = middle;
        else
            hi = middle;
    }
    my_block m;
    m.span = &s->item[lo];
    m.first = (b - m.span->first_block) * BLOCK;
    m.end = m.span->n - m.first < BLOCK ? m.span->n : m.first + BLOCK;
    m.wide = s->aligned && m.span->at % FOUR == 0;
    return m;
}

/* How many elements, up to four, a thread has from element i on. */
GPU_FN int32_t left_of(const my_block *m, int64_t i) {
    return m->end - i < FOUR ? (int32_t)(m->end - i) : FOUR;
}

/* Elements at p, of which `left` exist; the others are 0. */
GPU_FN void get_four(float v[FOUR], const float *p, int32_t left, bool wide) {
    if (wide && left == FOUR) {
        load4(v, p);
        return;
    }
    for (int k = 0; k < FOUR; k++) v[k] = k < left ? p[k] : 0.0f;
}

GPU_FN void put_four(float *p, const float v[FOUR], int32_t left, bool wide) {
    if (wide && left == FOUR) {
        store4(p, v);
        return;
    }
    for (int k = 0; k < FOUR; k++)
        if (k < left) p[k] = v[k];
}

GPU_FN void put_copy(uint16_t *p, const float v[FOUR], int32_t left, bool wide, int32_t how) {
    uint64_t all = 0;
    for (int k = 0; k < FOUR; k++) {
        uint16_t h = how == COPY_BF16 ? bf16_store(v[k]) : f16_store(v[k]);
        all |= (uint64_t)h << (16 * k);
        if (!(wide && left == FOUR) && k < left) p[k] = h;
    }
    if (wide && left == FOUR) store8(p, all);
}

GPU_FN uint64_t whole_index(const span_part *s, int64_t i) {
    int64_t j = s->skip + i;
    return (uint64_t)(s->run > 0 ? s->index + j / s->run * s->stride + j % s->run : s->index + j);
}

/* Numbers of bf16 at p. */
GPU_FN void get_narrow(float v[FOUR], const uint16_t *p, int32_t left, bool wide) {
    uint64_t all = 0;
    if (wide && left == FOUR)
        all = load8(p);
    else
        for (int k = 0; k < left; k++) all |= (uint64_t)p[k] << (16 * k);
    for (int k = 0; k < FOUR; k++) v[k] = bf16_load((uint16_t)(all >> (16 * k)));
}

/* Rounds them stochastically: draw[k] >> shift has the 16 bits of element k. */
GPU_FN void put_narrow(uint16_t *p, const float v[FOUR], const uint32_t draw[FOUR], int shift,
                       int32_t left, bool wide) {
    uint64_t all = 0;
    for (int k = 0; k < FOUR; k++) {
        uint16_t h = narrow_round(f32_bits(v[k]), draw[k] >> shift & 0xffffu);
        all |= (uint64_t)h << (16 * k);
        if (!(wide && left == FOUR) && k < left) p[k] = h;
    }
    if (wide && left == FOUR) store8(p, all);
}

/* The random bits of elements i .. i + 3 of a span: one block, where their whole indices are 4 n .. 4 n + 3. */
GPU_FN void narrow_bits(const span_part *s, uint64_t draws, int64_t i, uint32_t draw[FOUR]) {
    rng_key key = key_of_stream(draws, s->name);
    uint64_t whole = whole_index(s, i);
    bool together = whole % FOUR == 0 && whole_index(s, i + FOUR - 1) == whole + FOUR - 1;
    if (together) philox_block(key, whole / FOUR, 0, draw);
    for (int k = 0; k < FOUR && !together; k++) draw[k] = philox_u32(key, whole_index(s, i + k));
}

GPU_FN uint64_t digest_of(const span_part *s, int64_t i, const float v[FOUR], int32_t left) {
    uint64_t sum = 0;
    for (int k = 0; k < FOUR; k++)
        if (k < left)
            sum += mix64(s->name ^ mix64(whole_index(s, i + k) ^ (uint64_t)f32_bits(v[k]) << 32));
    return sum;
}

/* Adds a number of each thread of the block to *total. */
GPU_FN void add_to_total(uint64_t v, uint64_t *room, uint64_t *total) {
    v = warp_sum_u64(v);
    if (lane() == 0) room[warp()] = v;
    sync_block();
    if (thread_x() != 0) return;
    for (uint32_t w = 1; w < threads_x() / GPU_WARP; w++) v += room[w];
    atomic_add_u64(total, v);
}

/* ---- update ---- */

typedef struct adamw_args {
    spans_part s;
    float *param, *m, *v;
    uint16_t *narrow_m, *narrow_v; /* replace m and v, unless NULL */
    const float *grad;
    const int64_t *grad_fixed; /* replaces grad */
    uint16_t *copy;
    uint64_t *digest;      /* NULL: not wanted */
    uint64_t draws;        /* of narrow states */
    const float *scale_at; /* replaces grad_scale; a NaN there: nothing is written */
    float beta1, beta2, add1, add2, grad_scale, decay, step, root, eps;
} adamw_args;

GPU_FN void gradients_at(const adamw_args *a, float g[FOUR], int64_t at, int32_t left, bool wide) {
    if (!a->grad_fixed) {
        get_four(g, a->grad + at, left, wide);
        return;
    }
    for (int k = 0; k < FOUR; k++)
        g[k] = k < left ? (float)a->grad_fixed[at + k] * 8.8817841970012523e-16f : 0.0f; /* 2^-50 */
}

GPU_FN void moments_at(const adamw_args *a, float m[FOUR], float v[FOUR], int64_t at, int32_t left,
                       bool wide, bool narrow) {
    if (narrow) {
        get_narrow(m, a->narrow_m + at, left, wide);
        get_narrow(v, a->narrow_v + at, left, wide);
    } else {
        get_four(m, a->m + at, left, wide);
        get_four(v, a->v + at, left, wide);
    }
}

/* Elements i .. of a span. */
GPU_FN void put_moments(const adamw_args *a, const span_part *s, const float m[FOUR],
                        const float v[FOUR], int64_t i, int32_t left, bool wide, bool narrow) {
    int64_t at = s->at + i;
    uint32_t draw[FOUR];
    if (narrow) {
        narrow_bits(s, a->draws, i, draw);
        put_narrow(a->narrow_m + at, m, draw, 0, left, wide);
        put_narrow(a->narrow_v + at, v, draw, 16, left, wide);
    } else {
        put_four(a->m + at, m, left, wide);
        put_four(a->v + at, v, left, wide);
    }
}

/* narrow: of the states; a constant, as draws need registers that other states can do without. */
GPU_FN void update_block(const adamw_args *a, uint64_t *room, bool narrow) {
    float grad_scale = a->scale_at ? *a->scale_at : a->grad_scale;
    if (grad_scale != grad_scale) return;
    my_block b = find_block(&a->s, block_x());
    float decay = b.span->decay ? a->decay : 1.0f;
    uint64_t digest = 0;
    for (int64_t i = b.first + FOUR * thread_x(); i < b.end; i += FOUR * threads_x()) {
        float p[FOUR], m[FOUR], v[FOUR], g[FOUR];
        int32_t left = left_of(&b, i);
        int64_t at = b.span->at + i;
        get_four(p, a->param + at, left, b.wide);
        moments_at(a, m, v, at, left, b.wide, narrow);
        gradients_at(a, g, at, left, b.wide);
        for (int k = 0; k < FOUR; k++) {
            float scaled = g[k] * grad_scale;
            m[k] = fmaf(a->beta1, m[k], a->add1 * scaled);
            v[k] = fmaf(a->beta2, v[k], a->add2 * scaled * scaled);
            p[k] = p[k] * decay - a->step * m[k] / (sqrtf(v[k]) * a->root + a->eps);
        }
        put_four(a->param + at, p, left, b.wide);
        put_moments(a, b.span, m, v, i, left, b.wide, narrow);
        if (a->copy && b.span->copy != NO_COPY)
            put_copy(a->copy + at, p, left, b.wide, b.span->copy);
        if (a->digest && b.span->counted) digest += digest_of(b.span, i, p, left);
    }
    if (a->digest) add_to_total(digest, room, a->digest);
}

KERNEL(update_adamw, adamw_args, VECOPS_THREADS) {
    SHARED(uint64_t, room, VECOPS_THREADS / GPU_WARP);
    update_block(a, room, false);
}

KERNEL(update_adamw_narrow, adamw_args, VECOPS_THREADS) {
    SHARED(uint64_t, room, VECOPS_THREADS / GPU_WARP);
    update_block(a, room, true);
}

/* ---- sums ---- */

typedef struct sum_args {
    spans_part s;
    const float *x;
    const int64_t *fixed;
    double *part;    /* [blocks] */
    uint64_t *total; /* the digest, or the limbs, or the bits of the sum of squares */
    double *norm;    /* replaces total: the sum of squares is added */
    uint16_t *copy;
} sum_args;

KERNEL(sum_squares, sum_args, VECOPS_THREADS) {
    SHARED(double, room, VECOPS_THREADS);
    my_block b = find_block(&a->s, block_x());
    double sum = 0;
    int64_t end = b.span->counted ? b.end : b.first;
    for (int64_t i = b.first + FOUR * thread_x(); i < end; i += FOUR * threads_x()) {
        float x[FOUR];
        get_four(x, a->x + b.span->at + i, left_of(&b, i), b.wide);
        for (int k = 0; k < FOUR; k++) sum += (double)x[k] * (double)x[k];
    }
    sum = block_sum_f64(sum, room);
    if (thread_x() == 0) a->part[block_x()] = sum;
}

KERNEL(sum_parts, sum_args, VECOPS_THREADS) {
    SHARED(double, room, VECOPS_THREADS);
    double sum = 0;
    for (int64_t i = thread_x(); i < a->s.blocks; i += threads_x()) sum += a->part[i];
    sum = block_sum_f64(sum, room);
    if (thread_x() != 0) return;
    if (a->norm)
        *a->norm += sum;
    else
        *(double *)(void *)a->total = sum;
}

typedef struct scale_args {
    const double *squares;
    const bool *spoilt; /* dev_flag */
    float *scale;
    double clip_norm, grads_scale;
} scale_args;

KERNEL(clip_gradients, scale_args, GPU_WARP) {
    if (thread_x() != 0) return;
    float scale = clip_scale(*a->squares, a->clip_norm, a->grads_scale);
    *a->scale = *a->spoilt ? f32_of_bits(0x7fc00000u) : scale;
}

typedef struct finite_args {
    const float *x;
    bool *flag;
    int64_t n;
} finite_args;

KERNEL(check_finite, finite_args, VECOPS_THREADS) {
    int64_t i = (int64_t)block_x() * threads_x() + thread_x();
    if (i < a->n && a->x[i] - a->x[i] != 0.0f) raise_flag(a->flag);
}

/* Sums of the 32-bit digits of squares. With |x| = h * 2^32 + l: x^2 = h^2 * 2^64 + 2 h l * 2^32 + l^2. */
GPU_FN void add_square(uint64_t digit[FOUR], int64_t x) {
    const uint64_t low = 0xffffffffu;
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x, l = size & low, h = size >> 32;
    uint64_t ll = l * l, hl = h * l, hh = h * h;
    digit[0] += ll & low;
    digit[1] += (ll >> 32) + ((hl & low) << 1);
    digit[2] += ((hl >> 32) << 1) + (hh & low);
    digit[3] += hh >> 32;
}

/* A block's digits are sums of at most BLOCK numbers below 2^34; carried, they are below 2^32, and so
 * 2^32 blocks fit into a limb. */
KERNEL(sum_limbs, sum_args, VECOPS_THREADS) {
    SHARED(uint64_t, room, VECOPS_THREADS / GPU_WARP * FOUR);
    my_block b = find_block(&a->s, block_x());
    uint64_t digit[FOUR];
    for (int k = 0; k < FOUR; k++) digit[k] = 0;
    int64_t end = b.span->counted ? b.end : b.first;
    for (int64_t i = b.first + thread_x(); i < end; i += threads_x())
        add_square(digit, a->fixed[b.span->at + i]);
    for (int k = 0; k < FOUR; k++) {
        digit[k] = warp_sum_u64(digit[k]);
        if (lane() == 0) room[warp() * FOUR + (uint32_t)k] = digit[k];
    }
    sync_block();
    if (thread_x() != 0 || b.first == end) return;
    uint64_t carry = 0;
    for (uint32_t k = 0; k < LIMBS; k++) {
        for (uint32_t w = 0; k < FOUR && w < threads_x() / GPU_WARP; w++)
            carry += room[w * FOUR + k];
        atomic_add_u64(&a->total[k], carry & 0xffffffffu);
        carry >>= 32;
    }
}

KERNEL(sum_digests, sum_args, VECOPS_THREADS) {
    SHARED(uint64_t, room, VECOPS_THREADS / GPU_WARP);
    my_block b = find_block(&a->s, block_x());
    uint64_t sum = 0;
    int64_t end = b.span->counted ? b.end : b.first;
    for (int64_t i = b.first + FOUR * thread_x(); i < end; i += FOUR * threads_x()) {
        float x[FOUR];
        int32_t left = left_of(&b, i);
        get_four(x, a->x + b.span->at + i, left, b.wide);
        sum += digest_of(b.span, i, x, left);
    }
    add_to_total(sum, room, a->total);
}

/* ---- values ---- */

KERNEL(round_copies, sum_args, VECOPS_THREADS) {
    my_block b = find_block(&a->s, block_x());
    if (b.span->copy == NO_COPY) return;
    for (int64_t i = b.first + FOUR * thread_x(); i < b.end; i += FOUR * threads_x()) {
        float x[FOUR];
        int32_t left = left_of(&b, i);
        get_four(x, a->x + b.span->at + i, left, b.wide);
        put_copy(a->copy + b.span->at + i, x, left, b.wide, b.span->copy);
    }
}

typedef struct add_args {
    float *to;
    const float *from;
    uint64_t *to_int; /* replaces to */
    const uint64_t *from_int;
    int64_t n;
    int32_t aligned;
} add_args;

KERNEL(add_arrays, add_args, VECOPS_THREADS) {
    int64_t i = ((int64_t)block_x() * threads_x() + thread_x()) * FOUR;
    if (i >= a->n) return;
    int32_t left = a->n - i < FOUR ? (int32_t)(a->n - i) : FOUR;
    if (a->to_int) {
        for (int k = 0; k < left; k++) a->to_int[i + k] += a->from_int[i + k];
        return;
    }
    float x[FOUR], y[FOUR];
    get_four(x, a->to + i, left, a->aligned);
    get_four(y, a->from + i, left, a->aligned);
    for (int k = 0; k < FOUR; k++) x[k] += y[k];
    put_four(a->to + i, x, left, a->aligned);
}

#ifndef __CUDACC__
#include <stdlib.h>

#include "base/arena.h"
#include "dev/cuda.h"
#include "op/cpu/tables.h"
#include "op/cuda/host.h"
#include "op/vec_backend.h"

_Static_assert((int)BLOCK == (int)VEC_BLOCK && (int)LIMBS == (int)VEC_LIMBS &&
                   (int)FIXED_BITS == (int)FIXED_GRAD_BITS,
               "the numbers of op/vecops.h and op/fixed.h");

static bool is_aligned(const void *p, size_t bytes) {
    return (uintptr_t)p % bytes == 0;
}

static int32_t copy_of(dtype dt) {
    return dt == DT_BF16 ? COPY_BF16 : dt == DT_F16 ? COPY_F16 : NO_COPY;
}

/* The table of spans on the device. decay may be NULL. */
static spans_part spans_on(dev *d, const vec_spans *s, const bool *decay) {
    size_t bytes = (size_t)s->n * sizeof(span_part);
    span_part *item = cuda_host_room(d, bytes);
    for (int i = 0; i < s->n; i++) {
        const vec_span *k = &s->item[i];
        item[i] = (span_part){k->at,
                              k->n,
                              k->first_block,
                              k->index,
                              k->run,
                              k->stride,
                              k->skip,
                              k->name,
                              k->counted,
                              copy_of(k->copy_dt),
                              decay && decay[k->owner],
                              0};
    }
    return (spans_part){cuda_keep(d, item, bytes), s->blocks, s->n, true};
}

/* A block for each block of spans; the largest span says how many threads have work. */
static gpu_grid grid_of_spans(const vec_spans *s) {
    int64_t most = 1;
    for (int i = 0; i < s->n; i++) most = s->item[i].n > most ? s->item[i].n : most;
    uint32_t threads = GPU_WARP;
    while (threads < VECOPS_THREADS && (int64_t)threads * FOUR < most) threads *= 2;
    return (gpu_grid){(uint32_t)s->blocks, 1, 1, threads, 0};
}

/* ---- what kernels may touch ---- */

/* Elements of flat arrays that the spans reach. */
static int64_t reach(const vec_spans *s) {
    int64_t end = 0;
    for (int i = 0; i < s->n; i++)
        if (s->item[i].at + s->item[i].n > end) end = s->item[i].at + s->item[i].n;
    return end;
}

static gpu_range spans_range(const spans_part *s) {
    return range_of("the table of spans", s->item, (int64_t)s->n * (int64_t)sizeof(span_part) / 8,
                    8, GPU_READ);
}

/* Results of atomics begin with 0, in the first bytes of the scratch memory; sums of blocks follow. */
enum { RESULT_BYTES = 64 };

static void *clear_result(dev *d, int64_t blocks) {
    void *at = cuda_scratch(d, RESULT_BYTES + (size_t)blocks * sizeof(double));
    if (at) dev_fill(d, at, 0, RESULT_BYTES);
    return at;
}

/* ---- update ---- */

static adamw_args adamw_of(const vec_update_args *a) {
    return (adamw_args){.param = a->param,
                        .m = a->state[0],
                        .v = a->state[1],
                        .narrow_m = a->narrow[0],
                        .narrow_v = a->narrow[1],
                        .draws = a->draws,
                        .grad = a->grad,
                        .grad_fixed = a->grad_fixed,
                        .copy = a->param_copy,
                        .beta1 = a->beta1,
                        .beta2 = a->beta2,
                        .add1 = 1.0f - a->beta1,
                        .add2 = 1.0f - a->beta2,
                        .scale_at = a->grad_scale_at,
                        .grad_scale = a->grad_scale,
                        .decay = 1.0f - a->lr * a->weight_decay,
                        .step = a->lr / a->correction1,
                        .root = (float)(1.0 / sqrt((double)a->correction2)),
                        .eps = a->eps};
}

static void cuda_update(dev *d, const vec_spans *s, const vec_update_args *args, uint64_t *digest) {
    adamw_args a = adamw_of(args);
    CHECK(args->kind == VEC_ADAMW, "no kernel updates by optimizer %d", (int)args->kind);
    if (digest) *digest = 0;
    if (s->blocks == 0) return;
    a.s = spans_on(d, s, args->decay);
    a.s.aligned = is_aligned(a.param, 16) && is_aligned(a.m, 16) && is_aligned(a.v, 16) &&
                  is_aligned(a.narrow_m, 8) && is_aligned(a.narrow_v, 8) &&
                  is_aligned(a.grad, 16) && is_aligned(a.copy, 8);
    if (digest) a.digest = clear_result(d, 0);
    if (!a.s.item || (digest && !a.digest)) return;
    int64_t n = reach(s);
    gpu_range may[] = {spans_range(&a.s),
                       range_of("parameters", a.param, n, 4, GPU_UPDATE),
                       range_of("first moments", a.m, n, 4, GPU_UPDATE),
                       range_of("second moments", a.v, n, 4, GPU_UPDATE),
                       range_of("first moments in bf16", a.narrow_m, n, 2, GPU_UPDATE),
                       range_of("second moments in bf16", a.narrow_v, n, 2, GPU_UPDATE),
                       range_of("gradients", a.grad, n, 4, GPU_READ),
                       range_of("gradients in fixed point", a.grad_fixed, n, 8, GPU_READ),
                       range_of("rounded parameters", a.copy, n, 2, GPU_UPDATE),
                       range_of("scale of the gradients", a.scale_at, 1, 4, GPU_READ),
                       range_of("digest", a.digest, 1, 8, GPU_UPDATE)};
    cuda_scope_begin(d, "update", may, ARRAY_LEN(may));
    cuda_launch(d, a.narrow_m ? &update_adamw_narrow : &update_adamw, grid_of_spans(s), &a);
    cuda_scope_end(d);
    if (digest) dev_read(d, digest, a.digest, sizeof *digest);
}

/* ---- sums ---- */

/* Runs a kernel over spans, and maybe one that joins the sums of blocks; n words of result, or, with
 * a->norm, none for the host. */
static void sum_spans(dev *d, const vec_spans *s, const gpu_kernel *k, const gpu_kernel *join,
                      sum_args *a, void *result, int words) {
    if (words) memset(result, 0, (size_t)words * sizeof(uint64_t));
    if (s->blocks == 0) return;
    a->s = spans_on(d, s, NULL);
    a->s.aligned = is_aligned(a->x, 16);
    a->total = clear_result(d, s->blocks);
    if (!a->s.item || !a->total) return;
    a->part = (double *)(void *)((char *)a->total + RESULT_BYTES);
    int64_t n = reach(s);
    gpu_range may[] = {spans_range(&a->s), range_of("numbers", a->x, n, 4, GPU_READ),
                       range_of("sums of blocks", a->part, s->blocks, 8, GPU_SCRATCH),
                       range_of("sum", a->total, words, 8, GPU_UPDATE),
                       range_of("norm", a->norm, 1, 8, GPU_UPDATE)};
    cuda_scope_begin(d, "sum", may, ARRAY_LEN(may));
    cuda_launch(d, k, grid_of_spans(s), a);
    if (join) cuda_launch(d, join, (gpu_grid){1, 1, 1, VECOPS_THREADS, 0}, a);
    cuda_scope_end(d);
    if (!a->norm) dev_read(d, result, a->total, (size_t)words * sizeof(uint64_t));
}

static double cuda_sum_squares(dev *d, const vec_spans *s, const float *x) {
    double sum;
    sum_spans(d, s, &sum_squares, &sum_parts, &(sum_args){.x = x}, &sum, 1);
    return sum;
}

static void cuda_norm_add(dev *d, const vec_spans *s, const float *x, vec_norm *to) {
    sum_spans(d, s, &sum_squares, &sum_parts, &(sum_args){.x = x, .norm = &to->squares}, NULL, 0);
}

static void cuda_norm_end(dev *d, double clip_norm, double grads_scale, vec_norm *to) {
    scale_args a = {&to->squares, dev_flag(d), &to->scale, clip_norm, grads_scale};
    gpu_range may[] = {range_of("squares", a.squares, 1, 8, GPU_READ),
                       range_of("the flag", a.spoilt, 1, 1, GPU_READ),
                       range_of("scale of the gradients", a.scale, 1, 4, GPU_WRITE)};
    cuda_scope_begin(d, "clip", may, ARRAY_LEN(may));
    cuda_launch(d, &clip_gradients, (gpu_grid){1, 1, 1, GPU_WARP, 0}, &a);
    cuda_scope_end(d);
}

static void cuda_check_finite(dev *d, const float *x, int64_t n) {
    finite_args a = {x, dev_flag(d), n};
    gpu_range may[] = {range_of("numbers", x, n, 4, GPU_READ),
                       range_of("the flag", a.flag, 1, 1, GPU_UPDATE)};
    uint32_t threads = n > GPU_WARP ? VECOPS_THREADS : GPU_WARP;
    cuda_scope_begin(d, "losses", may, ARRAY_LEN(may));
    cuda_launch(d, &check_finite,
                (gpu_grid){(uint32_t)((n + threads - 1) / threads), 1, 1, threads, 0}, &a);
    cuda_scope_end(d);
}

static void cuda_norm_add_fixed(dev *d, const vec_spans *s, const int64_t *x, vec_norm *to) {
    if (s->blocks == 0) return;
    sum_args a = {.s = spans_on(d, s, NULL), .fixed = x, .total = to->limb};
    if (!a.s.item) return;
    gpu_range may[] = {spans_range(&a.s),
                       range_of("numbers in fixed point", x, reach(s), 8, GPU_READ),
                       range_of("sums", to->limb, VEC_LIMBS, 8, GPU_UPDATE)};
    cuda_scope_begin(d, "sum", may, ARRAY_LEN(may));
    cuda_launch(d, &sum_limbs, grid_of_spans(s), &a);
    cuda_scope_end(d);
}

static uint64_t cuda_digest(dev *d, const vec_spans *s, const float *x) {
    uint64_t sum;
    sum_spans(d, s, &sum_digests, NULL, &(sum_args){.x = x}, &sum, 1);
    return sum;
}

/* ---- values ---- */

enum { DRAWN_AT_ONCE = 64 * VEC_BLOCK };

/* The host draws n elements of a span from `first` on, and the device gets them. */
static void draw_some(dev *d, const vec_span *span, int64_t first, int64_t n, const vec_rule *rule,
                      float *x, uint16_t *copy) {
    float *room = cuda_host_room(d, DRAWN_AT_ONCE * (sizeof *x + sizeof *copy));
    uint16_t *room_of_copy = (uint16_t *)(void *)(room + DRAWN_AT_ONCE);
    vec_span part = *span;
    vec_spans one = {.item = &part, .n = 1};
    bool copied = copy && span->copy_dt != DT_F32;
    part.at = 0, part.skip += first, part.n = n;
    vec_spans_index(&one);
    cpu_kernels_of(dev_isa(d), DT_F32)
        ->draw(dev_threads(d), &one, rule, room, copied ? room_of_copy : NULL);
    int64_t at = span->at + first;
    dev_write(d, x + at, room, (size_t)n * sizeof *x);
    if (copied) dev_write(d, copy + at, room_of_copy, (size_t)n * sizeof *copy);
}

/* Once in a run, so the CPU may do it. */
static void cuda_draw(dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy) {
    for (int i = 0; i < s->n; i++) {
        const vec_span *k = &s->item[i];
        for (int64_t first = 0; first < k->n; first += DRAWN_AT_ONCE) {
            int64_t left = k->n - first;
            draw_some(d, k, first, left < DRAWN_AT_ONCE ? left : DRAWN_AT_ONCE, rule, x, copy);
        }
    }
}

static void cuda_round(dev *d, const vec_spans *s, const float *x, uint16_t *copy) {
    if (s->blocks == 0) return;
    sum_args a = {.s = spans_on(d, s, NULL), .x = x, .copy = copy};
    a.s.aligned = is_aligned(x, 16) && is_aligned(copy, 8);
    if (!a.s.item) return;
    int64_t n = reach(s);
    gpu_range may[] = {spans_range(&a.s), range_of("numbers", x, n, 4, GPU_READ),
                       range_of("rounded numbers", copy, n, 2, GPU_UPDATE)};
    cuda_scope_begin(d, "rounding", may, ARRAY_LEN(may));
    cuda_launch(d, &round_copies, grid_of_spans(s), &a);
    cuda_scope_end(d);
}

static void cuda_add(dev *d, void *to, const void *from, int64_t n, dtype dt) {
    add_args a = {.n = n, .aligned = is_aligned(to, 16) && is_aligned(from, 16)};
    if (dt == DT_I64)
        a.to_int = to, a.from_int = from;
    else
        a.to = to, a.from = from;
    int32_t bytes = (int32_t)dtype_bytes(dt);
    gpu_range may[] = {range_of("sums", to, n, bytes, GPU_UPDATE),
                       range_of("summands", from, n, bytes, GPU_READ)};
    int64_t fours = (n + FOUR - 1) / FOUR;
    uint32_t threads = fours > GPU_WARP ? VECOPS_THREADS : GPU_WARP;
    cuda_scope_begin(d, "addition", may, ARRAY_LEN(may));
    cuda_launch(d, &add_arrays,
                (gpu_grid){(uint32_t)((fours + threads - 1) / threads), 1, 1, threads, 0}, &a);
    cuda_scope_end(d);
}

const vec_backend vec_backend_cuda = {
    cuda_update,         cuda_sum_squares, cuda_norm_add, cuda_norm_end, cuda_check_finite,
    cuda_norm_add_fixed, cuda_digest,      cuda_draw,     cuda_round,    cuda_add,
};
#endif
