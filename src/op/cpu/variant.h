/* Every file of this folder is compiled once per instruction set, with CPU_VARIANT = base, avx2,
 * avx512 or avx512_bf16; CPU_FN gives each variant its own symbol. */
#ifndef OP_CPU_VARIANT_H
#define OP_CPU_VARIANT_H

#ifndef CPU_VARIANT
#error "compile with -DCPU_VARIANT=name; see cmake/kernels.cmake"
#endif

#define CPU_PASTE_(name, variant) name##_##variant
#define CPU_PASTE(name, variant) CPU_PASTE_(name, variant)
#define CPU_FN(name) CPU_PASTE(name, CPU_VARIANT)

#endif
