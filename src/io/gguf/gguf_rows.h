/* From rows of a GGUF file's tensors to rows of a store in the order of Hugging Face, for reading
 * and for writing. Three things differ:
 *   - which of q, k, v, and of gate, up, are one tensor
 *   - the order of rows that are rotated: pairs as neighbours, or in halves
 *   - norms of the kind (1 + w): the file holds 1 + w, the store w */
#ifndef IO_GGUF_ROWS_H
#define IO_GGUF_ROWS_H

#include "model/family.h"

typedef struct gguf_rows {
    const model_config *file, *hf;
    const param_store *store;      /* in the host's memory; declared from hf */
    struct gguf_rows_layer *layer; /* outside, then each */
} gguf_rows;

gguf_rows gguf_rows_new(arena *a, const model_config *file, const model_config *hf,
                        const param_store *store);
/* p: a tensor of the file, as declared from r->file. Where the store has its row i (element i of a
 * vector), in the masters. NULL: the store has no such parameter. */
float *gguf_rows_at(const gguf_rows *r, const param *p, int64_t i);
/* What the file adds to each number of this vector: 1 or 0. */
float gguf_rows_offset(const gguf_rows *r, const param *p);

#endif
