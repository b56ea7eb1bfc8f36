/* `data build`: text files to token shards, with a validation split.
 *
 * OUT itself becomes the shard folder, or with a validation fraction OUT/train and OUT/valid do;
 * each holds a copy of the tokenizer. Memory: one document and its tokens. */
#ifndef DATA_BUILD_H
#define DATA_BUILD_H

#include <stdint.h>

#include "base/status.h"
#include "data/reader.h"
#include "data/shards.h"
#include "tok/tok.h"

typedef enum data_split {
    DATA_SPLIT_AUTO,      /* few text files: DATA_SPLIT_LINES, else DATA_SPLIT_DOCUMENTS */
    DATA_SPLIT_DOCUMENTS, /* whole documents, chosen by a hash of (seed, document number) */
    DATA_SPLIT_LINES,     /* the tail of each document, cut at a line end when one is near */
    DATA_SPLIT_TAIL,      /* the tail from byte floor(n * (1 - fraction)) on, as nanoGPT cuts */
} data_split;

typedef struct data_progress {
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
    /* Called about four times a second, and at the end. May be NULL. */
    void (*progress)(void *ctx, const data_progress *p);
    void *progress_ctx;
} data_build_options;

typedef struct data_build_result {
    shard_totals train, valid; /* valid is all zero without a split */
    double seconds;
} data_build_result;

/* Errors: those of the reader and the tokenizer, ST_FAILED from the disk, ST_USAGE when a split
 * leaves one side empty. An older shard set in OUT is replaced. */
status data_build(const char *const *inputs, int n_inputs, const char *out_dir, const tok *t,
                  const data_build_options *opt, data_build_result *result, err *e) ATH_MUST_USE;
/* Where a document of n bytes is cut: the length of its training part. */
size_t data_split_point(const char *text, size_t n, double valid_fraction, data_split split);
bool data_split_parse(const char *name, data_split *out); /* auto, documents, lines, tail */

#endif
