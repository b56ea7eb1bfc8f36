/* Best fit decreasing: items of size 1..T go into bins of size T, largest first, each into the
 * fullest bin that still has room for it. O(n log T) time. Memory: 20 bytes for each item, and 4
 * for each size. */
#ifndef DATA_BESTFIT_H
#define DATA_BESTFIT_H

#include <stdint.h>

typedef struct bestfit bestfit;

bestfit *bestfit_new(int T, int32_t max_items); /* max_items: of one bestfit_pack */
void bestfit_free(bestfit *b);
/* Packs n items of sizes len[0..n). Returns the number of bins. *items: the n numbers of the items,
 * bin by bin; bin k ends before (*items)[(*ends)[k]]. Both are valid until the next call. */
int32_t bestfit_pack(bestfit *b, const uint32_t *len, int32_t n, const int32_t **items,
                     const int32_t **ends);

#endif
