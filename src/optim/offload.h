/* What of a model lies in a file instead of memory (parallel.offload): states of the optimizer, masters,
 * and what ZeRO-3 gathers.
 *
 * The file has arrays of pieces (param/units.h), one after the other. Where the optimizer works on them they are
 * cut into windows: successive elements of the piece that this rank owns of one unit, in all arrays. Two slots in the
 * device's memory take turns. While the window in one slot is updated, a thread writes back what is in the
 * other and reads the next window into it:
 *
 *   thread   read 0 A, read 1 B, | write 0 A, read 2 A | write 1 B, read 3 B | ...
 *   update                       | 0 in A              | 1 in B              | 2 in A ...
 *
 * An update of each element alone gives the same bits, however the elements are cut. What ZeRO-3 gathers needs no
 * memory of its own: the thread reads the piece to its place in the unit's slot.
 *
 * The file loses its name as soon as it is open, so nothing is left of it, however the process ends:
 * after a crash a run goes on from its checkpoint, which holds everything as ever.
 *
 * The first error of the disk stays. It is told by the next call that waits for the file, and what is
 * in memory is of no use from then on. */
#ifndef OPTIM_OFFLOAD_H
#define OPTIM_OFFLOAD_H

#include "optim/optim.h"

/* The words of parallel.offload: OPTIMIZER is all that only the optimizer needs, which are the states and, where programs
 * compute in 16 bits, the masters. WEIGHTS are masters and work copies, in ZeRO-3. */
enum { OFFLOAD_OPTIMIZER = 1, OFFLOAD_WEIGHTS = 2 };

/* Arrays by number: states 0, 1, ...; then these. */
enum { OFFLOAD_MASTERS = OPTIM_MAX_STATES, OFFLOAD_WORK, OFFLOAD_ARRAYS };

typedef struct offload offload;

/* What is in the file. */
typedef struct offload_content {
    int64_t elems; /* of each array: this rank's pieces of what is trained */
    int n_states;  /* 0: they lie in memory */
    dtype state_dt;
    bool masters;
    int copy_bytes; /* of an element of the work copies; 0: they lie in memory, or there are none */
} offload_content;
/* `what`: the words, or-ed. frozen: some parameters are, whose masters stay in memory. */
offload_content offload_content_of(unsigned what, dtype compute, bool frozen, int64_t elems,
                                   int n_states, dtype state_dt);
int64_t offload_slot_bytes(const offload_content *c); /* of both slots */
int64_t offload_file_bytes(const offload_content *c);

typedef struct offload_memory {
    void *slots;                   /* on the device of the store */
    void *state[OPTIM_MAX_STATES]; /* of states that are not in the file */
} offload_memory;

/* s: a store that is bound. path: of a file that is made, filled with zeros, and removed. */
status offload_open(offload **out, const optim_class *c, param_store *s,
                    const offload_content *content, const offload_memory *memory, const char *path,
                    err *e) ATH_MUST_USE;
void offload_close(offload *o); /* NULL is fine */
/* The first error of the disk so far; o NULL: none. */
status offload_check(offload *o, err *e) ATH_MUST_USE;

/* Begins to read the first windows, which the coming update will want. */
void offload_fetch(offload *o);
/* One update of all that this rank owns of a unit; units come in their order. */
status offload_update(offload *o, int unit, const bool *decay, const optim_hyper *h,
                      uint64_t *digest, err *e) ATH_MUST_USE;

/* Begins to read this rank's piece of a unit to its slot (param_weights_transfer). offload_await_piece waits until it is
 * there, on any thread; ctx: what offload_begin_piece returned. */
void *offload_begin_piece(offload *o, int unit);
void offload_await_piece(void *ctx);

/* n elements, as they are stored, of array k from element `at` on, in the numbering of pieces: for
 * checkpoints. Both wait for all that has been begun; what was fetched is given up. */
status offload_read(offload *o, int k, int64_t at, void *to, int64_t n, err *e) ATH_MUST_USE;
status offload_write(offload *o, int k, int64_t at, const void *from, int64_t n,
                     err *e) ATH_MUST_USE;
/* All states in the file are 0 again. */
status offload_clear(offload *o, err *e) ATH_MUST_USE;

/* Bytes that the thread has moved. Waits for all that has been begun. */
typedef struct offload_counts {
    int64_t read_bytes, written_bytes;
} offload_counts;
offload_counts offload_counted(offload *o);
/* Those of a step that gathers so many bytes of pieces from the file, and updates everything. The store may have no
 * memory. */
offload_counts offload_step_bytes(const offload_content *c, const param_store *s,
                                  int64_t pieces_bytes);

#endif
