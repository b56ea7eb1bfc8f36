/* AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). The arithmetic
 * is in op/vecops.h. */
#include <math.h>

#include "op/vecops.h"
#include "optim/optim.h"

static void adamw_update(dev *d, const param_store *s, int unit, const bool *decay,
                         float *const *state, const optim_hyper *h, uint64_t *digest) {
    param_piece k = param_piece_of(s, unit);
    bool fixed = param_grads_are_fixed(s);
    adamw_args a = {.param = k.master,
                    .m = state[0] + k.state,
                    .v = state[1] + k.state,
                    .grad = fixed ? NULL : k.grad,
                    .grad_fixed = fixed ? k.grad : NULL,
                    .param_bf16 = k.work,
                    .decay = decay,
                    .lr = (float)h->lr,
                    .beta1 = (float)h->beta1,
                    .beta2 = (float)h->beta2,
                    .eps = (float)h->eps,
                    .weight_decay = (float)h->weight_decay,
                    .correction1 = (float)(1.0 - pow(h->beta1, (double)h->step)),
                    .correction2 = (float)(1.0 - pow(h->beta2, (double)h->step)),
                    .grad_scale = h->grad_scale};
    vec_update_adamw(d, k.spans, &a, digest);
}

const optim_class optim_adamw = {
    .name = "adamw", .n_states = 2, .state_names = {"m", "v"}, .update = adamw_update};
