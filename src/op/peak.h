/* The limits of this machine: its arithmetic, of which MFU is a share, and its memory. */
#ifndef OP_PEAK_H
#define OP_PEAK_H

#include "base/dtype.h"
#include "dev/dev.h"

/* FLOP/s (a multiply-add as two) of a loop that only multiplies and adds in registers: the best of
 * 16 runs of about 40 us on one thread, times the threads of the device. One thread, because on a
 * busy machine a second one may have to wait for longer than a run takes. For bf16 it is the loop
 * of bf16 dot products, if the machine has these. No kernel can be faster. Of a GPU: what its
 * multiprocessors can do at their highest clock; of an emulated one: what the CPU can. */
double peak_flops(const dev *d, dtype dt);

/* Bytes per second between memory and all threads of the device: the faster of plain reading and of
 * scaling in place (a word read and a word written), over an array far larger than the caches: the
 * best of as many runs as fit into `seconds`, two at least. Uses 64 to 256 MiB; ST_MEMORY: that much
 * is not free. */
status peak_bandwidth(dev *d, double seconds, double *bytes_per_s, err *e) ATH_MUST_USE;

/* Bytes that the caches of all cores hold together, as the system says; and all caches that they share, as far as reading is faster
 * than from memory: from the near ones up to the array of peak_bandwidth. Virtual machines report caches of
 * the whole host, of which they have a share. */
double peak_near_bytes(const dev *d);
status peak_cache_bytes(dev *d, double *bytes, err *e) ATH_MUST_USE;

#endif
