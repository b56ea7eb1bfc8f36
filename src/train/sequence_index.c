/* See sequence_index.h. */
#include "train/sequence_index.h"

#include "base/file.h"

static uint64_t data_of(const loader *l) {
    uint64_t hash = 0;
    for (int i = 0; i < loader_n_sources(l); i++) {
        const uint64_t one[] = {hash, loader_source_shards(l, i)->fingerprint,
                                loader_source_sequences(l, i)};
        hash = hash_bytes(one, sizeof one);
    }
    return hash;
}

sequence_index sequence_index_new(arena *a, const loader *l) {
    sequence_index x = {.first = ARENA_ARRAY(a, uint64_t, loader_n_sources(l)), .data = data_of(l)};
    for (int i = 0; i < loader_n_sources(l); i++) {
        x.first[i] = x.n;
        x.n += loader_source_sequences(l, i);
    }
    return x;
}

uint64_t sequence_index_of(const sequence_index *x, const loader *l, uint64_t sample) {
    loader_place p = loader_place_of(l, sample);
    if (p.sequence >= loader_source_sequences(l, p.source)) return x->n;
    return x->first[p.source] + p.sequence;
}

bool sequence_index_fits(const sequence_index *x, const loader *l) {
    return !l || data_of(l) == x->data;
}
