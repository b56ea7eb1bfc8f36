/* AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). The arithmetic
 * is in op/vecops.h. */
#include <math.h>

#include "op/vecops.h"
#include "optim/optim.h"

static void adamw_update(dev *d, const param_store *s, const bool *decay, float *const *state,
                         const optim_hyper *h) {
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        bool copied = param_work(s) && p->rank == 2;
        adamw_args a = {.param = param_master(s) + p->offset,
                        .m = state[0] + p->offset,
                        .v = state[1] + p->offset,
                        .grad = param_grad(s) + p->offset,
                        .param_bf16 = copied ? (uint16_t *)param_work(s) + p->offset : NULL,
                        .n = param_elems(p),
                        .lr = (float)h->lr,
                        .beta1 = (float)h->beta1,
                        .beta2 = (float)h->beta2,
                        .eps = (float)h->eps,
                        .weight_decay = decay[i] ? (float)h->weight_decay : 0.0f,
                        .correction1 = (float)(1.0 - pow(h->beta1, (double)h->step)),
                        .correction2 = (float)(1.0 - pow(h->beta2, (double)h->step)),
                        .grad_scale = h->grad_scale};
        vec_update_adamw(d, &a);
    }
}

const optim_class optim_adamw = {
    .name = "adamw", .n_states = 2, .state_names = {"m", "v"}, .update = adamw_update};
