/* The span input of DELTA_STATE and CONV_STATE: which rows of a call are a sequence's (ops.def). */
#ifndef OP_SPAN_H
#define OP_SPAN_H

#include "op/op.h"

typedef struct op_span {
    int64_t pos, rows,
        first;   /* position of its first row; how many there are; which row of the call that is */
    int64_t pad; /* rows behind them that are 0 */
} op_span;

/* Of sequence b of B. T: rows of each sequence; with by_row of all, of which the last sequence gets those that are nobody's. */
static inline op_span span_at(const tensor *spans, bool by_row, int64_t b, int64_t B, int64_t T) {
    const int32_t *s = (const int32_t *)spans->data + b * spans->ld;
    if (!by_row) return (op_span){s[0], s[1], b * T, T - s[1]};
    op_span k = {s[0], s[1], s[1] ? s[2] : 0, 0};
    if (b + 1 < B) return k;
    k.pad = T;
    for (int64_t i = 0; i < B; i++) k.pad -= ((const int32_t *)spans->data)[i * spans->ld + 1];
    return k;
}

/* The first row that pads. */
static inline int64_t span_end(const op_span *k, bool by_row, int64_t T) {
    return by_row ? T - k->pad : k->first + k->rows;
}

#endif
