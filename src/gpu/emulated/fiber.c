/* A switch saves the registers that a function must keep, on the stack that is left, and takes
 * another stack. ucontext would do it with a system call each time, and most of an emulated kernel's
 * time would be that; it serves processors for which there is nothing here. */
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

typedef struct start {
    void (*run)(void *);
    void *arg;
} start;

/* What the next fiber that begins runs. */
static _Thread_local start next_start;

/* ---- the switch: jump(&from->at, to->at), and a stack that begins with begin() ---- */

static void begin(void);

#if defined(__x86_64__)
void emu_fiber_jump(void **save, void *load);
__asm__(".text\n.p2align 4\n.globl emu_fiber_jump\n.type emu_fiber_jump, @function\n"
        "emu_fiber_jump:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_fiber_jump, . - emu_fiber_jump\n");

static void prepare(fiber *f) {
    void **top = (void **)(void *)(f->stack + FIBER_STACK_BYTES);
    top[-1] = NULL; /* begin's caller: there is none */
    top[-2] = (void *)(uintptr_t)begin;
    for (int i = 3; i <= 8; i++) top[-i] = NULL;
    f->at = top - 8;
}
#elif defined(__aarch64__)
void emu_fiber_jump(void **save, void *load);
__asm__(".text\n.p2align 4\n.globl emu_fiber_jump\n.type emu_fiber_jump, %function\n"
        "emu_fiber_jump:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size emu_fiber_jump, . - emu_fiber_jump\n");

static void prepare(fiber *f) {
    void **top = (void **)(void *)(f->stack + FIBER_STACK_BYTES);
    for (int i = 1; i <= 20; i++) top[-i] = NULL;
    top[-20 + 11] = (void *)(uintptr_t)begin; /* x30 */
    f->at = top - 20;
}
#else
#include <ucontext.h>

static void emu_fiber_jump(void **save, void *load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, load);
}

/* The context lies at the foot of the stack. */
static void prepare(fiber *f) {
    ucontext_t *c = (ucontext_t *)(void *)f->stack;
    getcontext(c);
    c->uc_stack.ss_sp = f->stack + sizeof *c;
    c->uc_stack.ss_size = FIBER_STACK_BYTES - sizeof *c;
    c->uc_link = NULL;
    makecontext(c, begin, 0);
    f->at = c;
}
#endif

/* ---- the address sanitizer wants to know which stack is used ---- */

#if FIBER_ASAN
#include <sanitizer/asan_interface.h>

/* Of frames that were left for good. */
static void forget_frames(const fiber *f) {
    __asan_unpoison_memory_region(f->stack, FIBER_STACK_BYTES);
}

static _Thread_local const void *host_stack;
static _Thread_local size_t host_bytes;

static void leave_stack(fiber *from, const fiber *to) {
    if (to->stack)
        __sanitizer_start_switch_fiber(&from->asan, to->stack, FIBER_STACK_BYTES);
    else
        __sanitizer_start_switch_fiber(&from->asan, host_stack, host_bytes);
}

/* A fiber that begins comes from the host's stack, or from another's after the first one did. */
static void enter_stack(void *asan) {
    const void *old;
    size_t bytes;
    __sanitizer_finish_switch_fiber(asan, &old, &bytes);
    if (!host_stack) host_stack = old, host_bytes = bytes;
}
#else
static void forget_frames(const fiber *f) {
    (void)f;
}
static void leave_stack(const fiber *from, const fiber *to) {
    (void)from, (void)to;
}
static void enter_stack(void *asan) {
    (void)asan;
}
#endif

/* ---- fibers ---- */

static void begin(void) {
    enter_stack(NULL);
    start s = next_start;
    s.run(s.arg);
    abort(); /* run never returns */
}

enum { FENCE_BYTES = 4096 };

/* A page before the stack catches what runs over it. */
static void give_stack(fiber *f) {
    size_t bytes = FIBER_STACK_BYTES + FENCE_BYTES;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED, "no memory for the stack of an emulated thread");
    CHECK(mprotect(at, FENCE_BYTES, PROT_NONE) == 0, "a stack cannot be fenced");
    f->stack = at + FENCE_BYTES;
}

void fiber_switch(fiber *from, fiber *to, void (*run)(void *), void *arg) {
    if (!to->started && !to->stack) give_stack(to);
    if (!to->started) {
        forget_frames(to);
        prepare(to);
        next_start = (start){run, arg};
        to->started = true;
    }
    from->started = true;
    leave_stack(from, to);
    emu_fiber_jump(&from->at, to->at);
    enter_stack(from->asan);
}

void fiber_free(fiber *f) {
    if (f->stack) forget_frames(f); /* others may get its addresses */
    if (f->stack) munmap(f->stack - FENCE_BYTES, FIBER_STACK_BYTES + FENCE_BYTES);
    *f = (fiber){0};
}
