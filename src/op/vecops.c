/* Chooses the instruction set's variant of each whole-buffer operation. */
#include "op/vecops.h"

#include "op/cpu/tables.h"

void vec_update_adamw(const dev *d, const adamw_args *a) {
    cpu_kernels_of(dev_isa(d))->adamw(dev_threads(d), a);
}

double vec_sum_squares(const dev *d, const float *x, int64_t n) {
    return cpu_kernels_of(dev_isa(d))->sum_squares(dev_threads(d), x, n);
}

bool vec_all_finite(const dev *d, const float *x, int64_t n) {
    return cpu_kernels_of(dev_isa(d))->all_finite(dev_threads(d), x, n);
}

void vec_scale(const dev *d, float *x, int64_t n, float by) {
    cpu_kernels_of(dev_isa(d))->scale(dev_threads(d), x, n, by);
}
