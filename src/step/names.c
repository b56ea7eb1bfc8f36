/* Names of entries, for reports: of those in which a rank computes. A transfer is named by its
 * caller (comm_call.what). */
#include "step/step.h"

/* "layers 2 to 3", or what the first op outside of them is called. */
static const char *name_ops(arena *a, const prog *p, int first, int end) {
    int low = -1, high = -1;
    for (int i = first; i < end; i++) {
        int block = prog_get_op(p, i).block;
        if (block < 0) continue;
        if (low < 0 || block < low) low = block;
        if (block > high) high = block;
    }
    if (low < high) return arena_printf(a, "layers %d to %d", low, high);
    if (low >= 0) return arena_printf(a, "layer %d", low);
    const char *name = prog_get_op(p, first).name;
    return *name ? name : "what is outside of the layers";
}

static const char *name_entry(arena *a, const step_entry *t, const prog *p) {
    const char *what;
    switch (t->action) {
        case STEP_FILL: what = "the inputs"; break;
        case STEP_FORWARD:
            what = t->model ? "forward of another model"
                            : arena_printf(a, "forward of %s", name_ops(a, p, t->first, t->end));
            break;
        case STEP_BACKWARD:
            what = arena_printf(a, "backward of %s", name_ops(a, p, t->first, t->end));
            break;
        case STEP_PASS_ON:
        case STEP_PASS_BACK: what = "what chunks of layers pass on"; break;
        case STEP_LOSS: what = "the loss"; break;
        case STEP_OPTIMIZER: return "the optimizer";
        default: return NULL;
    }
    return arena_printf(a, "%s, micro-batch %d,", what, t->micro_batch);
}

void step_name_entries(arena *a, step_table *t, const step_parts *parts) {
    for (int i = 0; i < t->n; i++) {
        step_entry *e = &t->entry[i];
        e->name = name_entry(a, e, step_prog_of(parts, e));
    }
}
