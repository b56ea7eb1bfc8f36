/* kernel.h for the emulated device: each thin function is a call of the emulation, which knows the
 * line. Plain reads and writes of memory are seen, too: files with kernels are compiled with the
 * compiler's thread sanitizer, whose calls watch.c takes. */
#ifndef GPU_EMULATED_KERNEL_H
#define GPU_EMULATED_KERNEL_H

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "gpu/gpu.h"

#define GPU_FN static inline
#define GPU_TEXT_(a) #a
#define GPU_TEXT(a) GPU_TEXT_(a)
#define GPU_CAT_(a, b) a##_##b
#define GPU_CAT(a, b) GPU_CAT_(a, b)

#ifdef KERNEL_IMAGE /* of this file's device code */
extern const gpu_image KERNEL_IMAGE;
#endif

#define KERNEL_BLOCKS(name, args_type, most_threads, blocks) KERNEL(name, args_type, most_threads)
#define KERNEL(name, args_type, most_threads)                                                      \
    _Static_assert(sizeof(args_type) <= GPU_MOST_ARGS_BYTES, "arguments of a kernel");             \
    static void name##_body(const args_type *a);                                                   \
    static void name##_entry(const void *a) {                                                      \
        name##_body(a);                                                                            \
    }                                                                                              \
    static const gpu_kernel name = {GPU_TEXT(GPU_CAT(name, KERNEL_SUFFIX)),                        \
                                    &KERNEL_IMAGE,                                                 \
                                    name##_entry,                                                  \
                                    sizeof(args_type),                                             \
                                    most_threads,                                                  \
                                    GPU_MOST_DYNAMIC_BYTES};                                       \
    static void name##_body(const args_type *a)

typedef struct emu_site {
    const char *file;
    int line;
    const char *what; /* name of the array or of the function */
    uint32_t bytes;   /* of an array; 0: as many as the launch gives */
} emu_site;
#define EMU_SITE(what, bytes) (&(const emu_site){__FILE__, __LINE__, what, bytes})

/* Where the thread that asks stands. */
typedef enum emu_index {
    EMU_THREAD,
    EMU_THREADS,
    EMU_BLOCK_X,
    EMU_BLOCK_Y,
    EMU_BLOCK_Z,
    EMU_INDICES
} emu_index;
uint32_t emu_here(emu_index i) __attribute__((pure));

void *emu_shared(const emu_site *site);
#define SHARED(type, name, n)                                                                      \
    static const emu_site name##_site = {__FILE__, __LINE__, #name, sizeof(type) * (n)};           \
    type *const name = emu_shared(&name##_site)
#define SHARED_DYNAMIC(type, name)                                                                 \
    static const emu_site name##_site = {__FILE__, __LINE__, #name, 0};                            \
    type *const name = emu_shared(&name##_site)

#define thread_x() emu_here(EMU_THREAD)
#define threads_x() emu_here(EMU_THREADS)
#define block_x() emu_here(EMU_BLOCK_X)
#define block_y() emu_here(EMU_BLOCK_Y)
#define block_z() emu_here(EMU_BLOCK_Z)
#define lane() (thread_x() % GPU_WARP)
#define warp() (thread_x() / GPU_WARP)

/* ---- what threads do together ---- */

void emu_sync_block(const emu_site *site);
void emu_sync_warp(const emu_site *site);
uint32_t emu_shuffle(const emu_site *site, uint32_t v, uint32_t from);
uint32_t emu_ballot(const emu_site *site, bool bit);

GPU_FN uint32_t f32_bits(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}
GPU_FN float f32_of_bits(uint32_t u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

#define sync_block() emu_sync_block(EMU_SITE("sync_block", 0))
#define sync_warp() emu_sync_warp(EMU_SITE("sync_warp", 0))
#define shuffle_xor_u32(v, mask)                                                                   \
    emu_shuffle(EMU_SITE("shuffle_xor", 0), v, lane() ^ (uint32_t)(mask))
#define shuffle_from_u32(v, from) emu_shuffle(EMU_SITE("shuffle_from", 0), v, (uint32_t)(from))
#define shuffle_xor(v, mask) f32_of_bits(shuffle_xor_u32(f32_bits(v), mask))
#define shuffle_from(v, from) f32_of_bits(shuffle_from_u32(f32_bits(v), from))
#define warp_ballot(bit) emu_ballot(EMU_SITE("warp_ballot", 0), bit)

/* ---- memory ---- */

/* By value: an array of a thread whose address is nowhere taken is not watched. */
typedef struct emu_4 {
    float f[4];
} emu_4;
emu_4 emu_load16(const emu_site *site, const void *p);
void emu_store16(const emu_site *site, void *p, emu_4 in);
uint64_t emu_load8(const emu_site *site, const void *p);
void emu_store8(const emu_site *site, void *p, uint64_t v);
void emu_copy16_async(const emu_site *site, void *to_shared, const void *from);
void emu_copies_commit(void);
void emu_copies_wait(int most);
void emu_atomic_add_u64(const emu_site *site, uint64_t *p, uint64_t v);
void emu_raise_flag(const emu_site *site, bool *flag);

#define load4(out, p)                                                                              \
    do {                                                                                           \
        const emu_4 emu_v = emu_load16(EMU_SITE("load4", 0), p);                                   \
        for (int emu_i = 0; emu_i < 4; emu_i++) (out)[emu_i] = emu_v.f[emu_i];                     \
    } while (0)
#define store4(p, in)                                                                              \
    emu_store16(EMU_SITE("store4", 0), p, (emu_4){{(in)[0], (in)[1], (in)[2], (in)[3]}})
#define load8(p) emu_load8(EMU_SITE("load8", 0), p)
#define store8(p, v) emu_store8(EMU_SITE("store8", 0), p, v)
#define copy16_async(to, from) emu_copy16_async(EMU_SITE("copy16_async", 0), to, from)
#define copies_commit() emu_copies_commit()
#define copies_wait(n) emu_copies_wait(n)
#define atomic_add_u64(p, v) emu_atomic_add_u64(EMU_SITE("atomic_add_u64", 0), p, v)
#define raise_flag(p) emu_raise_flag(EMU_SITE("raise_flag", 0), p)

/* The running thread has found what cannot be. */
_Noreturn void emu_refuse(const emu_site *site);
#define kernel_check(ok, what)                                                                     \
    do {                                                                                           \
        if (!(ok)) emu_refuse(EMU_SITE(what, 0));                                                  \
    } while (0)

/* ---- numbers ---- */

GPU_FN float gpu_max(float a, float b) {
    return fmaxf(a, b);
}
GPU_FN float mul_rounded(float a, float b) {
    volatile float product = a * b; /* the compiler may not join it with a sum */
    return product;
}
GPU_FN float bf16_load(uint16_t h) {
    return bf16_to_f32(h);
}
GPU_FN uint16_t bf16_store(float v) {
    return f32_to_bf16(v);
}
GPU_FN float f16_load(uint16_t h) {
    return f16_to_f32(h);
}
GPU_FN uint16_t f16_store(float v) {
    return f32_to_f16(v);
}

GPU_FN float fast_exp2(float v) {
    return v < -126 ? 0 : exp2f(v);
}
GPU_FN uint32_t pack_bf16(float low, float high) {
    return (uint32_t)f32_to_bf16(high) << 16 | f32_to_bf16(low);
}
GPU_FN uint32_t pack_f16(float low, float high) {
    return (uint32_t)f32_to_f16(high) << 16 | f32_to_f16(low);
}

/* ---- tensor cores ---- */

void emu_matrix_load4(const emu_site *site, uint32_t r[4], const void *row, bool turned);
emu_4 emu_multiply_add(const emu_site *site, emu_4 d, const uint32_t a[4], const uint32_t b[2],
                       bool bf16);
#define EMU_MULTIPLY_ADD(d, a, b, bf16, name)                                                      \
    do {                                                                                           \
        const emu_4 emu_d = {{(d)[0], (d)[1], (d)[2], (d)[3]}};                                    \
        const emu_4 emu_r = emu_multiply_add(EMU_SITE(name, 0), emu_d, a, b, bf16);                \
        for (int emu_i = 0; emu_i < 4; emu_i++) (d)[emu_i] = emu_r.f[emu_i];                       \
    } while (0)
#define matrix_load4(r, row) emu_matrix_load4(EMU_SITE("matrix_load4", 0), r, row, false)
#define matrix_load4_turned(r, row)                                                                \
    emu_matrix_load4(EMU_SITE("matrix_load4_turned", 0), r, row, true)
#define multiply_add_bf16(d, a, b) EMU_MULTIPLY_ADD(d, a, b, true, "multiply_add_bf16")
#define multiply_add_f16(d, a, b) EMU_MULTIPLY_ADD(d, a, b, false, "multiply_add_f16")

#endif
