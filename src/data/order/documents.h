/* All documents of a set, one after the other: bounds and scores, with or without an index. Memory
 * is a block of them. */
#ifndef DATA_DOCUMENTS_H
#define DATA_DOCUMENTS_H

#include "data/shard/shards.h"

typedef struct documents documents;

typedef struct document_bounds {
    uint64_t first_tok, end_tok;
    float score; /* NaN: none */
} document_bounds;

documents *documents_new(const shards *s);
void documents_free(documents *d);
/* *more = false at the end. ST_FORMAT: bounds that are not ascending, or unreadable files. */
status documents_next(documents *d, document_bounds *out, bool *more, err *e) ATH_MUST_USE;

#endif
