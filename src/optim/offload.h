/* Optimizer state that lies in a file instead of memory (parallel.offload).
 *
 * The arrays of states are cut into windows: successive elements of the piece that this rank owns of
 * one unit. Two slots in the device's memory take turns. While the window in one slot is updated, a
 * thread writes back what is in the other and reads the next window into it:
 *
 *   thread   read 0 A, read 1 B, | write 0 A, read 2 A | write 1 B, read 3 B | ...
 *   update                       | 0 in A              | 1 in B              | 2 in A ...
 *
 * An update of each element alone gives the same bits, however the elements are cut.
 *
 * The file loses its name as soon as it is open, so nothing is left of it, however the process ends:
 * after a crash a run goes on from its checkpoint, which holds the state as ever.
 *
 * The first error of the disk stays. It is told by the next call that waits for the file, and what is
 * in memory is of no use from then on. */
#ifndef OPTIM_OFFLOAD_H
#define OPTIM_OFFLOAD_H

#include "optim/optim.h"

typedef struct offload offload;

/* Bytes of both slots, for so many elements in each of n_states arrays. */
int64_t offload_slot_bytes(int64_t elems, int n_states);

/* path: of a file that is made, filled with zeros, and removed. slots: memory of device d. */
status offload_open(offload **out, const optim_class *c, const param_store *s, dev *d, float *slots,
                    const char *path, err *e) ATH_MUST_USE;
void offload_close(offload *o); /* NULL is fine */

/* Begins to read the first windows, which the coming update will want. */
void offload_fetch(offload *o);
/* One update of all that this rank owns of a unit; units come in their order. */
status offload_update(offload *o, int unit, const bool *decay, const optim_hyper *h,
                      uint64_t *digest, err *e) ATH_MUST_USE;

/* n elements of state number `state` from element `at` on, in the numbering of arrays of states: for
 * checkpoints. Both wait for all that has been begun; what was fetched is given up. */
status offload_read(offload *o, int state, int64_t at, float *to, int64_t n, err *e) ATH_MUST_USE;
status offload_write(offload *o, int state, int64_t at, const float *from, int64_t n,
                     err *e) ATH_MUST_USE;
/* All states are 0 again. */
status offload_clear(offload *o, err *e) ATH_MUST_USE;

#endif
