/* The number formats of GGUF tensors: their table, and their conversion from and to float.
 *
 * A tensor is stored in blocks of `block` successive elements of a row, `bytes` bytes each; plain
 * formats are blocks of one. Blocks are little-endian and lie at any address.
 *
 *   F32 F16 BF16   plain numbers
 *   Q8_0           32 elements: f16 d, i8 q[32]                           x = d q
 *   Q4_0 Q5_0      32 elements of 4 or 5 bits: f16 d                      x = d (q - 8), d (q - 16)
 *   Q4_1 Q5_1      the same with a least value: f16 d, m                  x = d q + m
 *   Q4_K Q5_K      256 elements in 8 groups with 6-bit scales and minima: x = (d s) q - (dmin m)
 *   Q6_K           256 elements in 16 groups with 8-bit scales:           x = (d s) (q - 32)
 *
 * Products and sums are rounded one by one, in float, so the numbers are those of llama.cpp's
 * reference; so are the blocks that are written, for finite input. Any bytes are a valid block: a
 * scale that is NaN or infinite gives such numbers. */
#ifndef BASE_QUANT_H
#define BASE_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* As numbered in files. Others exist, too: files hold them, and nothing computes with them. */
typedef enum quant_type {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_BF16 = 30,
} quant_type;

typedef void quant_read_fn(float *dst, const uint8_t *src, int64_t n_blocks);
typedef void quant_write_fn(uint8_t *dst, const float *src, int64_t n_blocks);

typedef struct quant_format {
    uint32_t type;
    const char *name;      /* "Q4_K" */
    int32_t block, bytes;  /* elements and bytes of a block */
    quant_read_fn *read;   /* NULL: only its size is known */
    quant_write_fn *write; /* NULL: never written */
    dtype dt;              /* of a tensor; DT_COUNT: nothing computes with it */
} quant_format;

const quant_format *quant_by_type(uint32_t type);    /* NULL: no such format */
const quant_format *quant_by_name(const char *name); /* any case; NULL: no such format */

const quant_format *quant_by_dtype(dtype dt); /* NULL: f64 and integers */

/* n elements, a multiple of the block, of a format that has read. */
void quant_to_f32(const quant_format *f, float *dst, const void *src, int64_t n);
/* The same for one that has write. Returns whether the blocks say about what src says: false when a
 * number of src is not finite, or is beyond what the format can hold. F32 holds everything. */
bool quant_from_f32(const quant_format *f, void *dst, const float *src, int64_t n);

#endif
