/* The arithmetic limit of this machine: what MFU is a share of. */
#ifndef OP_PEAK_H
#define OP_PEAK_H

#include "base/dtype.h"
#include "dev/dev.h"

/* FLOP/s (a multiply-add as two) of a loop that only multiplies and adds in registers, on all
 * threads of the device: the best of a few runs of about a millisecond. For bf16 the loop of bf16
 * dot products where the machine has them. Nothing that computes can be faster. */
double peak_flops(const dev *d, dtype dt);

#endif
