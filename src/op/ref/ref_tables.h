/* The reference kernels, one table per storage format, indexed by op_kind. */
#ifndef OP_REF_REF_TABLES_H
#define OP_REF_REF_TABLES_H

#include "op/op.h"

extern const op_impl *const op_ref_table_f32[OP_COUNT];
extern const op_impl *const op_ref_table_bf16[OP_COUNT];
extern const op_impl *const op_ref_table_f16[OP_COUNT];
extern const op_impl *const op_ref_table_f64[OP_COUNT];

#endif
