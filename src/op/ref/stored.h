/* Matrices in another format than the activations (base/quant.h): a piece of a row at a time as
 * floats. */
#ifndef OP_REF_STORED_H
#define OP_REF_STORED_H

#include "base/quant.h"
#include "op/ref/ref.h"

enum { PIECE = 256 }; /* a multiple of every block */

/* Elements [first, first + n) of row r; n <= PIECE. */
static inline void stored_read(const tensor *w, int64_t r, int64_t first, int64_t n, float *dst) {
    const char *row = (const char *)w->data + r * dtype_span_bytes(w->dt, w->ld);
    quant_to_f32(quant_by_dtype(w->dt), dst, row + dtype_span_bytes(w->dt, first), n);
}

#define FOR_PIECES(cols, first, n)                                                                 \
    for (int64_t first = 0, n; n = (cols) - (first) < PIECE ? (cols) - (first) : PIECE, n > 0;     \
         first += PIECE)

#endif
