/* A block while it runs; private to the emulation. One thread of the host runs a block from its
 * first to its last thread, and keeps stacks and shared memory for the next one: that is a worker. */
#ifndef GPU_EMULATED_BLOCK_H
#define GPU_EMULATED_BLOCK_H

#include "base/rng.h"
#include "gpu/emulated/emulated.h"
#include "gpu/emulated/fiber.h"
#include "gpu/emulated/kernel.h"

enum {
    EMU_SHARED_BYTES =
        128 << 10,         /* of a block: GPU_MOST_SHARED_BYTES, and what lies between arrays */
    EMU_MOST_SHARED = 32,  /* arrays */
    EMU_MOST_COPIES = 256, /* under way in a thread */
    EMU_FENCE_BYTES = 64   /* between arrays */
};

/* What a thread waits for. */
typedef enum emu_wait { EMU_RUNS, EMU_AT_BLOCK, EMU_AT_WARP, EMU_ENDED } emu_wait;

typedef struct emu_pending {
    void *to;
    const void *from;
    emu_site site;
    int group; /* -1: not committed */
} emu_pending;

/* A register that matrix_load4 filled: where its two numbers come from in global memory, as long as it
 * has this value. */
typedef struct emu_fragment {
    const uint32_t *at;
    uint32_t value;
    const char *from[2]; /* NULL: unknown */
} emu_fragment;
enum { EMU_FRAGMENTS = 64 }; /* that a thread remembers */

typedef struct emu_thread {
    uint32_t place[EMU_INDICES];
    fiber fiber;
    emu_wait waits;
    const emu_site *site; /* where it waits */
    emu_pending copy[EMU_MOST_COPIES];
    int copies, groups; /* groups that were committed and not waited for */
    emu_fragment fragment[EMU_FRAGMENTS];
} emu_thread;

/* What the lanes of a warp put together, and what each gets back. */
typedef struct emu_warp {
    uint32_t in[GPU_WARP][12], out[GPU_WARP][4];
    const char *from[GPU_WARP][12], *to[GPU_WARP][8]; /* of matrices: where numbers come from */
    uint32_t arrived;                                 /* bit i: lane i waits */
    uint32_t epoch;                                   /* of races: counts sync_warp */
} emu_warp;

typedef struct emu_array {
    const emu_site *site;
    uint32_t at, bytes; /* in the block's shared memory */
} emu_array;

/* Who touched a unit of memory last: see watch.c. */
typedef struct emu_cell {
    uint64_t writer, reader;
} emu_cell;

typedef struct emu_worker {
    emu_device *device;
    const gpu_kernel *kernel;
    const gpu_grid *grid;
    const void *args;
    uint64_t random;
    fiber home;         /* of the host's thread */
    emu_thread *thread; /* [GPU_MOST_THREADS] */
    emu_thread *now;
    uint32_t ready[GPU_MOST_THREADS];
    uint32_t n_ready, n_live, n_at_block;
    uint32_t block_number, epoch; /* epoch: barriers of the block so far */
    emu_warp warp[GPU_MOST_THREADS / GPU_WARP];
    uint8_t *shared;
    emu_cell *shared_cell; /* [EMU_SHARED_BYTES / 2]: a unit has two bytes */
    const char **origin;   /* [EMU_SHARED_BYTES / 16]: what copy16_async has brought, or NULL */
    emu_array array[EMU_MOST_SHARED];
    int arrays;
    uint32_t shared_used, shared_asked; /* with what lies between arrays, and without */
} emu_worker;

/* The worker of this thread of the host, while it runs a kernel; else NULL. */
extern _Thread_local emu_worker *emu_worker_now;

emu_worker *emu_worker_new(emu_device *d, uint64_t seed);
void emu_worker_free(emu_worker *w);
/* To its end, or to its first fault: then the device is broken, and this worker runs nothing more. */
void emu_block_run(emu_worker *w, const uint32_t block[3], uint32_t number);

/* The lanes' `in` are complete: fills `out`. On the last lane that arrives. */
typedef void (*emu_together)(emu_warp *w, const emu_site *site);
/* Puts n words of this lane; waits for the warp; gives back what `do_it` left for this lane. */
const uint32_t *emu_warp_join(const emu_site *site, const uint32_t *in, int n, emu_together do_it);

/* block.c: where the 16 bytes of shared memory that hold p were copied from, or NULL. */
const char *emu_origin(const void *p);

/* watch.c: an access of the running thread. pc: 0 if site says where. */
void emu_watch(const void *p, size_t bytes, bool write, const void *pc, const emu_site *site);
void emu_watch_forget_shared(emu_worker *w); /* of the block before */

/* Keeps the fault if it is the first one, and leaves the kernel for good. pc or site may be NULL. */
_Noreturn void emu_fail(const void *pc, const emu_site *site, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
