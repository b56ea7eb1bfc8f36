/* Which row of x a TAKE_ROWS copies, and which places took a row: the same in every kernel. */
#ifndef OP_TAKE_ROWS_H
#define OP_TAKE_ROWS_H

#include "op/op.h"

/* The row that place n takes; negative: it gets zeros. */
static inline int64_t take_row(const op_call *c, int64_t n) {
    const tensor *rows = &c->in[1];
    int64_t row = ((const int32_t *)rows->data)[n * rows->ld];
    CHECK(row < c->in[0].rows, "take_rows: row %lld is outside x of %lld rows", (long long)row,
          (long long)c->in[0].rows);
    return row;
}

/* For each row a list of the places that took it, in order: it begins at first[row] and goes on by
 * next[place] until -1. So one thread can sum the gradient of a row. */
typedef struct take_places {
    int32_t *first; /* [rows of x] */
    int32_t *next;  /* [places] */
} take_places;

static inline int64_t take_places_bytes(const op_infer *io) {
    return (io->in[0].rows + io->in[1].rows) * (int64_t)sizeof(int32_t);
}

/* In the workspace of the call. */
static inline take_places take_find_places(const op_call *c) {
    take_places p = {.first = c->ws, .next = (int32_t *)c->ws + c->in[0].rows};
    for (int64_t m = 0; m < c->in[0].rows; m++) p.first[m] = -1;
    for (int64_t n = c->in[1].rows - 1; n >= 0; n--) {
        int64_t row = take_row(c, n);
        if (row < 0) continue;
        p.next[n] = p.first[row];
        p.first[row] = (int32_t)n;
    }
    return p;
}

#endif
