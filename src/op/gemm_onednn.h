/* Matrix products by oneDNN, the second implementation behind gemm.h. */
#ifndef OP_GEMM_ONEDNN_H
#define OP_GEMM_ONEDNN_H

#include "op/gemm.h"

typedef struct onednn_cache onednn_cache;

/* Starts nothing: the library is initialised by the first product. */
onednn_cache *onednn_cache_new(int threads);
void onednn_cache_free(onednn_cache *c);

/* False: oneDNN has no such product, or its scratchpad does not fit ws_bytes; nothing was done. */
bool onednn_run(onednn_cache *c, const gemm_args *g, void *ws, int64_t ws_bytes);

#endif
