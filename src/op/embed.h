/* Which row of the table an EMBED reads, and to which its gradient goes: the same in every kernel.
 */
#ifndef OP_EMBED_H
#define OP_EMBED_H

#include "op/op.h"

/* The row that position n reads in this rank's part of the table; negative: another rank has it. */
static inline int64_t embed_row(const op_call *c, int64_t n) {
    const tensor *table = &c->in[0], *ids = &c->in[1];
    int64_t id = ((const int32_t *)ids->data)[n * ids->ld];
    int64_t rows = c->attr->embed.all_rows ? c->attr->embed.all_rows : table->rows;
    CHECK(id >= 0 && id < rows, "embed: id %lld is outside the table of %lld rows", (long long)id,
          (long long)rows);
    int64_t row = id - c->attr->embed.first;
    return row < table->rows ? row : -1;
}

/* The row to which the gradient of position n goes; negative: it goes nowhere. */
static inline int64_t embed_grad_row(const op_call *c, int64_t n) {
    const tensor *ids = &c->in[1];
    int64_t id = ((const int32_t *)ids->data)[n * ids->ld];
    return id == c->attr->embed.no_grad_id ? -1 : embed_row(c, n);
}

#endif
