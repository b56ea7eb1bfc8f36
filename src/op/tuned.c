/* Which compiled variant of op/cpu serves an instruction set. */
#include "op/cpu/tables.h"

const cpu_kernels *cpu_kernels_of(cpu_isa isa, dtype dt) {
#if defined(__x86_64__)
    switch (isa) {
        case ISA_AVX512_BF16: return dt == DT_BF16 ? &cpu_kernels_avx512_bf16 : &cpu_kernels_avx512;
        case ISA_AVX512: return &cpu_kernels_avx512;
        case ISA_AVX2: return &cpu_kernels_avx2;
        case ISA_BASE: break;
    }
#else
    (void)isa;
    (void)dt;
#endif
    return &cpu_kernels_base;
}

const op_impl *cpu_find_op(cpu_isa isa, op_kind kind, dtype dt) {
    if (dt != DT_F32 && dt != DT_BF16) return NULL;
    const op_impl *own = cpu_kernels_of(isa, dt)->ops[kind];
    return own ? own : cpu_kernels_of(isa, DT_F32)->ops[kind];
}
