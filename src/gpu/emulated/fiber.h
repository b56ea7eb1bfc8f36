/* Fibers: several stacks on one thread of the host, one of which runs. */
#ifndef GPU_EMULATED_FIBER_H
#define GPU_EMULATED_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FIBER_STACK_BYTES = 64 << 10 };

typedef struct fiber {
    void *at;     /* where it goes on */
    char *stack;  /* NULL: has none yet, or the stack of the host's thread */
    bool started; /* `at` says where it goes on */
    void *asan;   /* what the address sanitizer keeps of a stack that is left */
} fiber;

/* Leaves `from` and goes on in `to`, which begins with `run(arg)` if it has not started. `run` never
 * returns: it leaves by fiber_switch for good. */
void fiber_switch(fiber *from, fiber *to, void (*run)(void *), void *arg);
void fiber_free(fiber *f);

#endif
