/* The kernels of this instruction set, by op. */
#include "op/cpu/tables.h"

#include "op/cpu/parts.h"
#include "op/cpu/ops.h"

#define ROW(ID, name) [OP_##ID] = &CPU_FN(cpu_##name),
static const op_impl *const ops[OP_COUNT] = {CPU_OPS(ROW)};
#undef ROW

const cpu_kernels CPU_FN(cpu_kernels) = {
    .ops = ops,
    .gemm_ws = CPU_FN(gemm_ws),
    .gemm = CPU_FN(gemm_packed),
    .gemm_tiles = CPU_FN(gemm_tiles),
    .dot_loop = CPU_FN(peak_dot_loop),
#ifndef CPU_ONLY_BF16
    .fma_loop = CPU_FN(peak_fma_loop),
    .update = CPU_FN(vec_update),
    .sum_squares = CPU_FN(vec_sum_squares),
    .sum_squares_fixed = CPU_FN(vec_sum_squares_fixed),
    .digest = CPU_FN(vec_digest),
    .draw = CPU_FN(vec_draw),
    .round = CPU_FN(vec_round),
#endif
};
