/* From token shards to batches, with an O(1) cursor: everything is a pure function of the
 * consumed-sample index, so resuming at sample 10^12 costs the same as starting, and any rank or
 * micro-batch may fetch any sample. There is no state between calls.
 *
 * Training (shuffle = true). Each source's token stream is a ring of N tokens, cut into
 * N / T sequences of T inputs (stride T; targets are the inputs shifted by one, so a sample reads
 * T + 1 tokens). Each epoch cuts it at another phase and visits the sequences in another order
 * (rng_permute keyed by seed, source, epoch). Samples are dealt to several sources by a cycle of
 * 65,536 slots in which, after any n samples, each source has had n * weight of them, off by less
 * than one.
 *
 * Validation (shuffle = false). Sources one after the other, sequences in order, no overlap: every
 * token but the first of each source is a target exactly once. The last sequence of a source is
 * filled up with ignored targets; samples past the end are wholly ignored, so a last batch may
 * overshoot.
 *
 * A loader is immutable after opening: loader_fill may be called by many threads at once. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "data/shards.h"

enum { LOADER_IGNORE = -100, LOADER_MAX_SOURCES = 256, LOADER_MAX_SEQ_LEN = 1 << 24 };

typedef struct loader_source {
    const char *path; /* shard folder */
    double weight;    /* share of the samples, any positive scale; not used without shuffle */
} loader_source;

typedef struct loader_config {
    const loader_source *sources;
    int n_sources;
    int seq_len;        /* T */
    bool document_mask; /* attention, positions and targets stay inside a document */
    bool shuffle;       /* true: training order; false: validation order */
    uint64_t seed;
    uint64_t tok_hash;  /* tok_hash() of the run's tokenizer; 0: not compared */
    int32_t vocab_size; /* of the model: ids must be below it; 0: that of the shards */
} loader_config;

typedef struct loader loader;

/* ST_USAGE: another tokenizer, a vocabulary larger than the model's, weights that are not positive,
 * a source shorter than one sequence. ST_FORMAT: broken shards. */
status loader_open(loader **out, const loader_config *cfg, err *e) ATH_MUST_USE;
void loader_close(loader *l);

/* Fills B rows with samples first_sample .. first_sample + B - 1. Never allocates, never fails:
 * corrupt token ids or document bounds become id 0 with an ignored target and set the sticky error
 * that loader_error reports; check it before the batch is used.
 *   ids, targets [B,T]   targets[b,t] is the token after ids[b,t], or LOADER_IGNORE: padding, and
 *                        with document_mask after the last token of a document
 *   start [B,T]          first key that query t may see (<= t): the start of its document in the
 *                        row; all 0 without document_mask. NULL: not wanted
 *   pos [B,T]            t - start[b,t]: positions restart with each document. NULL: not wanted
 * Returns the number of targets that are not ignored. */
int64_t loader_fill(loader *l, uint64_t first_sample, int B, int32_t *ids, int32_t *targets,
                    int32_t *start, int32_t *pos);
/* The same number for n samples without reading a token (it reads document bounds only when
 * document_mask is set), for a whole step before its micro-batches run. */
int64_t loader_count_targets(const loader *l, uint64_t first_sample, uint64_t n);
/* The first corruption any loader_fill met, naming the shard file; ST_OK when none. */
status loader_error(const loader *l, err *e) ATH_MUST_USE;

int loader_seq_len(const loader *l);
/* Sequences in one pass over all sources. */
uint64_t loader_sequences(const loader *l);
/* Tokens, documents and text bytes of all sources. Bits per byte from a mean loss in nats:
 * mean / ln 2 * tokens / text_bytes. */
shard_totals loader_totals(const loader *l);

/* Where a sample lies. */
typedef struct loader_place {
    int source;
    uint64_t epoch;     /* passes over that source completed before this one */
    uint64_t sequence;  /* place in the source's token order, 0 .. sequences - 1 */
    uint64_t first_tok; /* first input token; a training sample may wrap to token 0 */
    int64_t n_inputs;   /* T; fewer in the last sequence of a validation source; 0 past its end */
} loader_place;
loader_place loader_place_of(const loader *l, uint64_t sample);
/* Epoch of the source that the sample comes from. */
uint64_t loader_epoch_of(const loader *l, uint64_t sample);
/* Share of the samples that source `i` gets (weights rounded to 1/65,536), and its shards. */
double loader_source_share(const loader *l, int i);
const shards *loader_source_shards(const loader *l, int i);
int loader_n_sources(const loader *l);

/* The documents of a sample, in order: what `data show --run R --step N` prints. */
typedef struct loader_span {
    const char *source;      /* shard folder */
    const char *shard;       /* file name in it */
    const char *text_source; /* path of the text, and line in it (0: whole file) */
    uint32_t line;
    uint64_t document;           /* number in the shard folder */
    uint64_t first_tok, end_tok; /* token range in the shard folder that the sample reads */
    bool from_start;             /* the document begins inside the sample */
} loader_span;
/* At most seq_len spans, in the arena. */
status loader_describe(const loader *l, uint64_t sample, arena *a, loader_span **spans, int *n,
                       err *e) ATH_MUST_USE;

#endif
