/* The encodings of Parquet (Encodings.md of apache/parquet-format): levels and values out of the
 * bytes of a page, one by one. Nothing is kept but the value that was given last, so memory does
 * not depend on what a page claims to hold. */
#ifndef DATA_PARQUET_VALUES_H
#define DATA_PARQUET_VALUES_H

#include "base/strbuf.h"
#include "data/parquet/parquet.h"

/* ---- runs of one number, and numbers of a few bits (RLE / bit-packing hybrid) ---- */

typedef struct hybrid {
    const uint8_t *p, *end;
    int width;             /* bits of a number, at most 32 */
    uint64_t left;         /* of the run */
    const uint8_t *packed; /* its bits; NULL: it repeats `value` */
    uint64_t at;           /* bits of it that were read */
    uint32_t value;
} hybrid;

bool hybrid_next(hybrid *h, uint32_t *value); /* false: cut off or broken */

/* ---- differences of integers (DELTA_BINARY_PACKED) ---- */

typedef struct delta {
    const uint8_t *p, *end; /* what follows the current block */
    uint64_t block, minis;  /* values in a block, miniblocks in it */
    uint64_t left;          /* values not given yet */
    uint64_t in_block;      /* differences of the block already given */
    uint64_t min_delta, value;
    bool first;
    const uint8_t *widths, *bits; /* of the block; where the miniblock begins */
} delta;

/* Reads the header at p; false when it is wrong. */
bool delta_open(delta *d, const uint8_t *p, const uint8_t *end);
bool delta_next(delta *d, int64_t *value);
/* Where its bytes end, without reading the values; NULL when that is beyond the end. */
const uint8_t *delta_end(const delta *d);

/* ---- values ---- */

typedef struct dictionary {
    const uint8_t *p;
    uint32_t n;
    /* PARQUET_BYTES: where each entry begins, behind the 4 bytes of its length; and where one more
     * would. On the heap. */
    uint32_t *offset;
} dictionary;

/* Finds the entries of a dictionary page. NULL, or what is wrong. */
const char *dictionary_open(dictionary *d, const parquet_node *n, const uint8_t *p, size_t len,
                            uint32_t entries);

typedef struct values {
    parquet_type type;
    int bytes; /* of a value; 0: they differ */
    int encoding;
    const uint8_t *p, *end;
    const dictionary *dictionary;
    hybrid index;          /* into the dictionary, or truth values */
    delta numbers, prefix; /* numbers: lengths, too */
    uint64_t at, n;        /* values given, and in all, where the encoding needs it */
    uint8_t scalar[8];
    strbuf text; /* the value that is put together from pieces */
} values;

/* What values_open says of an encoding that is none of these, or not one for the type. */
extern const char values_unread[];
/* Begins with the values of a page; `v` is zeroed, or was used before. dictionary NULL: there is
 * none. NULL, or what is wrong, for example that the encoding is not read. */
const char *values_open(values *v, const parquet_node *n, int encoding, const uint8_t *p,
                        size_t len, const dictionary *d);
/* The next value, valid until the next call. False: there are no more, or they are broken. */
bool values_next(values *v, const uint8_t **value, size_t *len);
void values_free(values *v);

#endif
