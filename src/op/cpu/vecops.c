/* What a step does to whole arrays: update, norm, digest. */
#include "op/cpu/parts.h"

#include "op/cpu/draws.h"
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

enum { PIECE = 1 << 10 };

/* The states of one piece, in fp32. */
typedef struct wide_states {
    float x[NARROW_STATES][PIECE];
} wide_states;

static void widen(const vec_update_args *a, int64_t at, int64_t n, wide_states *w) {
    for (int k = 0; k < NARROW_STATES; k++) {
        const uint16_t *from = a->narrow[k] + at;
        int64_t i = 0;
        for (; i + VW <= n; i += VW) v_store(w->x[k] + i, v_load_bf16(from + i));
        if (i < n) v_put_n(w->x[k], i, v_get_n(from, i, n - i, DT_BF16), n - i, DT_F32);
    }
}

/* n states, bits[0..n) of their elements; the 16 from `shift` on are this state's. */
static void round_states(const float *x, const uint32_t *bits, int shift, uint16_t *to, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        to[i] = narrow_round(u, bits[i] >> shift & 0xffffu);
    }
}

/* Elements first .. first + n - 1 of the wide states, which are elements at .. of the flat arrays. Their
 * whole indices follow each other from `whole` on. */
static void narrow_run(const vec_update_args *a, rng_key key, const wide_states *w, int64_t first,
                       uint64_t whole, int64_t at, int64_t n) {
    uint32_t bits[DRAW_BITS];
    int64_t skip = (int64_t)(whole & 3); /* bits of the first block that are of earlier elements */
    for (int64_t i = 0, m; i < n; i += m, skip = 0) {
        m = n - i < DRAW_BITS - skip ? n - i : DRAW_BITS - skip;
        draw_blocks(key, (whole + (uint64_t)i) >> 2, bits);
        for (int k = 0; k < NARROW_STATES; k++)
            round_states(w->x[k] + first + i, bits + skip, 16 * k, a->narrow[k] + at + i, m);
    }
}

/* Elements i .. end - 1 of a span. */
static void narrow(const vec_update_args *a, const vec_span *s, const wide_states *w, int64_t i,
                   int64_t end) {
    rng_key key = key_of_stream(a->draws, s->name);
    for (int64_t first = 0; i < end;) {
        span_piece p = span_piece_at(s, i, end);
        narrow_run(a, key, w, first, (uint64_t)p.whole, s->at + i, p.n);
        first += p.n, i += p.n;
    }
}

/* Where the kernel finds the states of a piece. */
static void find_states(const vec_update_args *a, int64_t at, int64_t n, wide_states *w,
                        float *state[VEC_MAX_STATES]) {
    bool wide = a->narrow[0] != NULL;
    if (wide) widen(a, at, n, w);
    for (int k = 0; k < VEC_MAX_STATES; k++)
        state[k] = wide && k < NARROW_STATES ? w->x[k] : a->state[k] ? a->state[k] + at : NULL;
}

/* Piece by piece, so that the digest reads new parameters from the nearest cache. */
static uint64_t update_block(const vec_update_args *a, span_block b, bool digest) {
    float made[PIECE], *state[VEC_MAX_STATES];
    wide_states w;
    bool decay = a->decay[b.span->owner];
    dtype copy_dt = a->param_copy ? b.span->copy_dt : DT_F32;
    uint64_t sum = 0;
    for (int64_t i = b.first; i < b.first + b.n; i += PIECE) {
        int64_t left = b.first + b.n - i, n = left < PIECE ? left : PIECE, at = b.span->at + i;
        if (a->grad_fixed) CPU_FN(vec_unfix)(a->grad_fixed + at, made, n);
        const float *grad = a->grad_fixed ? made : a->grad + at;
        find_states(a, at, n, &w, state);
        pieces[a->kind](a, decay, grad, state, copy_dt, at, n);
        if (a->narrow[0]) narrow(a, b.span, &w, i, i + n);
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
