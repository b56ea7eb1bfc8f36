/* Best fit decreasing: items of 1..T go, largest first, each into the fullest bin that still has
 * room for it. O(n log T) time; 20 bytes for each item and 4 T. */
#ifndef DATA_BESTFIT_H
#define DATA_BESTFIT_H

#include <stdint.h>

typedef struct bestfit bestfit;

bestfit *bestfit_new(int T, int32_t max_items);
void bestfit_free(bestfit *b);
/* Packs n items. Returns the number of bins; items[0..n) are the items bin by bin, and bin k ends
 * before items[ends[k]]. All valid until the next call. */
int32_t bestfit_pack(bestfit *b, const uint32_t *len, int32_t n, const int32_t **items,
                     const int32_t **ends);

#endif
