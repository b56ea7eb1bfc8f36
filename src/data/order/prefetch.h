/* The next step's rows, read by a thread while this step computes. The rows are those of
 * loader_fill: reading ahead changes when files are read, never what a row holds.
 *
 * One thread, the owner, calls, for each step: prefetch_expect (early: what the next step will be),
 * prefetch_begin (waits until the step is there), prefetch_take for each micro-batch in order.
 *
 * Memory is that of one step's micro-batches (prefetch_bytes): each one that is taken makes room
 * for one of the next step. The thread sleeps when there is nothing to read, and takes no signals.
 * Errors are noted by the loader: ask loader_error. */
#ifndef DATA_PREFETCH_H
#define DATA_PREFETCH_H

#include "data/order/loader.h"

typedef struct prefetch prefetch;

/* B: rows of a micro-batch. batch: rows of a step, at most. start: starts are read, too. */
prefetch *prefetch_new(loader *l, int B, int64_t batch, bool start);
void prefetch_free(prefetch *p); /* waits for the thread; NULL is fine */
/* Bytes that a prefetch of this shape holds, with sources of S tokens. */
size_t prefetch_bytes(int B, int T, int S, int64_t batch, bool start);

/* Says that the next step will be n samples from `first` on, so that they are read ahead. A
 * prefetch_begin of any other step is allowed, too: it is only slower. */
void prefetch_expect(prefetch *p, uint64_t first, int64_t n);
/* Begins a step: waits until it is there, and gives the number of its targets. */
int64_t prefetch_begin(prefetch *p, uint64_t first, int64_t n);
/* Copies micro-batch m of the step that has begun; the last one of a step may have fewer rows than
 * B. Arrays that are NULL are not wanted; pos counts from start, if that is given. In order; some may
 * be passed over. */
void prefetch_take(prefetch *p, int m, const loader_rows *to);

#endif
