/* Register-only loops for op/peak.h. Each returns the FLOPs it did. */
#ifndef OP_CPU_PEAK_LOOP_H
#define OP_CPU_PEAK_LOOP_H

#include <stdint.h>

#include "op/cpu/variant.h"

double CPU_FN(peak_fma_loop)(int threads, int64_t rounds);
double CPU_FN(peak_dot_loop)(int threads, int64_t rounds);

#endif
