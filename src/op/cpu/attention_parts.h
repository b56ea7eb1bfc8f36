/* The parts of attention (`one`: forward of a single query), which attention_fwd.c joins into the op. */
#ifndef OP_CPU_ATTENTION_PARTS_H
#define OP_CPU_ATTENTION_PARTS_H

#include "op/cpu/variant.h"
#include "op/op.h"

void CPU_FN(attention_one)(const op_call *c);
void CPU_FN(attention_bwd)(const op_call *c);
int64_t CPU_FN(attention_one_floats)(const op_attr *at);
int64_t CPU_FN(attention_bwd_floats)(const op_attr *at, int threads);

#endif
