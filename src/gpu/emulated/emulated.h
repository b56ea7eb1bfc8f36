/* An emulated CUDA device: kernels run on the host, watched.
 *
 * Reading order: this file; fiber.h and fiber.c (a thread of a block is a fiber), block.c (a block:
 * barriers, shuffles, shared memory, the order of threads), watch.c (what each access may touch,
 * what was never written, who else touched it), tensor.c (mma.sync and ldmatrix), launch.c (a grid),
 * stream.c (streams and events in an order that a seed shuffles), order.c (which work has an order at all), lt.c (matrix products), nccl.c (what
 * several devices send to each other).
 *
 * What is wrong is a fault: the first one of a device is kept as text with kernel, block, thread and
 * line, and the device does nothing more. Nothing here knows what kernels compute. */
#ifndef GPU_EMULATED_EMULATED_H
#define GPU_EMULATED_EMULATED_H

#include <stddef.h>

#include "gpu/gpu.h"

typedef struct emu_device emu_device;

enum { EMU_FAULT_MAX = 512, EMU_MOST_RANGES = 24 };

/* seed: of the order of threads, blocks and streams; equal seeds give equal orders if threads is 1,
 * the number of the host's threads that run blocks. */
emu_device *emu_device_new(uint64_t seed, int threads);
void emu_device_free(emu_device *d);

/* The first fault, or NULL. */
const char *emu_fault(const emu_device *d);

/* What kernels that are launched from now on may touch, instead of all of the device's memory, until
 * emu_scope_end. There, what should have been written is looked at. */
void emu_scope_begin(emu_device *d, const char *what, const gpu_range *ranges, int n);
void emu_scope_end(emu_device *d);
/* Runs a whole grid, now. */
void emu_launch(emu_device *d, const gpu_kernel *k, const gpu_grid *g, const void *args);

/* For the stand-ins of libraries: what a call of `who` reads and writes, in the order of work, as if
 * it were a kernel. False: it may not, or reads what nobody has written; that is a fault now. */
bool emu_library_access(emu_device *d, const char *who, const gpu_range *ranges, int n);
void emu_library_fault(emu_device *d, const char *who, const char *what);

/* Memory that kernels may touch outside a scope. */
void emu_memory_add(emu_device *d, const void *at, size_t bytes);
void emu_memory_remove(emu_device *d, const void *at);

#endif
