/* What published files of tiktoken ranks do not say: pattern and special tokens, by file name. */
#ifndef TOK_FORMAT_TIKTOKEN_KNOWN_H
#define TOK_FORMAT_TIKTOKEN_KNOWN_H

#include <stdint.h>

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
