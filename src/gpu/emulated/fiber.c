/* A fiber begins by ucontext and is switched by setjmp, which leaves the signal mask alone: a system
 * call per switch would be most of an emulated kernel's time. */
#include "gpu/emulated/fiber.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

typedef struct start {
    void (*run)(void *);
    void *arg;
} start;

static _Thread_local start next_start;

static void begin(void) {
#if FIBER_ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    start s = next_start;
    s.run(s.arg);
    abort(); /* run never returns */
}

static void give_stack(fiber *f) {
    /* A page before the stack catches what runs over it. */
    size_t bytes = FIBER_STACK_BYTES + 4096;
    f->stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(f->stack != MAP_FAILED, "no memory for the stack of an emulated thread");
    CHECK(mprotect(f->stack, 4096, PROT_NONE) == 0, "a stack cannot be fenced");
    f->stack += 4096;
}

static void enter_new(fiber *f, void (*run)(void *), void *arg) {
    if (!f->stack) give_stack(f);
    ucontext_t c;
    getcontext(&c);
    c.uc_stack.ss_sp = f->stack;
    c.uc_stack.ss_size = FIBER_STACK_BYTES;
    c.uc_link = NULL;
    next_start = (start){run, arg};
    f->started = true;
    makecontext(&c, begin, 0);
    setcontext(&c);
    abort();
}

void fiber_switch(fiber *from, fiber *to, void (*run)(void *), void *arg) {
#if FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->asan, to->stack, FIBER_STACK_BYTES);
#endif
    if (_setjmp(from->at) == 0) {
        from->started = true;
        if (to->started) _longjmp(to->at, 1);
        enter_new(to, run, arg);
    }
#if FIBER_ASAN
    __sanitizer_finish_switch_fiber(from->asan, NULL, NULL);
#endif
}

void fiber_free(fiber *f) {
    if (f->stack) munmap(f->stack - 4096, FIBER_STACK_BYTES + 4096);
    *f = (fiber){0};
}
