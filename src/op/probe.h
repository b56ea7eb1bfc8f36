/* The probe: measures what auto needs to know of this machine, in a fraction of a second, also while
 * others use it.
 *
 * Products run on one thread and are timed by that thread's processor time, which does not pass while
 * another program has the core. Candidates take turns in slices of some milliseconds, and each is
 * judged by its best slice: caches that a neighbour has emptied make a slice slower, never faster.
 * Only ratios are used. */
#ifndef OP_PROBE_H
#define OP_PROBE_H

#include "op/machine.h"

enum { PROBE_LAYERS = 2 };

/* The layers that stand for those of a model: cut to sizes at which a product shows its rate, the two
 * of most work (rows * in * width, summed over layers[n]). Most models of width 512 and more are one
 * and the same layer. Returns how many. */
int probe_pick(const machine_layer *layers, int n, machine_layer out[PROBE_LAYERS]);
/* The layer of such models. */
machine_layer probe_usual_layer(void);

/* Whether what is measured holds for the device: it computes with the CPU's kernels. */
bool probe_applies(const dev *d);
/* Whether f lacks something that probe_run would measure for these layers. */
bool probe_is_needed(const machine_facts *f, const machine_layer *layers, int n);
/* Measures what f lacks for these layers, as probe_pick gave them. It takes less than `seconds`, but
 * where a neighbour leaves too little of them for three slices of each. f: as read for a CPU.
 * ST_MEMORY: there are not some 20 MB of it. */
status probe_run(machine_facts *f, const machine_layer *layers, int n, double seconds,
                 err *e) ATH_MUST_USE;
/* Measures the bandwidth of memory, on which nothing is decided. ST_MEMORY: see op/peak.h. */
status probe_memory(machine_facts *f, double seconds, err *e) ATH_MUST_USE;

#endif
