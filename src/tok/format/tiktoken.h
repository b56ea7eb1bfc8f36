/* Ranks of byte strings, the merges that they come from, and what published files of ranks do not
 * say. */
#ifndef TOK_FORMAT_TIKTOKEN_H
#define TOK_FORMAT_TIKTOKEN_H

#include "tok/format/format.h"
#include "tok/format/shape.h"

typedef struct rank_token {
    const char *bytes;
    uint32_t len;
    int32_t rank;
} rank_token;

/* Tokens by rank, lowest first. */
typedef struct rank_table {
    rank_token *token;
    int32_t n;
} rank_table;

/* The merge of each token that tiktoken makes by merging: the two parts that lower ranks leave of
 * it. There is only one way to each: what happens inside a stretch of text that becomes a token
 * does not depend on what stands around it. Tokens that are in more parts then are only ever taken
 * whole, as a piece that the pattern cuts; *n_whole counts them (single bytes left out). In order
 * of rank, on the heap; ids are indices into `t`. ST_FORMAT: a byte has no token. */
status rank_merges(const rank_table *t, shape_merge **merge, int32_t *n, int32_t *n_whole,
                   const char *origin, err *e) ATH_MUST_USE;

/* ---- published files: pattern and special tokens, by file name (tiktoken_known.c) ---- */

typedef struct known_special {
    const char *content; /* with %d: `count` of them, numbered from `first` */
    int32_t id;
    int first, count;
} known_special;

typedef struct known_ranks {
    const char *file;    /* the name begins with this */
    int32_t n_ranks;     /* 0: any; else the file must have so many */
    const char *pattern; /* of pretok_by_name */
    known_special special[8];
} known_ranks;

/* NULL: not known. */
const known_ranks *known_ranks_find(const char *base, int32_t n_ranks);

#endif
