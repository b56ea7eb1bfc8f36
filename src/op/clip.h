/* What clipping the global norm of gradients makes of them, for the C compiler and for nvcc. */
#ifndef OP_CLIP_H
#define OP_CLIP_H

#include <math.h>

#ifdef __CUDACC__
#define CLIP_FN static __device__ __forceinline__
#else
#define CLIP_FN static inline
#endif

/* Brings a norm down to `most` (0: any norm is good): min(1, most / (norm + 1e-6)), as PyTorch does. */
CLIP_FN double clip_factor(double norm, double most) {
    double factor = most / (norm + 1e-6);
    return most > 0 && factor < 1.0 ? factor : 1.0;
}

/* By what an update multiplies gradients that are grads_scale times too large; NaN where their norm is
 * not finite. squares: of the gradients as they are. */
CLIP_FN float clip_scale(double squares, double most, double grads_scale) {
    double norm = sqrt(squares) / grads_scale, nan = norm - norm;
    return nan == 0.0 ? (float)(clip_factor(norm, most) / grads_scale) : (float)nan;
}

#endif
