/* The limits of this machine: arithmetic, what MFU is a share of, and memory. */
#ifndef OP_PEAK_H
#define OP_PEAK_H

#include "base/dtype.h"
#include "dev/dev.h"

/* FLOP/s (a multiply-add as two) of a loop that only multiplies and adds in registers: the best of
 * 16 runs of about 40 us on one thread, times the threads of the device. One thread, because a busy
 * machine may hold back the second for longer than a run. For bf16 the loop of bf16 dot products
 * where the machine has them. Nothing that computes can be faster. */
double peak_flops(const dev *d, dtype dt);

/* Bytes per second between memory and all threads of the device: the faster of plain reading and of
 * scaling in place (a word read and a word written), best of 10, over an array far larger than the
 * caches. Takes 64 to 256 MiB for about half a second; ST_MEMORY when they are not there. */
status peak_bandwidth(dev *d, double *bytes_per_s, err *e) ATH_MUST_USE;

#endif
