/* Parquet files: their columns, and their rows as JSON.
 *
 * A file is row groups; in each, every column lies apart, in pages. A column is a leaf of the
 * schema, which may be nested: structs, lists, maps. Read are all physical types, the encodings
 * PLAIN, RLE, RLE_DICTIONARY (PLAIN_DICTIONARY), DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
 * DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT, pages of both versions, plain or packed with snappy, gzip
 * or zstd; checksums of pages are compared where there are any. Refused with a sentence that names
 * them: files that are encrypted, other packings and encodings. Format:
 * https://github.com/apache/parquet-format.
 *
 * Memory: the footer, at most PARQUET_FOOTER_MAX_BYTES; and for each column that is read one page
 * and its dictionary, unpacked, in all at most PARQUET_HELD_MAX_BYTES, and as much again where
 * values are front coded or the dictionary is one of texts. Nothing grows with the file. As with
 * packed text, what a file gives (bytes unpacked, and of JSON) may be STREAM_FREE_BYTES, or
 * STREAM_MAX_RATIO times its size.
 *
 * Reading order: thrift.c (how headers are written), schema.c, file.c (the footer), values.c
 * (encodings), column.c (pages), rows.c (columns to rows), scalar.c (one value as JSON). */
#ifndef DATA_PARQUET_PARQUET_H
#define DATA_PARQUET_PARQUET_H

#include <jansson.h>

#include "base/status.h"
#include "base/strbuf.h"

#define PARQUET_FOOTER_MAX_BYTES ((int64_t)256 << 20)
#define PARQUET_HELD_MAX_BYTES ((int64_t)2 << 30)

/* For one thread at a time. */
typedef struct parquet parquet;

/* ST_FORMAT: the file cannot be read, is none of Parquet, broken, or encrypted. A pipe is refused:
 * the index is at the end of the file. */
status parquet_open(parquet **out, const char *path, err *e) ATH_MUST_USE;
void parquet_close(parquet *p); /* NULL is fine */
int64_t parquet_n_rows(const parquet *p);

/* ---- the schema ---- */

typedef enum parquet_type {
    /* How a value lies in the file; the numbers are those of the format. */
    PARQUET_BOOLEAN, /* one byte, 0 or 1 */
    PARQUET_INT32,   /* little endian, as all numbers */
    PARQUET_INT64,
    PARQUET_INT96, /* a time stamp: nanoseconds of the day (8 bytes), Julian day (4) */
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTES,       /* any number of bytes */
    PARQUET_FIXED_BYTES, /* parquet_node.bytes of them */
    PARQUET_GROUP,       /* no value: what holds other nodes */
} parquet_type;

typedef enum parquet_meaning {
    PARQUET_PLAIN, /* what the type says; bytes are taken for text */
    PARQUET_UNSIGNED,
    PARQUET_DECIMAL,   /* an integer (big endian in bytes) in units of 10^-scale */
    PARQUET_DATE,      /* days since 1970-01-01 */
    PARQUET_TIME,      /* of the day, in units of 10^-scale seconds */
    PARQUET_TIMESTAMP, /* since 1970-01-01, in units of 10^-scale seconds */
    PARQUET_FLOAT16,
    PARQUET_UUID,
    PARQUET_LIST, /* a group with one repeated child */
} parquet_meaning;

typedef enum parquet_repetition {
    PARQUET_REQUIRED,
    PARQUET_OPTIONAL,
    PARQUET_REPEATED,
} parquet_repetition;

/* The nodes of the schema stand depth first: the children of node i begin with i + 1, and a node is
 * followed by node[end]. Node 0 is the row. */
typedef struct parquet_node {
    const char *name;
    parquet_type type;
    parquet_meaning meaning;
    parquet_repetition repetition;
    int bytes; /* of a value; 0: they differ, or a group */
    int scale;
    bool utc;
    /* Stands for its only child in JSON: the group around a list, and the group around its
     * elements. */
    bool transparent;
    int max_def, max_rep;     /* levels of Dremel (Melnik et al. 2010), of this node */
    int end;                  /* number of the node that follows all below this one */
    int first_leaf, end_leaf; /* the columns at or below this node */
} parquet_node;

const parquet_node *parquet_nodes(const parquet *p, int *n);

/* ---- rows ----
 *
 * A row is an object. Structs are objects, lists (and repeated fields) are lists, a map is a list
 * of {"key", "value"}; text is a string, numbers, decimals and truth values are themselves, NaN and
 * infinities null; dates are "2024-02-29", times of day "23:59:59.000001", time stamps
 * "2024-02-29T23:59:59.000001", with Z where they are UTC, UUIDs are in hex. */

typedef struct parquet_rows parquet_rows;

/* All rows from the first on, with the columns that are named; "meta.body" is a field of a struct.
 * columns NULL: all. The file must outlive the rows. ST_FORMAT: there is no such column. */
status parquet_rows_open(parquet_rows **out, parquet *p, const char *const *columns, int n,
                         err *e) ATH_MUST_USE;
void parquet_rows_close(parquet_rows *r); /* NULL is fine */
bool parquet_has_column(const parquet *p, const char *name);
/* Appends the next row as one line of JSON, without a line end; *more false at the end. Text is
 * copied as it is: where it is not UTF-8, the line is no JSON. ST_FORMAT: the file is broken, or
 * not to be read. */
status parquet_rows_next(parquet_rows *r, strbuf *out, bool *more, err *e) ATH_MUST_USE;
/* The same as a value, which the caller owns; NULL at the end. ST_FORMAT also for text that is not
 * UTF-8, and for integers beyond 64 bits with a sign. */
status parquet_rows_next_json(parquet_rows *r, json_t **out, err *e) ATH_MUST_USE;
/* Passes over rows that were read before. ST_FORMAT also when there are not so many. */
status parquet_rows_skip(parquet_rows *r, int64_t rows, err *e) ATH_MUST_USE;
/* Bytes of the file that were read so far, as the share of its rows that were. */
uint64_t parquet_rows_bytes_done(const parquet_rows *r);

#endif
