/* The table of this storage format. */
#include "op/ref/ref.h"
#include "op/ref/ref_tables.h"

#define OP(ID, ...) extern const op_impl REF_IMPL(ID);
#include "op/ops.def"
#undef OP

const op_impl *const REF_CAT(op_ref_, table, KERNEL_SUFFIX)[OP_COUNT] = {
#define OP(ID, ...) [OP_##ID] = &REF_IMPL(ID),
#include "op/ops.def"
#undef OP
};
