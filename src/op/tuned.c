/* The compiled variants of op/cpu, by instruction set. */
#include "op/tuned.h"

#include "op/cpu/tables.h"

const cpu_kernels *cpu_kernels_of(cpu_isa isa) {
#if defined(__x86_64__)
    switch (isa) {
        case ISA_AVX512_BF16: return &cpu_kernels_avx512_bf16;
        case ISA_AVX512: return &cpu_kernels_avx512;
        case ISA_AVX2: return &cpu_kernels_avx2;
        case ISA_BASE: break;
    }
#else
    (void)isa;
#endif
    return &cpu_kernels_base;
}

const op_impl *op_tuned_find(cpu_isa isa, op_kind kind, dtype dt) {
    return dt == DT_F32 || dt == DT_BF16 ? cpu_kernels_of(isa)->ops[kind] : NULL;
}
