/* Adafactor's update of one tensor (Shazeer & Stern 2018, algorithms 4 and 5; as in T5 and
 * transformers). The mean squares of a matrix [R,C] are kept as R means over rows and C means over
 * columns; of a vector, element by element. With g = grad * grad_scale and k = keep:
 *
 *   row_i = k row_i + (1 - k) (mean_j g_ij^2 + eps)      col_j = k col_j + (1 - k) (mean_i g_ij^2 + eps)
 *   u_ij  = g_ij / sqrt(row_i / mean(row) * col_j)
 *   u     = u / max(1, rms(u) / clip)
 *   rate  = lr * max(eps_scale, rms(p)), or lr
 *   p     = p - rate * weight_decay * p - rate * u
 *
 * The whole tensor must be there: its sums are not over ranks. Sums are in double and in a fixed
 * order, so that bits depend on neither threads nor instruction set. 16 FLOPs and 22 bytes an
 * element: gradients are read four times, parameters twice. */
#ifndef OP_FACTORED_H
#define OP_FACTORED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "dev/dev.h"
#include "op/factored_rule.h"

typedef struct factored_args {
    int64_t rows, cols;        /* of a vector: 1, and its length */
    float *param;              /* [R,C] */
    const float *grad;         /* [R,C] */
    const int64_t *grad_fixed; /* replaces grad (op/fixed.h) */
    uint16_t *param_copy;      /* [R,C] new parameters, rounded to copy_dt; NULL: none */
    dtype copy_dt;
    float *row, *col; /* [R], [C]; row NULL: a vector, whose mean squares are col */
    factored_rule rule;
    float grad_scale;
    const float *grad_scale_at; /* replaces it; a NaN there: nothing changes */
} factored_args;

/* In the order of calls. */
void factored_update(dev *d, const factored_args *a);
/* The same on a CUDA device: cuda/factored.cu. Private to the module. */
void factored_update_cuda(dev *d, const factored_args *a);

#endif
