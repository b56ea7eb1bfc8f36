/* Which kernel runs an op: the tuned one for the device's instruction set, else the reference.
 *
 * The reference is a complete implementation, so taking it is a choice of speed, never of result
 * type: there is no fallback to another dtype or device. */
#include "op/op.h"

#include <stdlib.h>
#include <string.h>

#include "op/ref/ref_tables.h"
#include "op/tuned.h"

static void do_nothing(const op_call *c) {
    (void)c;
}

static const op_impl meta_impl = {do_nothing, do_nothing, do_nothing, NULL};

static bool reference_forced(void) {
    const char *choice = getenv("ATHANOR_KERNELS");
    return choice && strcmp(choice, "reference") == 0;
}

const op_impl *op_find_reference(op_kind kind, dtype dt) {
    switch (dt) {
        case DT_F32: return op_ref_table_f32[kind];
        case DT_BF16: return op_ref_table_bf16[kind];
        case DT_F16: return op_ref_table_f16[kind];
        case DT_F64: return op_ref_table_f64[kind];
        default: return NULL;
    }
}

const op_impl *op_find_cpu(const dev *d, op_kind kind, dtype dt) {
    const op_impl *tuned = reference_forced() ? NULL : op_tuned_find(dev_isa(d), kind, dt);
    return tuned ? tuned : op_find_reference(kind, dt);
}

const op_impl *op_find(const dev *d, op_kind kind, dtype dt) {
    const op_impl *impl = op_find_cpu(d, kind, dt);
    return impl && dev_get_kind(d) == DEV_META ? &meta_impl : impl;
}
