/* What a step does to whole arrays: update, norm, digest. */
#include "op/cpu/vecops_impl.h"

#include "op/cpu/spans.h"

typedef struct adamw_consts {
    vf keep1, keep2, add1, add2, grad_scale, decay, step, root, eps;
} adamw_consts;

static adamw_consts make_consts(const adamw_args *a) {
    double root = 1.0 / __builtin_sqrt((double)a->correction2);
    return (adamw_consts){
        .keep1 = v_set1(a->beta1),
        .keep2 = v_set1(a->beta2),
        .add1 = v_set1(1.0f - a->beta1),
        .add2 = v_set1(1.0f - a->beta2),
        .grad_scale = v_set1(a->grad_scale),
        .decay = v_set1(1.0f - a->lr * a->weight_decay),
        .step = v_set1(a->lr / a->correction1),
        .root = v_set1((float)root),
        .eps = v_set1(a->eps),
    };
}

V_INLINE vf update_adamw(const adamw_consts *k, vf p, vf *m, vf *v, vf g) {
    g *= k->grad_scale;
    *m = v_fma(k->keep1, *m, k->add1 * g);
    *v = v_fma(k->keep2, *v, k->add2 * g * g);
    return p * k->decay - k->step * *m / (v_sqrt(*v) * k->root + k->eps);
}

/* Elements at .. at + n - 1 of the flat arrays, of which grad[0..n) are the gradients; copy may be
 * NULL. */
static void update_some(const adamw_args *a, const adamw_consts *k, const float *grad,
                        uint16_t *copy, int64_t at, int64_t n) {
    float *am = a->m + at, *av = a->v + at, *ap = a->param + at;
    int64_t i = 0;
    if (copy) copy += at;
    for (; i + VW <= n; i += VW) {
        vf m = v_load(am + i), v = v_load(av + i);
        vf p = update_adamw(k, v_load(ap + i), &m, &v, v_load(grad + i));
        v_store(am + i, m);
        v_store(av + i, v);
        v_store(ap + i, p);
        if (copy) v_store_bf16(copy + i, p);
    }
    if (i >= n) return;
    int64_t left = n - i;
    vf m = v_get_n(am, i, left, DT_F32), v = v_get_n(av, i, left, DT_F32);
    vf p = v_get_n(ap, i, left, DT_F32), g = v_get_n(grad, i, left, DT_F32);
    p = update_adamw(k, p, &m, &v, g);
    v_put_n(am, i, m, left, DT_F32);
    v_put_n(av, i, v, left, DT_F32);
    v_put_n(ap, i, p, left, DT_F32);
    if (copy)
        for (int64_t j = i; j < n; j++) copy[j] = f32_to_bf16(ap[j]);
}

/* Elements x[0..n), of which the first has index `first` in the whole tensor. */
static inline uint64_t piece_digest(uint64_t name, int64_t first, const float *x, int64_t n) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        sum += mix64(name ^ mix64((uint64_t)(first + i) ^ (uint64_t)bits << 32));
    }
    return sum;
}

/* Elements i .. end - 1 of a span; x is the flat array. */
static uint64_t span_digest(const vec_span *s, const float *x, int64_t i, int64_t end) {
    uint64_t sum = 0;
    while (s->counted && i < end) {
        span_piece p = span_piece_at(s, i, end);
        sum += piece_digest(s->name, p.whole, x + s->at + i, p.n);
        i += p.n;
    }
    return sum;
}

/* Piece by piece, so that the digest reads new parameters from the nearest cache. */
static uint64_t update_block(const adamw_args *a, adamw_consts k, span_block b, bool digest) {
    enum { PIECE = 1 << 10 };
    float made[PIECE];
    if (!a->decay[b.span->owner]) k.decay = v_set1(1.0f);
    uint16_t *copy = b.span->copied ? a->param_bf16 : NULL;
    uint64_t sum = 0;
    for (int64_t i = b.first; i < b.first + b.n; i += PIECE) {
        int64_t left = b.first + b.n - i, n = left < PIECE ? left : PIECE, at = b.span->at + i;
        if (a->grad_fixed) CPU_FN(vec_unfix)(a->grad_fixed + at, made, n);
        update_some(a, &k, a->grad_fixed ? made : a->grad + at, copy, at, n);
        if (digest) sum += span_digest(b.span, a->param, i, i + n);
    }
    return sum;
}

void CPU_FN(vec_adamw)(int threads, const vec_spans *s, const adamw_args *a, uint64_t *digest) {
    adamw_consts k = make_consts(a);
    uint64_t sum = 0;
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static) reduction(+ : sum)
    for (int64_t b = 0; b < s->blocks; b++)
        sum += update_block(a, k, span_find_block(s, b), digest != NULL);
    if (digest) *digest = sum;
}

/* In double, with 16 running sums whatever the vector width. */
static double block_squares(const float *x, int64_t n) {
    double s[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++) s[j] += s[j + w];
    return s[0];
}

/* Blocks are added to their span's sum, spans to the total. */
double CPU_FN(vec_sum_squares)(int threads, const vec_spans *s, const float *x) {
    enum { AT_ONCE = 4096 }; /* block sums that exist at a time */
    double total = 0.0, span = 0.0, sums[AT_ONCE];
    for (int64_t b0 = 0; b0 < s->blocks; b0 += AT_ONCE) {
        int64_t end = s->blocks - b0 < AT_ONCE ? s->blocks : b0 + AT_ONCE;
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static)
        for (int64_t b = b0; b < end; b++) {
            span_block k = span_find_block(s, b);
            sums[b - b0] = k.span->counted ? block_squares(x + k.span->at + k.first, k.n) : 0.0;
        }
        for (int64_t b = b0; b < end; b++) {
            if (span_find_block(s, b).first == 0) total += span, span = 0.0;
            span += sums[b - b0];
        }
    }
    return total + span;
}

uint64_t CPU_FN(vec_digest)(int threads, const vec_spans *s, const float *x) {
    uint64_t sum = 0;
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static) reduction(+ : sum)
    for (int64_t b = 0; b < s->blocks; b++) {
        span_block k = span_find_block(s, b);
        sum += span_digest(k.span, x, k.first, k.first + k.n);
    }
    return sum;
}
