/* Blocks of spans, and who does each operation: on the CPU and its twin the variant of the
 * instruction set, given to the device as a kernel. */
#include "op/vecops.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "dev/cuda.h"
#include "op/clip.h"
#include "op/cpu/tables.h"
#include "op/vec_backend.h"

void vec_spans_index(vec_spans *s) {
    s->elems = s->blocks = 0;
    for (int i = 0; i < s->n; i++) {
        vec_span *p = &s->item[i];
        p->first_block = s->blocks;
        s->blocks += (p->n + VEC_BLOCK - 1) / VEC_BLOCK;
        s->elems += p->n;
    }
}

static const cpu_kernels *kernels_of(const dev *d) {
    return cpu_kernels_of(dev_isa(d), DT_F32);
}

/* Gives the kernel and waits: `args` point to where the result goes. */
static void run_now(dev *d, dev_kernel kernel, const void *args, size_t bytes) {
    dev_launch(d, kernel, args, bytes);
    dev_sync(d);
}

/* ---- update ---- */

typedef struct update_job {
    const vec_spans *s;
    vec_update_args a;
    uint64_t *digest;
} update_job;

static void run_update(dev *d, const void *args) {
    update_job j = *(const update_job *)args;
    if (j.a.grad_scale_at) j.a.grad_scale = *j.a.grad_scale_at;
    if (!isnan(j.a.grad_scale)) kernels_of(d)->update(dev_threads(d), j.s, &j.a, j.digest);
}

static void host_update(dev *d, const vec_spans *s, const vec_update_args *a, uint64_t *digest) {
    update_job j = {s, *a, digest};
    dev_launch(d, run_update, &j, sizeof j);
    if (digest) dev_sync(d);
}

/* ---- sums ---- */

/* What the kernels below are given: they read x, or what a rule says, and write `to`. */
typedef struct job {
    const vec_spans *s;
    const void *x;
    const vec_rule *rule;
    void *to;
    uint16_t *to_copy;
} job;

static void run_squares(dev *d, const void *args) {
    const job *j = args;
    *(double *)j->to = kernels_of(d)->sum_squares(dev_threads(d), j->s, j->x);
}

static double host_sum_squares(dev *d, const vec_spans *s, const float *x) {
    double sum = 0;
    run_now(d, run_squares, &(job){.s = s, .x = x, .to = &sum}, sizeof(job));
    return sum;
}

static void run_norm(dev *d, const void *args) {
    const job *j = args;
    ((vec_norm *)j->to)->squares += kernels_of(d)->sum_squares(dev_threads(d), j->s, j->x);
}

static void host_norm_add(dev *d, const vec_spans *s, const float *x, vec_norm *to) {
    dev_launch(d, run_norm, &(job){.s = s, .x = x, .to = to}, sizeof(job));
}

typedef struct norm_job {
    vec_norm *of;
    double clip_norm, grads_scale;
} norm_job;

static void run_norm_end(dev *d, const void *args) {
    const norm_job *j = args;
    float scale = clip_scale(j->of->squares, j->clip_norm, j->grads_scale);
    j->of->scale = *dev_flag(d) ? NAN : scale;
}

static void host_norm_end(dev *d, double clip_norm, double grads_scale, vec_norm *to) {
    dev_launch(d, run_norm_end, &(norm_job){to, clip_norm, grads_scale}, sizeof(norm_job));
}

typedef struct finite_job {
    const float *x;
    int64_t n;
} finite_job;

static void run_finite(dev *d, const void *args) {
    const finite_job *j = args;
    for (int64_t i = 0; i < j->n; i++)
        if (!isfinite(j->x[i])) *dev_flag(d) = true;
}

static void host_check_finite(dev *d, const float *x, int64_t n) {
    dev_launch(d, run_finite, &(finite_job){x, n}, sizeof(finite_job));
}

static void run_limbs(dev *d, const void *args) {
    const job *j = args;
    int64_t limb[VEC_LIMBS];
    kernels_of(d)->sum_squares_fixed(dev_threads(d), j->s, j->x, limb);
    for (int i = 0; i < VEC_LIMBS; i++) ((vec_norm *)j->to)->limb[i] += (uint64_t)limb[i];
}

static void host_norm_add_fixed(dev *d, const vec_spans *s, const int64_t *x, vec_norm *to) {
    dev_launch(d, run_limbs, &(job){.s = s, .x = x, .to = to}, sizeof(job));
}

static void run_digest(dev *d, const void *args) {
    const job *j = args;
    *(uint64_t *)j->to = kernels_of(d)->digest(dev_threads(d), j->s, j->x);
}

static uint64_t host_digest(dev *d, const vec_spans *s, const float *x) {
    uint64_t digest = 0;
    run_now(d, run_digest, &(job){.s = s, .x = x, .to = &digest}, sizeof(job));
    return digest;
}

/* ---- values ---- */

static void run_draw(dev *d, const void *args) {
    const job *j = args;
    kernels_of(d)->draw(dev_threads(d), j->s, j->rule, j->to, j->to_copy);
}

static void host_draw(dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy) {
    run_now(d, run_draw, &(job){.s = s, .rule = rule, .to = x, .to_copy = copy}, sizeof(job));
}

static void run_round(dev *d, const void *args) {
    const job *j = args;
    kernels_of(d)->round(dev_threads(d), j->s, j->x, j->to_copy);
}

static void host_round(dev *d, const vec_spans *s, const float *x, uint16_t *copy) {
    dev_launch(d, run_round, &(job){.s = s, .x = x, .to_copy = copy}, sizeof(job));
}

typedef struct add_job {
    void *to;
    const void *from;
    int64_t n;
    dtype dt;
} add_job;

static void run_add(dev *d, const void *args) {
    (void)d;
    const add_job *j = args;
    if (j->dt == DT_I64)
        for (int64_t i = 0; i < j->n; i++) ((uint64_t *)j->to)[i] += ((const uint64_t *)j->from)[i];
    else
        for (int64_t i = 0; i < j->n; i++) ((float *)j->to)[i] += ((const float *)j->from)[i];
}

static void host_add(dev *d, void *to, const void *from, int64_t n, dtype dt) {
    dev_launch(d, run_add, &(add_job){to, from, n, dt}, sizeof(add_job));
}

static const vec_backend host_backend = {
    host_update,         host_sum_squares, host_norm_add, host_norm_end, host_check_finite,
    host_norm_add_fixed, host_digest,      host_draw,     host_round,    host_add,
};

/* ---- on any device ---- */

/* A meta device does nothing, so it needs no other. */
static const vec_backend *backend_of(const dev *d) {
    bool cuda = dev_get_kind(d) == DEV_CUDA && !dev_is_meta(d);
    return cuda ? &vec_backend_cuda : &host_backend;
}

void vec_update(dev *d, const vec_spans *s, const vec_update_args *a, uint64_t *digest) {
    backend_of(d)->update(d, s, a, digest);
}

double vec_sum_squares(dev *d, const vec_spans *s, const float *x) {
    return backend_of(d)->sum_squares(d, s, x);
}

typedef struct norm_cache {
    dev *d;
    vec_norm *at; /* on the device; NULL: it has no memory, and has taken note */
} norm_cache;

static void *norm_create(dev *d) {
    err e;
    void *at;
    norm_cache *n = xcalloc(1, sizeof *n);
    n->d = d;
    if (dev_reserve(d, &at, sizeof *n->at, "the norm", &e) == ST_OK)
        n->at = at;
    else if (dev_get_kind(d) == DEV_CUDA)
        cuda_note_error(d, "the norm", e.message);
    else
        CHECK(false, "%s", e.message);
    return n;
}

static void norm_destroy(void *cache) {
    norm_cache *n = cache;
    dev_release(n->d, n->at, sizeof *n->at);
    free(n);
}

static vec_norm *norm_of(dev *d) {
    return ((norm_cache *)dev_kernel_cache(d, norm_create, norm_destroy))->at;
}

void vec_norm_begin(dev *d) {
    vec_norm *n = norm_of(d);
    if (n) dev_fill(d, n, 0, sizeof *n);
}

void vec_norm_add(dev *d, const vec_spans *s, const float *x) {
    vec_norm *n = norm_of(d);
    if (n) backend_of(d)->norm_add(d, s, x, n);
}

const float *vec_norm_end(dev *d, double clip_norm, double grads_scale) {
    vec_norm *n = norm_of(d);
    if (n) backend_of(d)->norm_end(d, clip_norm, grads_scale, n);
    return n ? &n->scale : NULL;
}

double vec_norm_squares(dev *d) {
    vec_norm *n = norm_of(d), now = {.squares = NAN};
    if (n) dev_read(d, &now, n, sizeof now);
    return now.squares;
}

void vec_check_finite(dev *d, const float *x, int64_t n) {
    backend_of(d)->check_finite(d, x, n);
}

void vec_norm_add_fixed(dev *d, const vec_spans *s, const int64_t *x) {
    vec_norm *n = norm_of(d);
    if (n) backend_of(d)->norm_add_fixed(d, s, x, n);
}

void vec_norm_limbs(dev *d, int64_t limb[VEC_LIMBS]) {
    vec_norm *n = norm_of(d), now = {.squares = 0};
    uint64_t carry = 0;
    if (n) dev_read(d, &now, n, sizeof now);
    for (int i = 0; i < VEC_LIMBS; i++) {
        carry += now.limb[i];
        limb[i] = (int64_t)(carry & 0xffffffffu);
        carry >>= 32;
    }
}

void vec_sum_squares_fixed(dev *d, const vec_spans *s, const int64_t *x, int64_t limb[VEC_LIMBS]) {
    vec_norm_begin(d);
    vec_norm_add_fixed(d, s, x);
    vec_norm_limbs(d, limb);
}

double vec_limbs_value(const int64_t limb[VEC_LIMBS]) {
    uint32_t digit[VEC_LIMBS];
    uint64_t carry = 0;
    for (int i = 0; i < VEC_LIMBS; i++) {
        carry += (uint64_t)limb[i];
        digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    CHECK(carry == 0, "a sum of squares is beyond %d limbs", VEC_LIMBS);
    double value = 0;
    for (int i = VEC_LIMBS - 1; i >= 0; i--) value = value * 0x1p32 + digit[i];
    return ldexp(value, -2 * FIXED_GRAD_BITS);
}

uint64_t vec_digest(dev *d, const vec_spans *s, const float *x) {
    return backend_of(d)->digest(d, s, x);
}

void vec_draw(dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy) {
    backend_of(d)->draw(d, s, rule, x, copy);
}

void vec_round(dev *d, const vec_spans *s, const float *x, uint16_t *copy) {
    backend_of(d)->round(d, s, x, copy);
}

void vec_add(dev *d, void *to, const void *from, int64_t n, dtype dt) {
    CHECK(dt == DT_F32 || dt == DT_I64, "no sums of arrays of %s", dtype_name(dt));
    backend_of(d)->add(d, to, from, n, dt);
}
