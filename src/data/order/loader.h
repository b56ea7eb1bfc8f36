/* The loader: token shards in, rows of training batches out.
 *
 * Words
 *   source     a set of token shards (shards.h), "the set", with a weight
 *   row        T = seq_len input ids, and for each its target: the id that follows it
 *   sequence   the tokens of one row, numbered within a source: 0 .. sequences - 1 is one epoch
 *   sample     a row of the run. Samples 0, 1, 2, ... are the rows in the order in which a run uses
 *              them: with B rows a step, step 1 takes samples 0 .. B - 1, step 2 the next B
 *   ordinal    of a sample: how many samples its source gave before it
 *
 * From a sample to its row
 *   sample --> source, ordinal     mixture.h
 *          --> epoch, sequence     place.c: ordinal / sequences; ordinal % sequences, permuted
 *          --> ranges of tokens    place.c by arithmetic, or packing.h from an index
 *          --> ids, targets        rows.c, from the shards
 * Every arrow is a function of its left side and of loader_config alone. Nothing is remembered
 * between calls: sample 10^12 costs what sample 0 costs, a run resumes without replaying, and any
 * rank or thread may ask for any sample.
 *
 * Who calls what: train/course opens a loader for each stage. Rows are made by loader_fill, or
 * ahead by the thread of prefetch.h. Before rows are used, loader_error is asked for errors.
 * `data show --run` asks loader_describe which documents a sample holds.
 *
 * Training (shuffle = true)
 *   concat        A source of N tokens is a ring, cut every T tokens: N / T sequences. Each reads
 *                 T + 1 tokens, as the last target is the first input of the next sequence. Each
 *                 epoch begins to cut at another token and has another order; both are random
 *                 functions of (seed, the set's fingerprint, epoch).
 *   bestfit, none Rows are made of whole documents, or of pieces of those longer than T. An index
 *                 beside the shards says which (packing.h); it is made at its first use. Each
 *                 epoch has the same rows in another order. The rest of a row is padding.
 *   cut_once      Each epoch of concat is cut from token 0 on: it has the same sequences, in another order
 *   by score      order = ORDER_ASCENDING or ORDER_DESCENDING, with any packing: the index also has
 *                 the order, which is the same in each epoch. concat then cuts from token 0 on.
 *   in_turn       The same sequences one after the other, source by source, each once: for what is said of
 *                 each before training
 *   conversations A set with marks (shards.h): a target counts if its token is MARK_TRAINED. Each
 *                 document is one piece: what is behind its first T + 1 tokens is cut off and
 *                 counted (packing_totals). Where a sample is two sequences (pairs), packing is
 *                 none, and sequences 2i and 2i + 1 are documents 2i and 2i + 1: they are shuffled
 *                 together and lie in rows that follow each other.
 *   sources       With source_len S > 0 a row has a source of up to S tokens beside T for the decoder. Sets with marks are
 *                 pairs: what is not trained is the source (packing.h), one in a row, or with bestfit and document_mask
 *                 as many as fit. Of other sets pieces of text become pairs by span corruption (spans.h), as long as
 *                 fits into S and T
 * Validation (shuffle = false), concat, or none for conversations
 *   Sources one after the other, sequences in order, without overlap: every token but the first of
 *   a source is a target exactly once. The last row of a source ends in padding. Rows past the last
 *   sequence are all padding, so the last batch need not be smaller.
 *
 * Padding is id 0 with the target LOADER_IGNORE; with document_mask it is a document of its own.
 *
 * A loader does not change after loader_open, except that it notes its first error. So many threads
 * may call it at once. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "data/order/spans.h"
#include "data/shard/shards.h"

enum { LOADER_IGNORE = -100, LOADER_MAX_SOURCES = 256, LOADER_MAX_SEQ_LEN = 1 << 24 };

/* ---- opening ---- */

/* concat: documents end to end, cut at T. bestfit: pieces of at most T tokens, fitted into rows, so
 * that few documents are cut. none: one piece of one document a row. auto: bestfit for
 * conversations, none for pairs of them, else concat. */
#define LOADER_PACKINGS(W)                                                                         \
    W(PACKING_CONCAT, "concat")                                                                    \
    W(PACKING_BESTFIT, "bestfit")                                                                  \
    W(PACKING_NONE, "none")                                                                        \
    W(PACKING_AUTO, "auto")
typedef enum loader_packing { LOADER_PACKINGS(LIST_ENUMERATOR) } loader_packing;

/* ascending, descending: a curriculum, by the documents' scores, the same in each epoch. */
#define LOADER_ORDERS(W)                                                                           \
    W(ORDER_SHUFFLE, "shuffle")                                                                    \
    W(ORDER_ASCENDING, "ascending")                                                                \
    W(ORDER_DESCENDING, "descending")
typedef enum loader_order { LOADER_ORDERS(LIST_ENUMERATOR) } loader_order;

typedef struct loader_source {
    const char *path; /* path to max_tok: as in shards_spec */
    shards_format format;
    int width_bytes;
    uint64_t max_tok;
    double weight;     /* share of the samples, on any positive scale; not used without shuffle */
    uint64_t consumed; /* samples of this source that earlier stages of the run took. Its ordinals
                          begin here, so a stage goes on where the one before it stopped */
} loader_source;

typedef struct loader_config {
    const loader_source *sources;
    int n_sources;
    int seq_len;        /* T */
    bool document_mask; /* attention, positions and targets stay inside a document */
    bool shuffle;       /* true: training; false: validation */
    bool cut_once;      /* training: every epoch has the same sequences */
    bool in_turn;       /* training, with cut_once: samples are all sequences, in their own order */
    int sequences;      /* documents of a sample, which the sets must have, too; 0: 1 */
    bool labels;        /* samples must be such with labels */
    bool values;        /* samples are texts, one a row, each with a score: its label */
    int source_len;     /* S: rows have sources for an encoder; 0: they have none */
    int32_t decoder_start; /* with sources: what the decoder reads first */
    span_rules spans;      /* with sources: how texts become pairs; what it points to is copied */
    loader_packing packing;
    loader_order order;
    uint64_t seed;
    uint64_t tok_hash;  /* tok_hash() of the run's tokenizer; 0: not compared with the shards' */
    int32_t vocab_size; /* of the model: every id must be below it; 0: that of the shards */
    int32_t tok_vocab;  /* the tokenizer's size */
    int32_t eos;        /* its end-of-text id; -1: none. For token files that have no index */
} loader_config;

/* What else is known of a row. */
typedef struct loader_row {
    /* 0: it has tokens of a rejected or undesirable answer, else 1; of a set of labelled texts (`values`): its document's
     * score */
    float label;
    int32_t n_inputs; /* ids without padding */
} loader_row;

typedef struct loader loader;

/* ST_USAGE: another tokenizer, a vocabulary larger than the model's, a weight that is not positive,
 * a source shorter than one sequence, an order by score without scores, a set whose samples are of
 * another kind than `sequences` and `labels` say. ST_FORMAT: broken shards.
 * ST_FAILED: an index cannot be written. */
status loader_open(loader **out, const loader_config *cfg, err *e) ATH_MUST_USE;
void loader_close(loader *l); /* NULL is fine */
/* Before the first row is asked for, in training with cut_once: an epoch of a source has only these n of its sequences, each
 * once; `consumed` does not count. The loader frees them. */
void loader_choose(loader *l, int source, uint32_t *sequences, uint64_t n);

/* ---- rows ---- */

/* Fills B rows with samples first_sample .. first_sample + B - 1 and returns how many of their
 * targets are not LOADER_IGNORE.
 *
 *   ids      [B,T]  input ids
 *   targets  [B,T]  targets[b,t] is the token after ids[b,t]. LOADER_IGNORE in padding, and, with
 *                   document_mask or a packing other than concat, at the last token of a
 *                   document, since the token after it belongs to another one
 *   start    [B,T]  the first position of the row that position t may attend to (<= t): where its
 *                   document begins. All 0 without document_mask. NULL: not wanted
 *   pos      [B,T]  t - start[b,t]: positions begin anew with each document. NULL: not wanted
 *   info     [B]    NULL: not wanted
 *
 * It always returns rows. A token that cannot be read, or is outside of the vocabulary, becomes id
 * 0, and its row (bestfit, none: its document) has no targets. The loader notes the error: ask
 * loader_error before the batch is used. */
int64_t loader_fill(loader *l, uint64_t first_sample, int B, int32_t *ids, int32_t *targets,
                    int32_t *start, int32_t *pos, loader_row *info);
/* The same, with the sources of an encoder (source_len S > 0). [B,S]: the source's ids, its positions within its own text,
 * and which tokens of the row each may see: from source_start on, before source_end (padding: both 0). [B,T]: which tokens
 * of the source the decoder's token sees. Targets are the target's tokens; ids are those shifted by one, behind
 * decoder_start. start is that of the pair in the row, whatever document_mask says. Without sources (S 0) these arrays are not
 * touched. */
typedef struct loader_rows {
    int32_t *ids, *targets;                                   /* [B,T] */
    int32_t *start, *pos;                                     /* [B,T]; NULL: not wanted */
    loader_row *info;                                         /* [B]; NULL: not wanted */
    int32_t *source, *source_pos, *source_start, *source_end; /* [B,S] */
    int32_t *seen_start, *seen_end;                           /* [B,T] */
} loader_rows;
int64_t loader_fill_rows(loader *l, uint64_t first_sample, int B, const loader_rows *rows);
/* The first error that any call met, which names the file; ST_OK when there was none. */
status loader_error(const loader *l, err *e) ATH_MUST_USE;

/* ---- where a sample lies ---- */

typedef struct loader_place {
    int source;
    uint64_t ordinal;   /* samples that the source gave before this one, `consumed` included */
    uint64_t epoch;     /* ordinal / sequences */
    uint64_t sequence;  /* 0 .. sequences - 1 */
    uint64_t first_tok; /* counted in the set; in training a sequence may go on at token 0 */
    int64_t n_inputs;   /* input ids without padding: at most T */
} loader_place;
loader_place loader_place_of(const loader *l, uint64_t sample);

/* A part of a document that lies in a row. */
typedef struct loader_span {
    int source;
    const char *set;             /* the source's folder or file */
    const char *shard;           /* name of the file in it */
    shard_place place;           /* the whole document */
    uint64_t first_tok, end_tok; /* the part, as tokens of the set */
    int row_first;               /* its first position in the row */
} loader_span;
/* The documents of a sample (of pairs: their targets), in the order of the row, in the arena; at most T. */
status loader_describe(const loader *l, uint64_t sample, arena *a, loader_span **spans, int *n,
                       err *e) ATH_MUST_USE;

/* ---- questions about the whole ---- */

int loader_seq_len(const loader *l);    /* T */
int loader_source_len(const loader *l); /* S */
int loader_n_sources(const loader *l);
/* What was chosen for PACKING_AUTO, or what was asked for. */
loader_packing loader_get_packing(const loader *l);
const shards *loader_source_shards(const loader *l, int i);
/* Sequences of one epoch of all sources, and of source i. */
uint64_t loader_sequences(const loader *l);
uint64_t loader_source_sequences(const loader *l, int i);
/* The share of samples that source i gives: in training its weight over the sum of all, to 1e-6; in
 * validation its sequences over the sum of all. */
double loader_source_share(const loader *l, int i);
/* How many of samples 0 .. n - 1 are source i's. */
uint64_t loader_samples_of(const loader *l, int i, uint64_t n);
/* Tokens, documents and text bytes of all sources; 0: not known. */
shard_totals loader_totals(const loader *l);

/* What bestfit or none made of the documents of all sources; all 0 with concat. The share of
 * padding is 1 - tokens / (sequences * T). */
typedef struct packing_totals {
    uint64_t sequences;
    uint64_t documents, documents_cut; /* cut: in more than one piece; conversations: at the end */
    uint64_t tokens, targets;          /* in the rows of one epoch, without padding */
} packing_totals;
packing_totals loader_packing_totals(const loader *l);
packing_totals loader_source_packing_totals(const loader *l, int i);

#endif
