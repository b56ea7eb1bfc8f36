/* Kernels with one mistake each, and the same without. planted.cu is compiled like the kernels of the
 * program. */
#ifndef TESTS_GPU_PLANTED_H
#define TESTS_GPU_PLANTED_H

#include "gpu/gpu.h"

typedef struct planted_args {
    const float *x;
    float *y;
    int64_t n;
} planted_args;

enum { PLANTED_THREADS = 64 };

/* X(name): each reads x[n] and writes y[n], with n = blocks * PLANTED_THREADS. */
#define PLANTED(X)                                                                                 \
    X(good)                                                                                        \
    X(missing_barrier)                                                                             \
    X(missing_second_barrier)                                                                      \
    X(divergent_barrier)                                                                           \
    X(other_barrier)                                                                               \
    X(divergent_shuffle)                                                                           \
    X(one_too_far)                                                                                 \
    X(one_too_early)                                                                               \
    X(shared_too_small)                                                                            \
    X(shared_unwritten)                                                                            \
    X(shared_atomics)                                                                              \
    X(shared_atomic_too_far)                                                                       \
    X(atomic_beside_plain)                                                                         \
    X(atomic_on_unwritten)                                                                         \
    X(unwritten_output)                                                                            \
    X(reads_output)                                                                                \
    X(writes_input)                                                                                \
    X(misaligned)                                                                                  \
    X(blocks_collide)                                                                              \
    X(copy_not_waited_for)                                                                         \
    X(warp_meets)                                                                                  \
    X(missing_sync_warp)                                                                           \
    X(shuffle_for_sync_warp)                                                                       \
    X(narrow_in_place)                                                                             \
    X(narrow_too_early)                                                                            \
    X(shared_and_dynamic)                                                                          \
    X(sync_warp_for_a_block)                                                                       \
    X(missing_event)

#define DECLARE(name) extern const gpu_kernel *const planted_##name;
PLANTED(DECLARE)
#undef DECLARE

#endif
