/* Where the rows of a GGUF file's tensors are in a store of Hugging Face order. The two differ in
 * which of q, k, v and of gate, up are one tensor, in the order of rotated rows, and in the 1 that
 * files add to norm weights of the kind (1 + w). */
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
/* Row i of a matrix, element i of a vector, of a tensor declared from `file`: its place in the
 * store's masters. NULL: the store has no such parameter. */
float *gguf_rows_at(const gguf_rows *r, const param *p, int64_t i);
/* What the file's vector has added to each element. */
float gguf_rows_offset(const gguf_rows *r, const param *p);

#endif
