/* Matrices in another format than the activations (base/quant.h): a piece of a row at a time as
 * floats. */
#ifndef OP_REF_STORED_H
#define OP_REF_STORED_H

#include "base/fp8.h"
#include "base/nf4.h"
#include "base/quant.h"
#include "op/ref/ref.h"

enum { PIECE = 256 }; /* a multiple of every block */

/* Elements [first, first + n) of row r; n <= PIECE. */
static inline void stored_read(const tensor *w, int64_t r, int64_t first, int64_t n, float *dst) {
    const char *row = (const char *)w->data + r * dtype_span_bytes(w->dt, w->ld);
    if (w->dt == DT_FP8) {
        fp8_row_read((const fp8_row *)(const void *)row, first, n, dst);
        return;
    }
    if (w->dt == DT_NF4) {
        nf4_row_read(row, first, n, dst);
        return;
    }
    quant_to_f32(quant_by_dtype(w->dt), dst, row + dtype_span_bytes(w->dt, first), n);
}

#define FOR_PIECES(cols, first, n)                                                                 \
    for (int64_t first = 0, n; n = (cols) - (first) < PIECE ? (cols) - (first) : PIECE, n > 0;     \
         first += PIECE)

/* x . row o of w, which may have the format of x or another. */
static inline ACC stored_dot(const STORE *x, dtype dt, const tensor *w, int64_t o) {
    if (w->dt == dt) return dot(x, row_of(w, o), w->cols);
    ACC sum = 0;
    float piece[PIECE];
    FOR_PIECES(w->cols, first, len) {
        stored_read(w, o, first, len, piece);
        for (int64_t i = 0; i < len; i++) sum += (ACC)load(x[first + i]) * (ACC)piece[i];
    }
    return sum;
}

/* dx[n,:] = dy[n,:] w, of a w in another format. */
static inline void stored_give(const tensor *dy, const tensor *w, const tensor *dx, int64_t n,
                               bool add) {
    float piece[PIECE];
    FOR_PIECES(dx->cols, first, len) {
        ACC acc[PIECE] = {0};
        for (int64_t o = 0; o < dy->cols; o++) {
            ACC by = load(row_of(dy, n)[o]);
            stored_read(w, o, first, len, piece);
            for (int64_t i = 0; i < len; i++) acc[i] += by * (ACC)piece[i];
        }
        for (int64_t i = 0; i < len; i++) put(row_of(dx, n) + first + i, acc[i], add);
    }
}

#endif
