/* Blocks of spans, and the choice of the instruction set's variant of each operation. */
#include "op/vecops.h"

#include <math.h>

#include "op/cpu/tables.h"

void vec_spans_index(vec_spans *s) {
    s->elems = s->blocks = 0;
    for (int i = 0; i < s->n; i++) {
        vec_span *p = &s->item[i];
        p->first_block = s->blocks;
        s->blocks += (p->n + VEC_BLOCK - 1) / VEC_BLOCK;
        s->elems += p->n;
    }
}

void vec_update_adamw(const dev *d, const vec_spans *s, const adamw_args *a, uint64_t *digest) {
    cpu_kernels_of(dev_isa(d))->adamw(dev_threads(d), s, a, digest);
}

double vec_sum_squares(const dev *d, const vec_spans *s, const float *x) {
    return cpu_kernels_of(dev_isa(d))->sum_squares(dev_threads(d), s, x);
}

void vec_sum_squares_fixed(const dev *d, const vec_spans *s, const int64_t *x,
                           int64_t limb[VEC_LIMBS]) {
    cpu_kernels_of(dev_isa(d))->sum_squares_fixed(dev_threads(d), s, x, limb);
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

uint64_t vec_digest(const dev *d, const vec_spans *s, const float *x) {
    return cpu_kernels_of(dev_isa(d))->digest(dev_threads(d), s, x);
}

void vec_draw(const dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *x_bf16) {
    cpu_kernels_of(dev_isa(d))->draw(dev_threads(d), s, rule, x, x_bf16);
}

void vec_round(const dev *d, const vec_spans *s, const float *x, uint16_t *x_bf16) {
    cpu_kernels_of(dev_isa(d))->round(dev_threads(d), s, x, x_bf16);
}
