/* ATTENTION as an op: forward and backward are in attention_fwd.c (attention_one.c) and
 * attention_bwd.c, what they share in attention.h. */
#include "op/cpu/attention_parts.h"
#include "op/cpu/ops.h"

static bool single_query(const op_attr *at) {
    return at->attention.Tq == 1 && at->attention.dropout == 0.0f;
}

static void attention_workspace(const op_infer *io, int64_t ws[3]) {
    int threads = dev_threads(io->dev);
    int64_t floats = single_query(io->attr) ? CPU_FN(attention_one_floats)(io->attr)
                                            : CPU_FN(attention_fwd_floats)(io->attr, threads);
    ws[0] = floats * (int64_t)sizeof(float);
    ws[1] = CPU_FN(attention_bwd_floats)(io->attr, threads) * (int64_t)sizeof(float);
}

static void attention_fwd(const op_call *c) {
    single_query(c->attr) ? CPU_FN(attention_one)(c) : CPU_FN(attention_fwd)(c);
}

const op_impl CPU_FN(cpu_attention) = {attention_fwd, CPU_FN(attention_bwd), NULL,
                                       attention_workspace};
