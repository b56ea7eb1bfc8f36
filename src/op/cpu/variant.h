/* The files of this folder are compiled once per instruction set, with CPU_VARIANT = base, avx2,
 * avx512, avx512_vnni, avx512_bf16 or amx; CPU_FN gives each variant its own symbol.
 *
 * Four variants are a part (cmake/kernels.cmake says of which files), to keep the build short:
 * - amx has only attention and products of bf16 tensors (CPU_ONLY_AMX, CPU_ONLY_BF16); avx512_bf16 does the rest.
 * - avx512_vnni has only products in integers (stored_dot.c); avx512 does the rest.
 * - avx512_bf16 has only what computes on bf16 tensors (CPU_ONLY_BF16); avx512 does the rest.
 * - base, on x86, has only products and what a step does to whole arrays (CPU_ONLY_PRODUCTS);
 *   the reference does the rest. Hardly any x86 machine is without AVX2.
 * Neither reads weights as files store them: CPU_STORED is 0 there. */
#ifndef OP_CPU_VARIANT_H
#define OP_CPU_VARIANT_H

#ifndef CPU_VARIANT
#error "compile with -DCPU_VARIANT=name; see cmake/kernels.cmake"
#endif

#if defined(CPU_ONLY_BF16) || defined(CPU_ONLY_PRODUCTS)
#define CPU_STORED 0
#else
#define CPU_STORED 1
#endif

#define CPU_PASTE_(name, variant) name##_##variant
#define CPU_PASTE(name, variant) CPU_PASTE_(name, variant)
#define CPU_FN(name) CPU_PASTE(name, CPU_VARIANT)

#endif
