#include "step/step.h"

step_table step_build_accumulation(arena *a, int micro_batches) {
    int n = 2 * micro_batches + 1;
    step_table t = {.entry = ARENA_ARRAY(a, step_entry, n),
                    .n = n,
                    .micro_batches = micro_batches,
                    .frames_in_flight = 1};
    for (int i = 0; i < micro_batches; i++) {
        t.entry[2 * i] = (step_entry){STEP_FORWARD, 0, i};
        t.entry[2 * i + 1] = (step_entry){STEP_BACKWARD, 0, i};
    }
    t.entry[n - 1] = (step_entry){STEP_OPTIMIZER, 0, 0};
    return t;
}
