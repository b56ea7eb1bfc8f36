/* What a step of the deterministic mode does to whole arrays of gradients in fixed point. */
#include "op/cpu/spans.h"
#include "op/cpu/parts.h"
#include "op/cpu/wide.h"

void CPU_FN(vec_unfix)(const int64_t *x, float *out, int64_t n) {
    int64_t i = 0;
    for (; i + VQ_LANES <= n; i += VQ_LANES) {
        vf_half f = float_from_fixed(vs_load(x + i));
        memcpy(out + i, &f, sizeof f);
    }
    if (i >= n) return;
    int64_t rest[VQ_LANES] = {0};
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *rest);
    vf_half f = float_from_fixed(vs_load(rest));
    memcpy(out + i, &f, (size_t)(n - i) * sizeof *out);
}

/* Sums of the 32-bit digits of squares, one column a digit. A block is short enough for a lane. */
typedef struct digits {
    vq column[4];
} digits;

/* With |x| = h * 2^32 + l: x^2 = h^2 * 2^64 + 2 h l * 2^32 + l^2. */
V_INLINE void add_square(digits *d, vs x) {
    const vq low = (vq){0} + 0xffffffffu;
    vs sign = x >> 63;
    vq l = (vq)(x ^ sign) - (vq)sign, h = l >> 32;
    vq ll = vq_multiply_low(l, l), hl = vq_multiply_low(h, l), hh = vq_multiply_low(h, h);
    d->column[0] += ll & low;
    d->column[1] += (ll >> 32) + ((hl & low) << 1);
    d->column[2] += ((hl >> 32) << 1) + (hh & low);
    d->column[3] += hh >> 32;
}

typedef struct limbs {
    uint64_t item[VEC_LIMBS];
} limbs;

static void carry(limbs *s) {
    for (int i = 0; i + 1 < VEC_LIMBS; i++) {
        s->item[i + 1] += s->item[i] >> 32;
        s->item[i] &= 0xffffffffu;
    }
}

static void add_block(limbs *s, const int64_t *x, int64_t n) {
    digits d = {0};
    int64_t i = 0;
    for (; i + VQ_LANES <= n; i += VQ_LANES) add_square(&d, vs_load(x + i));
    if (i < n) {
        int64_t rest[VQ_LANES] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof *rest);
        add_square(&d, vs_load(rest));
    }
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < VQ_LANES; j++) s->item[k] += d.column[k][j];
    carry(s);
}

void CPU_FN(vec_sum_squares_fixed)(int threads, const vec_spans *s, const int64_t *x,
                                   int64_t limb[VEC_LIMBS]) {
    limbs all = {0};
#pragma omp parallel num_threads(span_share(s, threads))
    {
        limbs mine = {0};
#pragma omp for schedule(static)
        for (int64_t b = 0; b < s->blocks; b++) {
            span_block k = span_find_block(s, b);
            if (k.span->counted) add_block(&mine, x + k.span->at + k.first, k.n);
        }
#pragma omp critical(sum_squares_fixed)
        {
            for (int i = 0; i < VEC_LIMBS; i++) all.item[i] += mine.item[i];
            carry(&all);
        }
    }
    for (int i = 0; i < VEC_LIMBS; i++) limb[i] = (int64_t)all.item[i];
}
