/* What a step does to whole arrays: update, norm, digest. */
#include "op/cpu/parts.h"

#include "op/cpu/spans.h"
#include "op/cpu/update.h"

#define PIECE_OF(ID, name) [VEC_##ID] = CPU_FN(update_##name),
static const update_piece pieces[VEC_UPDATE_KINDS] = {VEC_UPDATES(PIECE_OF)};
#undef PIECE_OF

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
static uint64_t update_block(const vec_update_args *a, span_block b, bool digest) {
    enum { PIECE = 1 << 10 };
    float made[PIECE];
    bool decay = a->decay[b.span->owner];
    dtype copy_dt = a->param_copy ? b.span->copy_dt : DT_F32;
    uint64_t sum = 0;
    for (int64_t i = b.first; i < b.first + b.n; i += PIECE) {
        int64_t left = b.first + b.n - i, n = left < PIECE ? left : PIECE, at = b.span->at + i;
        if (a->grad_fixed) CPU_FN(vec_unfix)(a->grad_fixed + at, made, n);
        const float *grad = a->grad_fixed ? made : a->grad + at;
        pieces[a->kind](a, decay, grad, copy_dt, at, n);
        if (digest) sum += span_digest(b.span, a->param, i, i + n);
    }
    return sum;
}

void CPU_FN(vec_update)(int threads, const vec_spans *s, const vec_update_args *a,
                        uint64_t *digest) {
    uint64_t sum = 0;
#pragma omp parallel for num_threads(span_share(s, threads)) schedule(static) reduction(+ : sum)
    for (int64_t b = 0; b < s->blocks; b++)
        sum += update_block(a, span_find_block(s, b), digest != NULL);
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
