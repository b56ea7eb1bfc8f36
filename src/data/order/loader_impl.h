/* What the files of the loader share; private to this folder. loader.c opens the sources and tells
 * about them, place.c turns a sample into its place and that into ranges of tokens or documents,
 * rows.c turns the ranges into ids and targets. */
#ifndef DATA_LOADER_IMPL_H
#define DATA_LOADER_IMPL_H

#include <stdatomic.h>

#include "data/order/loader.h"
#include "data/order/mixture.h"
#include "data/order/packing.h"

typedef struct source_state {
    shards *shards;
    packing *packing;   /* index of sequences; NULL: none is needed, as in shuffled concat */
    uint64_t n_tok;     /* N */
    uint64_t sequences; /* in one epoch */
    uint64_t seed;      /* for the order of each epoch, and the token at which it begins to cut */
    uint64_t consumed;  /* its ordinals begin here */
    uint32_t *chosen;   /* [n_chosen] the sequences of an epoch; NULL: all */
    uint64_t n_chosen;
} source_state;

/* The first error found. Of several threads the one that gets `claimed` writes it; the others may
 * read it once `known` is set. */
typedef struct loader_fault {
    atomic_flag claimed;
    atomic_bool known;
    err e;
} loader_fault;

struct loader {
    int seq_len; /* tokens that a sequence is cut or packed to */
    int T, S;    /* of rows; S 0: there are no sources. Without these seq_len is T */
    bool cuts_spans;
    span_rules spans;
    int32_t *sentinels; /* of the rules */
    int32_t decoder_start;
    uint64_t seed;
    bool document_mask, shuffle, cut_once, in_turn;
    bool values;            /* labelled texts, one a row */
    int parts;              /* sequences of a sample: 1, or 2 in pairs */
    loader_packing packing; /* not PACKING_AUTO */
    loader_order order;
    uint32_t vocab_size; /* every id is below it */
    source_state *source;
    int n_sources;
    shard_files *files; /* open files of all sources */
    mixture *mix;       /* NULL unless shuffle */
    uint64_t sequences;
    shard_totals totals;
    loader_fault *fault; /* behind a pointer: functions that take a const loader may set it */
};

/* Notes an error; only the first one is kept. */
void loader_set_fault(const loader *l, const err *e);
/* The place of a sample, by arithmetic alone. Behind the last sample of validation its sequence is
 * behind the last one of the last source. If an index of sequences is needed for first_tok and
 * n_inputs, these are 0. */
loader_place place_compute(const loader *l, uint64_t sample);
/* Fills in first_tok of a sequence that is ordered by an index but cut by arithmetic. */
status place_look_up(const loader *l, loader_place *p, err *e) ATH_MUST_USE;

/* The ranges of tokens that a sample reads, one after the other, each contiguous in the set. With
 * concat there is one, or two if the sample goes on at token 0; otherwise one for each piece. */
typedef struct place_walk {
    const source_state *src;
    bool packed;
    packing_walk pieces; /* when packed */
    uint64_t tok, left;  /* when not */
} place_walk;
status place_walk_begin(const loader *l, const loader_place *p, place_walk *w, err *e) ATH_MUST_USE;
/* *more = false at the end. */
status place_walk_next(place_walk *w, packing_piece *piece, bool *more, err *e) ATH_MUST_USE;

/* n tokens from `first` on, inside the set. False: some of them are not what they should be; all
 * are usable as ids. */
bool rows_read(const loader *l, const shards *s, uint64_t first, int64_t n, int32_t *ids);
/* The text of a sample that is cut by arithmetic, up to seq_len tokens; returns how many they are. False: as above. */
bool rows_read_text(const loader *l, uint64_t sample, int32_t *ids, int64_t *n);
/* Row b of sample first + b, in rows with sources; returns its targets that count. */
int64_t sources_fill_row(const loader *l, uint64_t sample, const loader_rows *rows, int64_t b);

/* pos[r,t] = t - start[r,t] for n rows; start NULL: t. */
void rows_fill_positions(int32_t *pos, const int32_t *start, int64_t n, int64_t T);

/* True when rows are made of pieces of documents. */
static inline bool loader_is_packed(const loader *l) {
    return l->packing != PACKING_CONCAT;
}

#endif
