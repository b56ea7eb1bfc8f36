/* All threads at work on one stream of documents: one reads, one writes, all encode, and nobody
 * waits who could do one of these.
 *
 * Jobs lie in a ring in the order of the text. A thread that has nothing to do takes, in this
 * order: the writing of the oldest job if it is encoded (which frees room), the reading of the next
 * one if none is waiting to be encoded, the encoding of the oldest that waits. Reading and writing
 * are each done by one thread at a time. Memory is bounded by the ring.
 *
 * The first error in the order of the text ends it, whatever thread met which error first. */
#ifndef DATA_BUILD_PIPELINE_H
#define DATA_BUILD_PIPELINE_H

#include "data/build/job.h"

/* Where a build stands between two jobs. */
typedef struct build_place {
    reader_position at;      /* after a chunk */
    uint64_t document_bytes; /* of the next document (a text file) that were written, too */
} build_place;

typedef struct pipeline_options {
    job_rules rules;
    int threads;
    size_t part_bytes;
    build_place begin; /* the reader stands at begin.at */
    /* Writes a job's pieces; by one thread at a time, in order. `place` is NULL where the build
     * cannot be gone on with. */
    status (*write)(void *ctx, const job *j, const build_place *place, err *e);
    /* Before write, while nobody reads: the reader may be asked questions. `ahead`: bytes of text
     * that were read and not written. */
    void (*look)(void *ctx, const reader *r, uint64_t ahead);
    void *ctx;
} pipeline_options;

/* Until the end of the text. Errors: those of the reader, the tokenizer and `write`. */
status pipeline_run(reader *r, const pipeline_options *opt, err *e) ATH_MUST_USE;

#endif
