/* How kernels read and write stored numbers. Each .cu file is compiled once for each storage of
 * activations and matrices: STORE is float, or the 16 bits of bf16 or f16; arithmetic is float. */
#ifndef OP_CUDA_STORE_H
#define OP_CUDA_STORE_H

#include "gpu/kernel.h"

#if defined(CUDA_STORE_F32)
typedef float STORE;
GPU_FN float load(STORE s) {
    return s;
}
GPU_FN STORE store(float v) {
    return v;
}
#else
typedef uint16_t STORE;
#if defined(CUDA_STORE_BF16)
GPU_FN float load(STORE s) {
    return bf16_load(s);
}
GPU_FN STORE store(float v) {
    return bf16_store(v);
}
#define multiply_add(d, a, b) multiply_add_bf16(d, a, b)
#define pack2(low, high) pack_bf16(low, high)
#else
GPU_FN float load(STORE s) {
    return f16_load(s);
}
GPU_FN STORE store(float v) {
    return f16_store(v);
}
#define multiply_add(d, a, b) multiply_add_f16(d, a, b)
#define pack2(low, high) pack_f16(low, high)
#endif
#endif

/* Numbers in 16 bytes, the widest access of a thread. */
enum { VEC = 16 / sizeof(STORE) };

GPU_FN void load_vec(float out[VEC], const STORE *p) {
#if defined(CUDA_STORE_F32)
    load4(out, p);
#else
    union {
        float f[4];
        STORE s[VEC];
    } u;
    load4(u.f, p);
    for (int i = 0; i < VEC; i++) out[i] = load(u.s[i]);
#endif
}

GPU_FN void store_vec(STORE *p, const float in[VEC]) {
#if defined(CUDA_STORE_F32)
    store4(p, in);
#else
    union {
        float f[4];
        STORE s[VEC];
    } u;
    for (int i = 0; i < VEC; i++) u.s[i] = store(in[i]);
    store4(p, u.f);
#endif
}

/* A matrix as kernels see it: rows of STORE, or of what a cast says, ld elements apart. */
typedef struct mat {
    void *p; /* NULL: absent */
    int64_t ld;
} mat;

GPU_FN STORE *row_of(mat m, int64_t n) {
    return (STORE *)m.p + n * m.ld;
}
GPU_FN float *f32_row_of(mat m, int64_t n) {
    return (float *)m.p + n * m.ld;
}
GPU_FN const int32_t *i32_row_of(mat m, int64_t n) {
    return (const int32_t *)m.p + n * m.ld;
}

/* The gradient of an activation is written, or added to what is there. */
GPU_FN void put(STORE *p, float v, bool add) {
    *p = store(add ? load(*p) + v : v);
}
GPU_FN void put_f32(float *p, float v, bool add) {
    *p = add ? *p + v : v;
}

#endif
