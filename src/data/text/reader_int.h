/* The parts of a reader, and its state, shared by reader.c (opening, the whole loop, questions), cut.c
 * (files into chunks) and tally.c (what was found in chunks). */
#ifndef DATA_READER_INT_H
#define DATA_READER_INT_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "data/parquet/parquet.h"
#include "data/text/chunk.h"

/* ---- inputs.c: the files that inputs name (files, folders, globs and "-"), in a fixed order, with
 * their format ---- */

typedef struct input_file {
    const char *path;
    uint64_t bytes;       /* as it lies on disk; 0: unknown */
    int64_t modified_ns;  /* 0: unknown */
    bool regular;         /* and not a pipe or standard input */
    reader_format format; /* never READER_AUTO */
} input_file;

typedef struct input_list {
    input_file *file; /* on the heap */
    int n, cap;
} input_list;

/* ST_FAILED: cannot be read; ST_FORMAT: by its name a file is no text, and no format was given;
 * ST_USAGE: no file at all. */
status input_list_find(input_list *l, arena *a, const char *const *inputs, int n,
                       reader_format format, err *e) ATH_MUST_USE;
void input_list_free(input_list *l);

/* ---- source.c: the bytes of one file of records as UTF-8, unpacked and, where need be, converted ----
 *
 * While there is only ASCII the charset is left open; the first other byte decides. Offsets count
 * these bytes, which in UTF-8 are those of the unpacked file. */

typedef struct source source;

/* `charset` NULL: to be found out. The path must outlive the source. */
status source_open(source **out, const char *path, const char *charset, err *e) ATH_MUST_USE;
void source_close(source *s); /* NULL is fine */
/* Up to n bytes; *got 0 only at the end. ST_FORMAT: a broken file. */
status source_read(source *s, char *p, size_t n, size_t *got, err *e) ATH_MUST_USE;
/* Passes over bytes that were read before. ST_FORMAT also when there are not so many. */
status source_skip(source *s, uint64_t bytes, err *e) ATH_MUST_USE;
uint64_t source_disk_bytes(const source *s);
const char *source_charset(const source *s); /* "unknown" when nothing explained it */

/* ---- the reader ---- */

struct reader {
    arena *mem;
    input_list inputs;
    record_fields fields;
    const char *charset; /* NULL: to be found out */
    double max_bad;
    size_t limit; /* bytes of a document that lies in memory in one piece */
    uint64_t options_hash;

    /* where cutting stands */
    int at;         /* the file being cut, or the next one */
    source *source; /* of records; NULL: the file is not open, or Parquet */
    parquet *parquet;
    parquet_rows *rows;
    csv_columns *columns;
    strbuf carry; /* read, but in no chunk yet: it begins with a record */
    uint64_t offset;
    uint32_t line; /* line ends before it */
    uint64_t disk_bytes;

    /* what reader_done has added up */
    reader_report report;
    const char *hint; /* of the first bad record */
    struct {
        uint32_t file;
        uint64_t records, bad;
        bool whole; /* counted from its beginning */
        uint32_t line;
        const char *why, *hint; /* of its first bad record */
        const char *charset;    /* so far; NULL: none, as in Parquet, or counted already */
    } tally;                    /* of one file of records */

    chunk *current; /* of reader_next */
};

/* Ends the file being cut, if one is open. */
void reader_close_file(reader *r);
/* Opens the file of records r->at and goes to a position in it. */
status reader_skip_to(reader *r, uint64_t offset, uint32_t line, err *e) ATH_MUST_USE;

#endif
