/* Values of the sequences of a stage's data, numbered through all its sources. They hold as long as the sequences are the same
 * in each epoch, and the data those of which the values are. */
#ifndef TRAIN_SEQUENCE_INDEX_H
#define TRAIN_SEQUENCE_INDEX_H

#include "data/order/loader.h"

typedef struct sequence_index {
    uint64_t *first; /* [sources] number of the first sequence of each */
    uint64_t n;      /* sequences of all */
    uint64_t data;   /* hash of the fingerprints of the sources */
} sequence_index;

sequence_index sequence_index_new(arena *a, const loader *l);
/* The number of the sequence of a sample of a loader over the same data; n: it is padding behind the last one. */
uint64_t sequence_index_of(const sequence_index *x, const loader *l, uint64_t sample);
/* Whether a loader has the data of the index; NULL has. */
bool sequence_index_fits(const sequence_index *x, const loader *l);

#endif
