/* AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2). The arithmetic
 * is in op/vecops.h. */
#include <math.h>

#include "optim/optim.h"

static void adamw_update(dev *d, const param_store *s, const optim_part *part, const bool *decay,
                         const optim_hyper *h, uint64_t *digest) {
    vec_update_args a = optim_update_args(s, part, decay, h);
    a.kind = VEC_ADAMW;
    a.correction1 = (float)(1.0 - pow(h->beta1, (double)h->step));
    a.correction2 = (float)(1.0 - pow(h->beta2, (double)h->step));
    vec_update(d, part->spans, &a, digest);
}

const optim_class optim_adamw = {.name = "adamw",
                                 .n_states = 2,
                                 .state_names = {"m", "v"},
                                 .narrow = true,
                                 .update = adamw_update};
