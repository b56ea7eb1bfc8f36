/* For ops that are made of calls of other kernels, with collectives in between. Their arrays lie on the device
 * of the run, and what they do there is given in order: kernels are those of the device, and bytes do not come to the host. Where the
 * host reaches the arrays, all is done at once. */
#ifndef OP_INNER_H
#define OP_INNER_H

#include "op/op.h"

/* Runs a kernel of op_find_of_kind, of this device. */
void inner_run(op_fn fn, const op_call *inner);
void inner_copy(const op_call *c, void *to, const void *from, size_t bytes);
void inner_clear(const op_call *c, void *at, size_t bytes);
/* Between the host's own memory and the arrays. A look waits, and stays until the next. */
void inner_put(const op_call *c, void *to, const void *host, size_t bytes);
const void *inner_look(const op_call *c, const void *at, size_t bytes);
/* Rows first, first + 1, ... of t, to or from rows that lie one behind the other. */
void inner_copy_rows(const op_call *c, const tensor *t, int64_t first, int64_t n, void *packed,
                     bool pack);
void inner_clear_rows(const op_call *c, const tensor *t, int64_t first, int64_t n);

#endif
