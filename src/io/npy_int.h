/* For readers of .npy and .npz files. */
#ifndef IO_NPY_INT_H
#define IO_NPY_INT_H

#include <stddef.h>

#include "io/npy.h"

/* The bytes of a .npy file. On an error *out may have data, which npy_i32_free frees. */
status npy_parse_i32(npy_i32 *out, const uint8_t *data, size_t len, err *e) ATH_MUST_USE;

#endif
