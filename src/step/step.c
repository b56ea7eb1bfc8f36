#include "step/step.h"

#include "step/walk.h"

step_table step_build_accumulation(arena *a, const param_store *s, const prog *p, int micro_batches,
                                   bool reduces) {
    step_table t = {.micro_batches = micro_batches, .frames_in_flight = 1};
    walk *w = walk_new(a, s, p, &t);
    for (int m = 0; m < micro_batches; m++) {
        bool last = m == micro_batches - 1;
        walk_pass(w, m, reduces && (last || param_grads_in_slots(s)), last);
    }
    walk_settle(w);
    step_append(a, &t, (step_entry){.action = STEP_OPTIMIZER});
    return t;
}

step_table step_build_pass(arena *a, const param_store *s, const prog *p) {
    step_table t = {.micro_batches = 1, .frames_in_flight = 1};
    walk *w = walk_new(a, s, p, &t);
    walk_pass(w, 0, false, false);
    walk_settle(w);
    return t;
}
