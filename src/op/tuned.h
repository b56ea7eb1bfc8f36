/* Where tuned CPU kernels join the op table. table.c asks here first and takes the reference when
 * the answer is NULL. An op_impl found here is complete: every entry that the reference has for
 * this op, and the workspace that these kernels need. */
#ifndef OP_TUNED_H
#define OP_TUNED_H

#include "op/op.h"

/* NULL: no tuned kernel for this op and activation dtype on this instruction set. Pure. */
const op_impl *op_tuned_find(cpu_isa isa, op_kind kind, dtype dt);

#endif
