/* A burn-in: a device works for some seconds on what has a known result, so that a card or a core that
 * computes wrongly, keeps memory badly, or is slow is found before a run is.
 *
 * Products: x[n,i] = a[n] s[i] and w[o,i] = b[o] s[i] with small integers a, b and signs s, so that every
 * element of x w^T is I a[n] b[o], and exact in any order of sums. They are our own LINEAR, as in
 * training. Memory: chunks are filled with bytes, and read back when all are filled. */
#ifndef OP_BURNIN_H
#define OP_BURNIN_H

#include "dev/dev.h"

enum { BURNIN_WRONG_MAX = 160 };

typedef struct burnin_result {
    char wrong
        [BURNIN_WRONG_MAX]; /* the first number that was not as it must be; "": all were right */
    int64_t products;
    double first_flops, last_flops; /* FLOP/s, the best of the first second and of the last; 0: this
                                       device has no time of its own */
    double memory_bytes;            /* filled and read back */
    double in_bytes_per_s, out_bytes_per_s, within_bytes_per_s; /* copies; of a GPU */
} burnin_result;

/* Products for so many seconds, in bf16 on a GPU and in fp32 on a CPU. On a CPU the time is that of
 * the thread. */
status burnin_products(dev *d, double seconds, burnin_result *r, err *e) ATH_MUST_USE;
/* Of the memory that is free, nearly all of a GPU's and half of a machine's, as much as the time allows. */
status burnin_memory(dev *d, double seconds, burnin_result *r, err *e) ATH_MUST_USE;
/* Between a GPU and pinned memory of the host, and within the GPU. */
status burnin_copies(dev *d, burnin_result *r, err *e) ATH_MUST_USE;
/* Products on each of these processors at once, by a thread of its own; r[n]. */
status burnin_cores(double seconds, const int *cpu, int n, burnin_result *r, err *e) ATH_MUST_USE;

#endif
