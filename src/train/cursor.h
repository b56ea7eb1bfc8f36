/* Where a run is: how many steps are finished, and what they took. Which samples come next follows
 * from the step (course/course.h). execute_advance moves it; loading a checkpoint sets it
 * (save/state.c). */
#ifndef TRAIN_CURSOR_H
#define TRAIN_CURSOR_H

#include <math.h>
#include <stdint.h>

typedef struct cursor {
    int64_t step;    /* finished optimizer steps */
    uint64_t tokens; /* of these steps */
    double seconds;  /* spent in steps, over all parts of the run */
    double val_loss; /* validation after this step; NaN: there was none. Not in cursor.json */
} cursor;

static inline cursor cursor_start(void) {
    return (cursor){.val_loss = NAN};
}

#endif
