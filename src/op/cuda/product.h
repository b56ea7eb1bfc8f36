/* Matrix products on CUDA devices, by cuBLASLt: C = A B (+ bias) (+ what is added), or C = A B gelu'(slope_at), rows
 * one after the other, with sums in float (no TF32). */
#ifndef OP_CUDA_PRODUCT_H
#define OP_CUDA_PRODUCT_H

#include "dev/cuda.h"
#include "op/op.h"

typedef struct cuda_product {
    int64_t m, n, k;
    const void *a, *b; /* A [m,k], or [k,m] when a_trans; B [k,n], or [n,k] when b_trans */
    int64_t lda, ldb;
    bool a_trans, b_trans;
    dtype ab_dt; /* f32, bf16 or f16, both operands */
    void *c;     /* C [m,n]; c_dt is f32 or ab_dt */
    int64_t ldc;
    dtype c_dt;
    const void *bias; /* [n] of c_dt, aligned to 16 bytes; NULL: none */
    const void *add;  /* [m,n] of c_dt, maybe C itself with ldc; NULL: nothing */
    int64_t ld_add;
    const void *
        slope_at; /* [m,n] of c_dt, with neither bias nor add; gelu is the one with tanh. NULL: no slope */
    int64_t ld_slope;
} cuda_product;

/* Workspace of a product of this size, the same on every device: room for four parts of C in float,
 * which serve where k is long and C small; at most 32 MiB, with which NVIDIA's largest kernels
 * are content. A meta device plans it as it will be. */
int64_t cuda_product_ws_bytes(int64_t m, int64_t n);
/* Whether the library has this product, which has a slope: of 16 bits, aligned to 16 bytes, as far as is known. */
bool cuda_product_has_slope(dev *d, const cuda_product *p);
/* Gives the product to the device. ws has that size and is aligned to 64. What fails is noted on the
 * device. When a shape first comes in a run without other ranks, the algorithms are timed, unless a
 * file remembers them (product_choice.h); so bits may differ from machine to machine, and between
 * the first run on a machine and others, but not within a run. Other ranks would have to take the
 * same algorithms: with several only those are taken that the file remembers. */
void cuda_product_run(const op_run *run, const cuda_product *p, void *ws);
/* From now on the first algorithm of the library's own list computes every product, whatever was
 * measured: the bits depend on the library and the GPU alone. */
void cuda_product_use_first(dev *d);
/* Times the algorithms of a product whose C may be overwritten, also on the emulated device, where
 * all are as fast; remembers the choice and returns it, or -1. */
int cuda_product_measure(dev *d, const cuda_product *p, void *ws);

#endif
