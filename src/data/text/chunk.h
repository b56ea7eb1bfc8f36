/* A piece of a file, and taking it apart (the calls for it are in reader.h).
 *
 * Made by the reader, one after the other; chunk.c then needs nothing but what is in here, so
 * threads can work on chunks side by side. Tallies stay in the chunk until reader_done. */
#ifndef DATA_CHUNK_H
#define DATA_CHUNK_H

#include "base/strbuf.h"
#include "data/text/csv_record.h"
#include "data/text/fields.h"

enum { BAD_SAMPLES = 8, BAD_START_BYTES = 80 };

typedef struct bad_record {
    uint32_t line;
    char *why, *start, *hint; /* on the heap; hint NULL: none */
} bad_record;

struct chunk {
    /* set by the reader */
    reader_format format;
    const record_fields *fields;
    csv_dialect dialect;
    const csv_columns *columns;
    const char *source, *charset; /* NULL: to be found out (text), or none (Parquet) */
    uint32_t file, first_line;
    uint64_t offset;
    const char *data; /* in `own` or `space` */
    size_t len;
    size_t limit; /* bytes of a document that lies in memory in one piece */
    char *own;
    /* A long text file that is neither packed nor a pipe: address space of its size, into which
     * chunk_need reads what is asked for. */
    char *space;
    int fd;
    bool mapped;  /* the file itself lies there */
    char *window; /* of the file, while chunk_prepare_text looks at it */
    /* chunk_next */
    size_t at;
    uint32_t line; /* of the record at `at` */
    strbuf text;   /* what of a document does not lie in data; of a text file: all, if copied */
    bool copied;
    uint32_t n_lines;
    uint64_t records, documents, bad;
    uint64_t replaced;   /* broken characters of a text file, which became U+FFFD */
    int64_t replaced_at; /* its first byte that is no UTF-8; -1: of another charset */
    bad_record sample[BAD_SAMPLES];
    int n_samples;
    err failure; /* a file that could not be read on: chunk_next ends, reader_done says so */
};

/* Opens a long text file as `space`; nothing of it is read yet. */
status chunk_open_text(chunk *c, err *e) ATH_MUST_USE;
/* Maps the whole file over `space`: chunk_need has nothing to do then, but a file that shrinks ends
 * the program (SIGBUS). For those who want one document in one piece, however long it is. */
status chunk_map_text(chunk *c, err *e) ATH_MUST_USE;

/* The UTF-8 of a text file, as far as it is not that already: sets data and len, or tallies a bad
 * record. */
bool chunk_prepare_text(chunk *c);
/* Tallies a bad record; `hint` may be NULL. */
void chunk_add_bad(chunk *c, const char *record, size_t len, const char *hint, const char *fmt, ...)
    ATH_PRINTF(5, 6);

#endif
