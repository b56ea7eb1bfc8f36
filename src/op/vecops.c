/* Blocks of spans, and the choice of the instruction set's variant of each operation. */
#include "op/vecops.h"

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

uint64_t vec_digest(const dev *d, const vec_spans *s, const float *x) {
    return cpu_kernels_of(dev_isa(d))->digest(dev_threads(d), s, x);
}

void vec_draw(const dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *x_bf16) {
    cpu_kernels_of(dev_isa(d))->draw(dev_threads(d), s, rule, x, x_bf16);
}

void vec_round(const dev *d, const vec_spans *s, const float *x, uint16_t *x_bf16) {
    cpu_kernels_of(dev_isa(d))->round(dev_threads(d), s, x, x_bf16);
}
