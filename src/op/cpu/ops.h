/* The tuned ops of one instruction set: for every row of CPU_OPS an op_impl, whose kernels read
 * from their tensors whether activations are f32, bf16 or f16. Parts of a set: variant.h. */
#ifndef OP_CPU_OPS_H
#define OP_CPU_OPS_H

#include "op/cpu/variant.h"
#include "op/op.h"

/* clang-format off */
#define CPU_PRODUCTS(X)                                                                            \
    X(LINEAR, linear)                                                                              \
    X(HEAD_CE, head_ce)                                                                            \
    X(HEAD_DISTILL, head_distill)                                                                    \
    X(HEAD_NLL, head_nll)
#define CPU_OTHERS(X)                                                                              \
    X(BIAS, bias)                                                                                  \
    X(HEAD_STATS, head_stats)                                                                      \
    X(HEAD_GRAD, head_grad)                                                                        \
    X(ATTENTION, attention)                                                                        \
    X(LATENT_KV, latent_kv)                                                                        \
    X(HEADWISE, headwise)                                                                          \
    X(DELTA, delta)                                                                                \
    X(DELTA_STATE, delta_state)                                                                    \
    X(DELTA_GATES, delta_gates)                                                                    \
    X(CONV, conv)                                                                                  \
    X(CONV_STATE, conv_state)                                                                      \
    X(PAGE_STORE, page_store)                                                                      \
    X(PAGE_ATTENTION, page_attention)                                                              \
    X(RMSNORM, rmsnorm)                                                                            \
    X(LAYERNORM, layernorm)                                                                        \
    X(RMSNORM_RANKS, rmsnorm_ranks)                                                                \
    X(LAYERNORM_RANKS, layernorm_ranks)                                                            \
    X(ROPE, rope)                                                                                  \
    X(NORM_ROPE, norm_rope)                                                                        \
    X(ACT, act)                                                                                    \
    X(GATED, gated)                                                                                \
    X(SCALE, scale)                                                                                \
    X(ADD, add)                                                                                    \
    X(COPY, copy)                                                                                  \
    X(EMBED, embed)                                                                                \
    X(TAKE_ROWS, take_rows)                                                                        \
    X(DROPOUT, dropout)                                                                            \
    X(EXPERT_LINEAR, expert_linear)                                                                \
    X(EXPERT_SUM, expert_sum)
#define CPU_OF_F32(X) X(FIXED_ADD, fixed_add)
/* clang-format on */

#if defined(CPU_ONLY_AMX)
#define CPU_OPS(X) X(ATTENTION, attention)
#elif defined(CPU_ONLY_PRODUCTS)
#define CPU_OPS(X) CPU_PRODUCTS(X)
#elif defined(CPU_ONLY_BF16)
#define CPU_OPS(X) CPU_PRODUCTS(X) CPU_OTHERS(X)
#else
#define CPU_OPS(X) CPU_PRODUCTS(X) CPU_OTHERS(X) CPU_OF_F32(X)
#endif

#define CPU_OP_DECLARE(ID, name) extern const op_impl CPU_FN(cpu_##name);
CPU_OPS(CPU_OP_DECLARE)
#undef CPU_OP_DECLARE

/* Threads of the device that runs a call. */
static inline int call_threads(const op_call *c) {
    return dev_threads(c->run->dev);
}

/* Waking threads costs up to tens of microseconds, and so does work of this size. */
enum { SMALL_LOOP = 1 << 15, SMALL_PRODUCT = 1 << 21 }; /* elements; multiply-adds */

/* Threads for a loop over so many elements. */
static inline int loop_threads(const op_call *c, int64_t elements) {
    return elements < SMALL_LOOP ? 1 : call_threads(c);
}

#endif
