/* The arithmetic limit of this machine: what MFU is a share of. */
#ifndef OP_PEAK_H
#define OP_PEAK_H

#include "base/dtype.h"
#include "dev/dev.h"

/* FLOP/s (a multiply-add as two) of a loop that only multiplies and adds in registers: the best of
 * 16 runs of about 40 us on one thread, times the threads of the device. One thread, because a busy
 * machine may hold back the second for longer than a run. For bf16 the loop of bf16 dot products
 * where the machine has them. Nothing that computes can be faster. */
double peak_flops(const dev *d, dtype dt);

#endif
