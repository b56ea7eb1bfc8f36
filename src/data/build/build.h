/* `data build`: text files to token shards, with a validation split.
 *
 * OUT itself becomes the shard folder, or with a validation fraction OUT/train and OUT/valid do;
 * each holds a copy of the tokenizer. All threads read, encode and write; the bytes of the shards
 * depend on the inputs, the tokenizer and the options, never on the number of threads or on how
 * the work was cut. Memory: some parts of the text for each thread, and one part's tokens for each
 * of them; a document longer than a part is cut into parts where the tokenizer allows it. Where it
 * does not, two such documents and their tokens may be in memory, each of at most
 * reader.max_document_bytes; a longer one is refused.
 *
 * Nothing in OUT changes until the new set is complete: it grows in OUT/.build, with a record of
 * how far it is, and a build that is interrupted at any moment goes on there when it is started
 * again. Then the new files are renamed over the old ones, the manifest last. With `append` new
 * shards are written beside the old ones, which stand until the new manifest replaces the old.
 *
 * Reading order: build.c (the order of things), pipeline.h (all threads at work), job.h (what one
 * of them does), state.h (going on after an interruption), place.h (the exchange at the end). */
#ifndef DATA_BUILD_H
#define DATA_BUILD_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"
#include "data/build/labels.h"
#include "data/build/split.h"
#include "data/shard/shards.h"
#include "data/text/reader.h"
#include "tok/tok.h"

typedef struct data_progress {
    uint64_t bytes_begun;             /* by an earlier, interrupted build: no part of the rate */
    uint64_t bytes_done, bytes_total; /* of the inputs; total 0: unknown */
    uint64_t tokens, documents;
    double seconds;
} data_progress;

typedef struct data_build_options {
    reader_options reader;
    double valid_fraction; /* 0 <= f < 1; 0: no split */
    data_split split;
    uint64_t seed;
    uint64_t shard_tokens; /* 0: default */
    bool no_eos;           /* leave out the tokenizer's end-of-text token after documents */
    text_labels labels;    /* from reader.label */
    bool append;           /* to the set in OUT, which must have the same tokenizer */
    int threads;           /* 0: all that OpenMP would use */
    /* Zero is the default; the result does not depend on them. */
    size_t part_bytes;   /* text that a thread takes at a time: 1 MiB */
    uint64_t save_bytes; /* text between two records of how far the build is: 64 MiB, or 5 s */
    /* Called about four times a second, and at the end, by one thread at a time. May be NULL. */
    void (*progress)(const data_progress *p);
} data_build_options;

typedef struct data_build_result {
    shard_totals train, valid; /* of the sets as they are now; valid is all zero without a split */
    uint64_t scored;           /* documents with a score that this attempt wrote */
    uint64_t named;            /* and with an id */
    double seconds;            /* of all attempts */
    bool resumed;
    reader_report report; /* of all attempts */
} data_build_result;

/* A report as `data build --json` gives it. */
json_t *data_report_json(const reader_report *r);

/* Errors: those of the reader, the tokenizer and the shards, ST_FAILED from the disk or when
 * another build is writing OUT, ST_USAGE when a split leaves one side empty. What OUT held before
 * still stands, unless the exchange of the files itself failed; the same command then goes on with
 * it. */
status data_build(const char *const *inputs, int n_inputs, const char *out_dir, const tok *t,
                  const data_build_options *opt, data_build_result *result, err *e) ATH_MUST_USE;

#endif
