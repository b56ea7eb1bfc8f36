/* What the trainer does to whole parameter and gradient buffers: optimizer update, norm, checks.
 * Memory-bound, parallel; the same bits whatever the number of threads. */
#ifndef OP_VECOPS_H
#define OP_VECOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/dev.h"

/* One step of AdamW with decoupled decay (Loshchilov & Hutter 2019) over n elements:
 *   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   p = p - lr * weight_decay * p - lr * (m / correction1) / (sqrt(v / correction2) + eps)
 * where correction_i = 1 - beta_i^step. 16 bytes read and 12 (bf16 copy: 14) written per element.
 */
typedef struct adamw_args {
    float *param, *m, *v;
    const float *grad;
    uint16_t *param_bf16; /* rounded copy of the new parameters, or NULL */
    int64_t n;
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2;
    float grad_scale;
} adamw_args;

void vec_update_adamw(const dev *d, const adamw_args *a);
/* Sum of x^2 in double. */
double vec_sum_squares(const dev *d, const float *x, int64_t n);
/* No NaN and no infinity. */
bool vec_all_finite(const dev *d, const float *x, int64_t n);
void vec_scale(const dev *d, float *x, int64_t n, float by);

#endif
