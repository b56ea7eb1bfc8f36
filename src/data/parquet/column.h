/* One column of one row group, entry by entry. An entry is a value, a null, or a list without
 * elements; its levels say which, and where in the lists of the row it stands (Melnik et al. 2010,
 * "Dremel", section 4.1). */
#ifndef DATA_PARQUET_COLUMN_H
#define DATA_PARQUET_COLUMN_H

#include "data/parquet/file.h"
#include "data/parquet/values.h"

typedef struct column {
    /* the current entry; none before the first column_next, and once it has ended */
    bool ended;
    uint32_t rep, def;
    const uint8_t *value; /* NULL: none. Valid until the next call */
    size_t len;

    parquet *file;
    const parquet_node *node;
    int number, group; /* of the column; of the row group, for messages */
    int codec;
    uint64_t at;     /* of the next page in the file */
    int64_t left;    /* entries in pages to come */
    int64_t in_page; /* entries of this page to come */
    hybrid rep_levels, def_levels;
    values values;
    parquet_buffer page, dictionary_page;
    dictionary dictionary;
    bool has_dictionary;
} column;

/* A zeroed column, or one that has read another row group. ST_FORMAT: it is packed in a way that is
 * not read, or is not in this file. */
status column_open(column *c, parquet *p, int group, int leaf, err *e) ATH_MUST_USE;
void column_close(column *c);
/* Goes to the next entry. ST_FORMAT: the file is broken, or needs too much memory. */
status column_next(column *c, err *e) ATH_MUST_USE;

/* unpack.c: a page into `to`, which has exactly n bytes. NULL, or what is wrong. */
const char *unpack_page(parquet *p, int codec, const uint8_t *from, size_t len, uint8_t *to,
                        size_t n);
/* The name of a packing that is not read; NULL: it is. */
const char *unpack_refused(int codec);
void unpack_end(parquet *p); /* frees what unpack_page has kept */

#endif
