/* Weights as a folder holds them: one model.safetensors, or shards of at most some size with an
 * index (model.safetensors.index.json), named and cut as transformers does. */
#ifndef IO_SHARDS_H
#define IO_SHARDS_H

#include "io/safetensors/safetensors.h"

/* Writes all tensors, in their order. A shard is larger than max_bytes (0: no bound) only where a
 * single tensor is. *n_files (may be NULL) is how many files hold them. What was written stays
 * behind on failure: the folder is the caller's. */
status shards_write(const char *dir, const st_tensor *tensors, int64_t n, uint64_t max_bytes,
                    int *n_files, err *e) ATH_MUST_USE;

/* Whether it may be the name of a file that shards_write writes. */
bool shards_may_be(const char *name);

#endif
