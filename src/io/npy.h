/* NumPy's .npy files: token ids in, logits out. Versions 1 to 3, C order, little-endian only. */
#ifndef IO_NPY_H
#define IO_NPY_H

#include "base/status.h"

#define NPY_MAX_RANK 4

typedef struct npy_i32 {
    int32_t *data; /* free with npy_i32_free */
    int rank;
    int64_t dims[NPY_MAX_RANK];
    int64_t numel;
} npy_i32;

/* int32, or int64 whose values all fit. */
status npy_read_i32(npy_i32 *out, const char *path, err *e) ATH_MUST_USE;
/* Array `name` of an .npz file. */
status npz_read_i32(npy_i32 *out, const char *path, const char *name, err *e) ATH_MUST_USE;
void npy_i32_free(npy_i32 *a);
/* Atomically writes an fp32 array. */
status npy_write_f32(const char *path, const float *data, int rank, const int64_t *dims,
                     err *e) ATH_MUST_USE;

#endif
