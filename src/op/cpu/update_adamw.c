/* AdamW. Formula and bytes: op/vecops.h; 12 FLOPs per element, a root and a quotient among them. */
#include "op/cpu/update.h"

typedef struct adamw_consts {
    vf keep1, keep2, add1, add2, grad_scale, decay, step, root, eps;
} adamw_consts;

static adamw_consts make_consts(const vec_update_args *a, bool decay) {
    double root = 1.0 / __builtin_sqrt((double)a->correction2);
    return (adamw_consts){
        .keep1 = v_set1(a->beta1),
        .keep2 = v_set1(a->beta2),
        .add1 = v_set1(1.0f - a->beta1),
        .add2 = v_set1(1.0f - a->beta2),
        .grad_scale = v_set1(a->grad_scale),
        .decay = v_set1(decay ? 1.0f - a->lr * a->weight_decay : 1.0f),
        .step = v_set1(a->lr / a->correction1),
        .root = v_set1((float)root),
        .eps = v_set1(a->eps),
    };
}

V_INLINE vf update(const void *consts, vf p, vf *state, vf g) {
    const adamw_consts *k = consts;
    vf *m = &state[0], *v = &state[1];
    g *= k->grad_scale;
    *m = v_fma(k->keep1, *m, k->add1 * g);
    *v = v_fma(k->keep2, *v, k->add2 * g * g);
    return p * k->decay - k->step * *m / (v_sqrt(*v) * k->root + k->eps);
}

void CPU_FN(update_adamw)(const vec_update_args *a, bool decay, const float *grad,
                          float *const *state, dtype copy_dt, int64_t at, int64_t n) {
    adamw_consts k = make_consts(a, decay);
    update_walk(a, 2, update, &k, grad, state, copy_dt, at, n);
}
