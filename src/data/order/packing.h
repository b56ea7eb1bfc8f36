/* Indexes of sequences: files that say, for each row of T tokens, which pieces of documents it
 * holds. The packings bestfit and none need one, and so does an order by score. loader.h explains
 * T, row and sequence.
 *
 * packing_open opens the file beside the shards, or makes it: one pass over the bounds of all
 * documents, 40 MB of memory and 8 bytes for each sequence (24 with an order by score). Afterwards
 * it is read by position: a sample costs two or three short reads, and nothing of it stays in
 * memory. The file is opened once: if another process makes it again, this one reads the old one.
 *
 * Pieces. A document of more than T tokens is cut into pieces of T tokens and a rest. The last
 * target of a piece is the first token of the next one. A rest of one token has nothing to predict
 * and is left out. Of a conversation (a set with marks) there is the first piece only, since an
 * answer without its question teaches nothing; in sets of pairs every document has a piece, so that
 * sequence i is document i.
 *   none      every piece is a row of its own
 *   bestfit   pieces of T are rows of their own; the others are packed by best fit decreasing (Ding
 *             et al. 2024, "Fewer Truncations Improve Language Modeling"), a million at a time
 *   pairs     (source_len S > 0) a document of a set with marks is a source, up to the first token that is trained,
 *             and a target behind it: two pieces, of at most S and T tokens. In a row sources and targets take turns;
 *             with bestfit all sources have room in S tokens and all targets in T, since the size of a pair is the larger
 *             share that it takes of the two. A document without source or target is left out
 *   concat    no pieces: sequence i is tokens i T .. i T + T - 1, and only the order is stored
 *
 * Order by score. The score of a sequence is the mean of its documents' scores, weighted by how
 * many tokens of each are in it. Documents without a score do not count; sequences without any come
 * last. Equal scores are ordered by a hash.
 *
 * File: SET/pack-PACKING-T[-ORDER].seq (pairs: pack-PACKING-SxT); for a token file of another program,
 * FILE.pack-PACKING-T[-ORDER].seq. ORDER is asc or desc. With `firsts` PACKING is "first".
 *   pieces      12 bytes each: u64 first token, u32 with the number of tokens in bits 0-25, bit 30:
 *               the document goes on behind, bit 31: the last piece of its sequence
 *   sequences   u64 each: number of the first piece; concat: number of the sequence
 *   trailer     104 bytes (packing_format.h), with the set's fingerprint and a checksum of the
 *               trailer. If it shows other data, or a file that is not complete, the index is made
 *               again */
#ifndef DATA_PACKING_H
#define DATA_PACKING_H

#include "data/order/loader.h"

typedef struct packing packing;

typedef struct packing_spec {
    const shards *set;
    loader_packing packing;
    loader_order order;
    int seq_len;
    bool
        firsts; /* with none: of each document the first piece, also where it has one token only (labelled texts) */
    int source_len; /* S: documents are a source and a target each; 0: they are not */
} packing_spec;

typedef struct packing_piece {
    uint64_t first_tok;
    int64_t n;
    bool goes_on; /* the token after the piece belongs to the document */
} packing_piece;

/* Opens the index; makes it if there is none. ST_USAGE: no scores for an order by score, or not one
 * target in the set; ST_FAILED: the folder cannot be written. */
status packing_open(packing **out, const packing_spec *spec, err *e) ATH_MUST_USE;
void packing_close(packing *p); /* NULL is fine */
packing_totals packing_get_totals(const packing *p);

/* concat: the number of the sequence that stands at `place` in the order. */
status packing_sequence(const packing *p, uint64_t place, uint64_t *sequence, err *e) ATH_MUST_USE;

/* The pieces of a sequence, in order; together at most T tokens, all inside the set. */
typedef struct packing_walk {
    const packing *p;
    uint64_t next;           /* number of the piece to read next */
    int64_t room;            /* tokens that the row can still hold */
    int at, n;               /* the next piece in `buffer`, and how many are in it */
    bool last;               /* the piece that was given before is the last of the sequence */
    uint8_t buffer[12 * 32]; /* pieces read ahead */
} packing_walk;
status packing_walk_begin(const packing *p, uint64_t place, packing_walk *w, err *e) ATH_MUST_USE;
/* *more = false at the end. ST_FORMAT: a piece that is too long or not inside the set. */
status packing_walk_next(packing_walk *w, packing_piece *piece, bool *more, err *e) ATH_MUST_USE;

#endif
