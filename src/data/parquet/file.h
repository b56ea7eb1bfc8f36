/* What the footer of a Parquet file says, for those who read its columns. */
#ifndef DATA_PARQUET_FILE_H
#define DATA_PARQUET_FILE_H

#include "base/arena.h"
#include "data/parquet/parquet.h"
#include "data/parquet/thrift.h"

/* Deep enough for any table; recursion over the schema goes as deep. */
enum { PARQUET_MAX_DEPTH = 64 };

/* The bytes of one column in one row group. */
typedef struct column_chunk {
    int codec;
    uint64_t offset; /* of its first page, which may be a dictionary */
    int64_t entries; /* values, nulls and empty lists */
    bool elsewhere;  /* in another file, or encrypted */
} column_chunk;

typedef struct row_group {
    int64_t rows;
    column_chunk *chunk; /* one for each leaf */
} row_group;

typedef struct parquet_buffer {
    uint8_t *p; /* on the heap */
    size_t cap;
} parquet_buffer;

struct parquet {
    arena *mem;
    const char *path;
    int fd;
    uint64_t bytes; /* of the file */
    uint64_t end;   /* of the pages: where the footer begins */
    parquet_node *node;
    int n_nodes;
    int *leaf; /* numbers of the nodes that are columns */
    int n_leaves;
    row_group *group;
    int n_groups;
    int64_t rows;
    int64_t held;          /* bytes in all buffers for pages */
    uint64_t made;         /* bytes that were unpacked, and of JSON */
    parquet_buffer packed; /* the page that is being unpacked, of any column */
    void *zstd;            /* ZSTD_DCtx; NULL: not needed yet */
};

/* schema.c: reads the list of schema elements and finds the tree in it; t->why says what is
 * wrong. */
void schema_read(parquet *p, thrift *t, const thrift_field *f);
/* "meta.tags.list.element", in the arena. */
const char *schema_path(const parquet *p, int node, arena *a);

/* "FILE is a broken Parquet file: WHY", ST_FORMAT. */
status parquet_broken(const parquet *p, err *e, const char *fmt, ...) ATH_PRINTF(3, 4);
/* Reads n bytes of the file. */
status parquet_read_at(const parquet *p, void *to, size_t n, uint64_t at, err *e) ATH_MUST_USE;
/* Room for n bytes, of which there are none yet; counted in `held`. ST_FORMAT: above the limit. */
status parquet_hold(parquet *p, parquet_buffer *b, size_t n, err *e) ATH_MUST_USE;
void parquet_release(parquet *p, parquet_buffer *b);
/* Counts bytes that were made of the file. ST_FORMAT: no text packs so well. */
status parquet_count_made(parquet *p, uint64_t bytes, err *e) ATH_MUST_USE;

#endif
