/* A part of the work that one thread does alone: the documents of some chunks, or a part of one
 * long document, from text to tokens. Its results are records for the shards, in order. */
#ifndef DATA_BUILD_JOB_H
#define DATA_BUILD_JOB_H

#include "base/arena.h"
#include "data/build/labels.h"
#include "data/build/split.h"
#include "data/shard/shards.h"
#include "data/text/reader.h"
#include "tok/tok.h"

enum { JOB_MAX_CHUNKS = 64 };

/* What documents become; the same for all jobs. */
typedef struct job_rules {
    const tok *tok;
    text_labels labels;
    double valid_fraction;
    data_split split; /* not DATA_SPLIT_AUTO */
} job_rules;

typedef enum job_side {
    JOB_BY_NUMBER, /* the number of the document decides, which only its place in the order gives */
    JOB_TRAIN,
    JOB_VALID,
} job_side;

typedef struct job_piece {
    shard_record record; /* .ids is set when it is written: it is the next .n of the job's */
    job_side side;
    bool begins; /* a document begins here */
} job_piece;

/* A part of a document that is cut into several jobs. */
typedef struct job_part {
    const chunk *chunk;
    document doc; /* its strings are those of the chunk */
    size_t from, to;
    size_t range_from, range_to; /* of the training or validation part of it */
    job_side side;
} job_part;

typedef enum job_state { JOB_FREE, JOB_READY, JOB_BUSY, JOB_DONE } job_state;

typedef struct job {
    job_state state;
    chunk *chunk[JOB_MAX_CHUNKS]; /* without a part: their documents are encoded */
    int n_chunks;
    size_t text_bytes; /* about */
    bool is_part;      /* of a document of a chunk that is not here */
    bool ends_parts;   /* the chunk is one whose documents were given as parts: nothing to encode */
    job_part part;
    /* Results. */
    tok_ids ids;
    job_piece *piece;
    int64_t n_pieces, cap_pieces;
    arena *mem; /* ids of documents */
    status st;  /* of encoding; what came before the error is there */
    err e;
} job;

void job_init(job *j);
void job_free(job *j);
/* Forgets inputs and results, keeps the memory. */
void job_clear(job *j);
/* Does the work. Errors stay in the job, so that the first one in the order of the text counts. */
void job_encode(job *j, const job_rules *rules);
/* Where a document is cut for the two sides; its length when it is not. */
size_t job_cut(const job_rules *rules, const document *doc);
/* The side of the text before and after the cut. */
job_side job_side_of(const job_rules *rules, bool after_cut);

#endif
