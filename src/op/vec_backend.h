/* What a kind of device brings for op/vecops.h, whose calls come here: the members do what that file
 * says of the calls of these names. Private to the module. */
#ifndef OP_VEC_BACKEND_H
#define OP_VEC_BACKEND_H

#include "op/vecops.h"

/* On the device: what vec_norm_add or vec_norm_add_fixed has summed, and what vec_norm_end makes of it. */
typedef struct vec_norm {
    double squares;
    float scale, reserved;
    uint64_t limb[VEC_LIMBS];
} vec_norm;

typedef struct vec_backend {
    void (*update)(dev *d, const vec_spans *s, const vec_update_args *a, uint64_t *digest);
    double (*sum_squares)(dev *d, const vec_spans *s, const float *x);
    void (*norm_add)(dev *d, const vec_spans *s, const float *x, vec_norm *to);
    void (*norm_end)(dev *d, double clip_norm, double grads_scale, vec_norm *to);
    void (*check_finite)(dev *d, const float *x, int64_t n);
    void (*norm_add_fixed)(dev *d, const vec_spans *s, const int64_t *x, vec_norm *to);
    uint64_t (*digest)(dev *d, const vec_spans *s, const float *x);
    void (*draw)(dev *d, const vec_spans *s, const vec_rule *rule, float *x, uint16_t *copy);
    void (*round)(dev *d, const vec_spans *s, const float *x, uint16_t *copy);
    void (*add)(dev *d, void *to, const void *from, int64_t n, dtype dt);
} vec_backend;

extern const vec_backend vec_backend_cuda; /* cuda/vecops.cu */

#endif
