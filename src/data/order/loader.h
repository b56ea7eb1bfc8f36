/* From token shards to batches, with an O(1) cursor: everything is a pure function of the
 * consumed-sample index, so resuming at sample 10^12 costs the same as starting, and any rank or
 * micro-batch may fetch any sample. There is no state between calls.
 *
 * Training (shuffle = true), packing concat. Each source's token stream is a ring of N tokens, cut
 * into N / T sequences of T inputs (stride T; targets are the inputs shifted by one, so a sample
 * reads T + 1 tokens). Each epoch cuts it at another phase and visits the sequences in another
 * order (rng_permute keyed by seed, the source's fingerprint, epoch). Samples are dealt to several
 * sources by arithmetic too (mixture.h): after any n samples each source has had n * weight of
 * them, off by less than three.
 *
 * Packings bestfit and none, and an order by score, need to know all documents: they read an index
 * of sequences (packing.h) that lies beside the shards, made once and read by position afterwards.
 * Rows may then end in padding: ids 0, ignored targets, with document_mask a document of its own.
 *
 * Validation (shuffle = false), always concat. Sources one after the other, sequences in order, no
 * overlap: every token but the first of each source is a target exactly once. The last sequence of
 * a source is filled up with ignored targets; samples past the end are wholly ignored, so a last
 * batch may overshoot.
 *
 * A loader is immutable after opening: loader_fill may be called by many threads at once. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "data/shard/shards.h"

enum { LOADER_IGNORE = -100, LOADER_MAX_SOURCES = 256, LOADER_MAX_SEQ_LEN = 1 << 24 };

/* concat: documents end to end, cut at T. bestfit: pieces of at most T tokens, fitted into rows, so
 * that few documents are cut. none: one piece of one document a row. */
#define LOADER_PACKINGS(W)                                                                         \
    W(PACKING_CONCAT, "concat")                                                                    \
    W(PACKING_BESTFIT, "bestfit")                                                                  \
    W(PACKING_NONE, "none")
typedef enum loader_packing { LOADER_PACKINGS(LIST_ENUMERATOR) } loader_packing;

/* The last two are a curriculum: by the documents' score, the same in each epoch. */
#define LOADER_ORDERS(W)                                                                           \
    W(ORDER_SHUFFLE, "shuffle")                                                                    \
    W(ORDER_ASCENDING, "ascending")                                                                \
    W(ORDER_DESCENDING, "descending")
typedef enum loader_order { LOADER_ORDERS(LIST_ENUMERATOR) } loader_order;

typedef struct loader_source {
    const char *path; /* see shards_spec */
    double weight;    /* share of the samples, any positive scale; not used without shuffle */
    shards_format format;
    int width_bytes;
    uint64_t max_tok;
    uint64_t consumed; /* samples of this source that earlier stages of the run have taken: the
                          source goes on behind them */
} loader_source;

typedef struct loader_config {
    const loader_source *sources;
    int n_sources;
    int seq_len;        /* T */
    bool document_mask; /* attention, positions and targets stay inside a document */
    bool shuffle;       /* true: training order; false: validation order */
    loader_packing packing;
    loader_order order;
    uint64_t seed;
    uint64_t tok_hash;  /* tok_hash() of the run's tokenizer; 0: not compared */
    int32_t vocab_size; /* of the model: ids must be below it; 0: that of the shards */
    int32_t tok_vocab;  /* of the tokenizer, and its end-of-text id (-1: none): for files without */
    int32_t eos;        /* an index */
    /* Called now and then while a packing index is made; may be NULL. */
    void (*progress)(void *ctx, const char *what, double share);
    void *progress_ctx;
} loader_config;

typedef struct loader loader;

/* ST_USAGE: another tokenizer, a vocabulary larger than the model's, weights that are not positive,
 * a source shorter than one sequence, an order by score without scores. ST_FORMAT: broken shards.
 */
status loader_open(loader **out, const loader_config *cfg, err *e) ATH_MUST_USE;
void loader_close(loader *l);

/* Fills B rows with samples first_sample .. first_sample + B - 1. Never fails: what cannot be read,
 * corrupt token ids or document bounds become id 0 with an ignored target and set the sticky error
 * that loader_error reports; check it before the batch is used.
 *   ids, targets [B,T]   targets[b,t] is the token after ids[b,t], or LOADER_IGNORE: padding, and
 *                        with document_mask or a packing other than concat after the last token of
 * a document start [B,T]          first key that query t may see (<= t): the start of its document
 * in the row; all 0 without document_mask. NULL: not wanted pos [B,T]            t - start[b,t]:
 * positions restart with each document. NULL: not wanted Returns the number of targets that are not
 * ignored. */
int64_t loader_fill(loader *l, uint64_t first_sample, int B, int32_t *ids, int32_t *targets,
                    int32_t *start, int32_t *pos);
/* The same number for n samples before they are filled: for a whole step before its micro-batches
 * run. Reads document bounds only where a mask depends on them. */
int64_t loader_count_targets(loader *l, uint64_t first_sample, uint64_t n);
/* The first fault any loader_fill met, naming the shard file; ST_OK when none. */
status loader_error(const loader *l, err *e) ATH_MUST_USE;

int loader_seq_len(const loader *l);
/* Sequences in one pass over all sources, and over one. */
uint64_t loader_sequences(const loader *l);
uint64_t loader_source_sequences(const loader *l, int i);
/* Tokens, documents and text bytes of all sources. */
shard_totals loader_totals(const loader *l);

/* Where a sample lies. */
typedef struct loader_place {
    int source;
    uint64_t ordinal;   /* number of the sample among those of its source, `consumed` included */
    uint64_t epoch;     /* passes over that source completed before this one */
    uint64_t sequence;  /* place in the source's sequence order, 0 .. sequences - 1 */
    uint64_t first_tok; /* first input token; a training sample may wrap to token 0 */
    int64_t n_inputs; /* T; fewer in the last sequence of a validation source and in padded rows; 0
                         past its end */
} loader_place;
loader_place loader_place_of(const loader *l, uint64_t sample);
/* Share of the samples that source `i` gets (its weight to 1e-6), and its shards. */
double loader_source_share(const loader *l, int i);
const shards *loader_source_shards(const loader *l, int i);
int loader_n_sources(const loader *l);
/* How many of the first n samples are source i's, without `consumed`. */
uint64_t loader_samples_of(const loader *l, int i, uint64_t n);

/* What a packing made of the documents of all sources; all 0 without an index of pieces. The share
 * of padding is 1 - tokens / (sequences * T). */
typedef struct packing_totals {
    uint64_t sequences;
    uint64_t documents, documents_cut; /* in more than one piece */
    uint64_t tokens, targets;          /* of the rows of one pass, without padding */
} packing_totals;
packing_totals loader_packing_totals(const loader *l);

/* The documents of a sample, in order: what `data show --run R --step N` prints. */
typedef struct loader_span {
    int source; /* number in the loader's list */
    const char *set;
    const char *shard;           /* file name in it */
    shard_place place;           /* of the whole document */
    uint64_t first_tok, end_tok; /* token range in the set that the sample reads */
    int row_first;               /* where it lies in the row of T */
} loader_span;
/* At most seq_len spans, in the arena. */
status loader_describe(const loader *l, uint64_t sample, arena *a, loader_span **spans, int *n,
                       err *e) ATH_MUST_USE;

#endif
