/* Where a run is: after which step, and what it took to get there. Which samples come next follows
 * from the step (course/course.h). Moved by execute_advance, set by what is loaded (save/state.c). */
#ifndef TRAIN_CURSOR_H
#define TRAIN_CURSOR_H

#include <math.h>
#include <stdint.h>

typedef struct cursor {
    int64_t step;    /* finished optimizer steps */
    uint64_t tokens; /* that they were trained on */
    double seconds;  /* spent in steps, over all parts of the run */
    double val_loss; /* after this very step; NaN: it was not validated. Not saved in cursor.json */
} cursor;

static inline cursor cursor_start(void) {
    return (cursor){.val_loss = NAN};
}

#endif
