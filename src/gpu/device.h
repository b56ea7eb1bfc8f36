/* kernel.h on the device itself, for nvcc. */
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include <stdint.h>

#define GPU_FN static __device__ __forceinline__
#define GPU_CAT_(a, b) a##_##b
#define GPU_CAT(a, b) GPU_CAT_(a, b)

#define KERNEL(name, args_type, most_threads) KERNEL_BLOCKS(name, args_type, most_threads, 1)
#define KERNEL_BLOCKS(name, args_type, most_threads, blocks)                                       \
    GPU_FN void name##_body(const args_type *a);                                                   \
    extern "C" __global__ void __launch_bounds__(most_threads, blocks)                             \
        GPU_CAT(name, KERNEL_SUFFIX)(const __grid_constant__ args_type a) {                        \
        name##_body(&a);                                                                           \
    }                                                                                              \
    GPU_FN void name##_body(const args_type *a)

#define SHARED(type, name, n) __shared__ __align__(16) type name[n]
#define SHARED_DYNAMIC(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[];                            \
    type *name = (type *)gpu_dynamic_shared

GPU_FN uint32_t thread_x(void) {
    return threadIdx.x;
}
GPU_FN uint32_t threads_x(void) {
    return blockDim.x;
}
GPU_FN uint32_t block_x(void) {
    return blockIdx.x;
}
GPU_FN uint32_t block_y(void) {
    return blockIdx.y;
}
GPU_FN uint32_t block_z(void) {
    return blockIdx.z;
}
GPU_FN uint32_t lane(void) {
    return threadIdx.x & 31u;
}
GPU_FN uint32_t warp(void) {
    return threadIdx.x >> 5;
}

#define sync_block() __syncthreads()
#define sync_warp() __syncwarp()

GPU_FN float shuffle_xor(float v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
GPU_FN float shuffle_from(float v, int from) {
    return __shfl_sync(0xffffffffu, v, from);
}
GPU_FN uint32_t shuffle_xor_u32(uint32_t v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
GPU_FN uint32_t shuffle_from_u32(uint32_t v, int from) {
    return __shfl_sync(0xffffffffu, v, from);
}
GPU_FN uint32_t warp_ballot(bool bit) {
    return __ballot_sync(0xffffffffu, bit);
}

GPU_FN void load4(float *out, const void *p) {
    float4 v = *(const float4 *)p;
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}
GPU_FN void store4(void *p, const float *in) {
    *(float4 *)p = make_float4(in[0], in[1], in[2], in[3]);
}
GPU_FN uint64_t load8(const void *p) {
    return *(const uint64_t *)p;
}
GPU_FN void store8(void *p, uint64_t v) {
    *(uint64_t *)p = v;
}

/* ---- copies that go on while the kernel does ---- */

GPU_FN void copy16_async(void *to_shared, const void *from) {
    uint32_t to = (uint32_t)__cvta_generic_to_shared(to_shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
GPU_FN void copies_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
#define copies_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

/* ---- atomics ---- */

GPU_FN void atomic_add_u64(uint64_t *p, uint64_t v) {
    atomicAdd((unsigned long long *)p, (unsigned long long)v);
}

GPU_FN void raise_flag(bool *flag) {
    *(volatile bool *)flag = true;
}

/* The text is for who reads, and for the emulated device. */
#define kernel_check(ok, what)                                                                     \
    do {                                                                                           \
        if (!(ok)) __trap();                                                                       \
    } while (0)

/* ---- numbers ---- */

GPU_FN float gpu_max(float a, float b) {
    return fmaxf(a, b);
}
/* A product that is rounded by itself, never as a part of a multiply-add. */
GPU_FN float mul_rounded(float a, float b) {
    return __fmul_rn(a, b);
}
GPU_FN float fast_exp2(float v) {
    float p;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(v));
    return p;
}
GPU_FN uint32_t pack_bf16(float low, float high) {
    uint32_t u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
}
GPU_FN uint32_t pack_f16(float low, float high) {
    uint32_t u;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(high), "f"(low));
    return u;
}
GPU_FN float bf16_load(uint16_t h) {
    return __uint_as_float((uint32_t)h << 16);
}
GPU_FN uint16_t bf16_store(float v) {
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
GPU_FN float f16_load(uint16_t h) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return v;
}
GPU_FN uint16_t f16_store(float v) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
GPU_FN uint32_t f32_bits(float v) {
    return __float_as_uint(v);
}
GPU_FN float f32_of_bits(uint32_t u) {
    return __uint_as_float(u);
}

/* ---- tensor cores ---- */

GPU_FN void matrix_load4(uint32_t r[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
GPU_FN void matrix_load4_turned(uint32_t r[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
GPU_FN void multiply_add_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_FN void multiply_add_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
