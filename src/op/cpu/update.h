/* What the kernels of VEC_UPDATES share: the walk over a piece of the flat arrays. A kernel says
 * what one vector becomes. */
#ifndef OP_CPU_UPDATE_H
#define OP_CPU_UPDATE_H

#include "op/cpu/simd.h"
#include "op/cpu/variant.h"
#include "op/vecops.h"

/* Elements at .. at + n - 1 of the flat arrays, of which grad[0..n) are the gradients and state[k][0..n) the
 * states; copies of the new parameters are stored as copy_dt says (f32: none are). */
typedef void (*update_piece)(const vec_update_args *a, bool decay, const float *grad,
                             float *const *state, dtype copy_dt, int64_t at, int64_t n);

#define UPDATE_PIECE(ID, name)                                                                     \
    void CPU_FN(update_##name)(const vec_update_args *a, bool decay, const float *grad,            \
                               float *const *state, dtype copy_dt, int64_t at, int64_t n);
VEC_UPDATES(UPDATE_PIECE)
#undef UPDATE_PIECE

/* Returns the new parameters and writes the states. `consts` are the kernel's. */
typedef vf (*update_vector)(const void *consts, vf p, vf *state, vf g);

V_INLINE void update_walk(const vec_update_args *a, int states, update_vector one,
                          const void *consts, const float *grad, float *const *state, dtype copy_dt,
                          int64_t at, int64_t n) {
    uint16_t *copy = copy_dt == DT_F32 ? NULL : a->param_copy + at;
    float *param = a->param + at;
    vf s[VEC_MAX_STATES];
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        for (int k = 0; k < states; k++) s[k] = v_load(state[k] + i);
        vf p = one(consts, v_load(param + i), s, v_load(grad + i));
        for (int k = 0; k < states; k++) v_store(state[k] + i, s[k]);
        v_store(param + i, p);
        if (copy) v_store_16(copy + i, p, copy_dt);
    }
    if (i >= n) return;
    int64_t left = n - i;
    for (int k = 0; k < states; k++) s[k] = v_get_n(state[k], i, left, DT_F32);
    vf p = v_get_n(param, i, left, DT_F32), g = v_get_n(grad, i, left, DT_F32);
    p = one(consts, p, s, g);
    for (int k = 0; k < states; k++) v_put_n(state[k], i, s[k], left, DT_F32);
    v_put_n(param, i, p, left, DT_F32);
    if (copy) v_put_n(copy, i, p, left, copy_dt);
}

#endif
