/* Matrix products by oneDNN, the second implementation behind gemm.h. */
#ifndef OP_GEMM_ONEDNN_H
#define OP_GEMM_ONEDNN_H

#include "op/gemm.h"

typedef struct onednn_cache onednn_cache;

/* Starts nothing: the library is initialised by the first product. */
onednn_cache *onednn_cache_new(int threads);
void onednn_cache_free(onednn_cache *c);

/* Workspace for a product of this shape with any layout of dense operands, added to C or not: what
 * oneDNN says for these threads. Operands with gaps between their rows need none. */
int64_t onednn_ws_bytes(onednn_cache *c, int64_t m, int64_t n, int64_t k, dtype ab_dt, dtype c_dt);
/* False: oneDNN has no such product, or its scratchpad does not fit ws_bytes; nothing was done. */
bool onednn_run(onednn_cache *c, const gemm_args *g, void *ws, int64_t ws_bytes);

#endif
