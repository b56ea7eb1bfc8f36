/* What kernels are written in: the subset of CUDA that this program uses, as thin functions.
 *
 * nvcc sees device.h; the C compiler, for the emulated device, emulated/kernel.h. Both offer:
 *
 *   KERNEL(name, args, threads) {..}  a kernel with one argument, `const args *a`, and at most so
 *                                     many threads in a block
 *   KERNEL_BLOCKS(name, args, threads, n) {..}   the same, with few enough registers for n blocks in
 *                                     a multiprocessor
 *   GPU_FN                            begins a function that kernels call
 *   thread_x() block_x() block_y() block_z() threads_x() lane() warp()
 *   SHARED(type, name, n)             an array of the block; SHARED_DYNAMIC: of the launch's size
 *   sync_block() sync_warp()          barriers, for all threads of a block, of a warp
 *   shuffle_xor(v, mask) shuffle_from(v, lane) warp_ballot(bit)   among the 32 threads of a warp, f32
 *                                     (shuffle_*_u32: 32 bits); all of them must call it
 *   load4(float[4], p) store4(p, float[4])   16 bytes at once, aligned to 16
 *   load8(p) store8(p, uint64_t)      8 bytes at once, aligned to 8
 *   copy16_async(shared, global) copies_commit() copies_wait(n)   cp.async: at most n groups of
 *                                     copies are still under way afterwards
 *   mul_rounded(a, b)                 a product that no multiply-add takes up
 *   atomic_add_u64(p, v)              on global or shared memory
 *   raise_flag(bool *)                sets it; many threads may
 *   kernel_check(ok, "finds ..")      ends the kernel with an error, if not
 *   pack_bf16(low, high) pack_f16(..) two numbers, rounded, in a register
 *   matrix_load4(r, p) matrix_load4_turned(r, p)   ldmatrix.x4 (.trans) of 8x8 tiles of 16 bits
 *   multiply_add_bf16 / _f16(d, a, b)       mma.sync.m16n8k16: d += a b, see there for fragments
 *
 *   UNROLL                            before a loop with a constant number of turns, whose arrays
 *                                     then lie in registers; NO_UNROLL: the code stays small
 *   fast_exp2(v)                      2^v, 0 below 2^-126
 *
 * Block sizes are multiples of 32. There are no kernels that call others, no recursion, and no
 * grid-wide barrier: what another block has written is read by the next kernel. */
#ifndef GPU_KERNEL_H
#define GPU_KERNEL_H

#include "gpu/gpu.h"

#ifdef __CUDACC__
#include "gpu/device.h"
#else
#include "gpu/emulated/kernel.h"
#endif

/* ---- what all kernels share ---- */

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#else
#define UNROLL
#define NO_UNROLL
#endif

GPU_FN float warp_sum(float v) {
    for (int m = 16; m > 0; m >>= 1) v += shuffle_xor(v, m);
    return v;
}

/* Modulo 2^64. */
GPU_FN uint64_t warp_sum_u64(uint64_t v) {
    for (int m = 16; m > 0; m >>= 1) {
        uint32_t low = shuffle_xor_u32((uint32_t)v, m);
        uint32_t high = shuffle_xor_u32((uint32_t)(v >> 32), m);
        v += (uint64_t)high << 32 | low;
    }
    return v;
}

GPU_FN float warp_max(float v) {
    for (int m = 16; m > 0; m >>= 1) v = gpu_max(v, shuffle_xor(v, m));
    return v;
}

/* The sum over a block, for all its threads, in an order that depends only on the number of threads.
 * `room` is shared, 32 floats, and free when the call begins; it may be used again after the next
 * sync_block. */
GPU_FN float block_sum(float v, float *room) {
    v = warp_sum(v);
    if (threads_x() == GPU_WARP) return v;
    if (lane() == 0) room[warp()] = v;
    sync_block();
    v = lane() < threads_x() / GPU_WARP ? room[lane()] : 0;
    return warp_sum(v);
}

/* The same for the largest number. */
GPU_FN float block_max(float v, float *room) {
    v = warp_max(v);
    if (threads_x() == GPU_WARP) return v;
    if (lane() == 0) room[warp()] = v;
    sync_block();
    v = lane() < threads_x() / GPU_WARP ? room[lane()] : room[0];
    return warp_max(v);
}

/* The sum over a block in double, for its first thread alone, in an order that depends only on the
 * number of threads, which is a power of two. `room` is shared, as many doubles as threads, and may be
 * used again after the next sync_block. */
GPU_FN double block_sum_f64(double v, double *room) {
    room[thread_x()] = v;
    for (uint32_t half = threads_x() / 2; half > 0; half /= 2) {
        sync_block();
        if (thread_x() < half) room[thread_x()] += room[thread_x() + half];
    }
    return thread_x() == 0 ? room[0] : 0;
}

#endif
