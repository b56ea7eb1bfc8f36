/* Documents from files: plain text (a file is a document), JSONL (a line is one), CSV and TSV (a
 * record is one), each plain or packed with gzip or zstd, which its first bytes tell; Parquet (a
 * row is one); single files, folders (recursive, in sorted order, hidden names left out), globs,
 * and "-" for standard input.
 *
 * Memory is bounded by a chunk and the longest document, which has at most max_document_bytes where
 * it has to lie in memory in one piece. Text that is not UTF-8 is recognised (UTF-16, GB18030,
 * Windows-1252 with Latin-1) and converted; what was found is in the report. A record that cannot
 * be read (not JSON, no such field, a wrong number of columns, bytes that no charset explains) is
 * counted and passed over; above a stated share of bad records reading ends with an error, as it
 * does at a file of records that are all bad. In a text file, which is one record, a few broken
 * characters are replaced by U+FFFD.
 *
 * Two ways to read the same documents:
 *   one thread     reader_open, reader_next until there are no more, reader_close. Tokenizers are
 *                  trained and texts measured so.
 *   many threads   one thread at a time calls reader_next_chunk, which gives pieces of whole records
 *                  in order and does little; any threads take a chunk apart with chunk_next; then
 *                  reader_done takes over what each found, in order, and reader_finish judges the
 *                  whole. `data build` does this. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum reader_format {
    READER_AUTO, /* by the file's name, packing suffix aside; standard input is text */
    READER_TEXT,
    READER_JSONL,   /* .jsonl .ndjson .json */
    READER_CSV,     /* .csv, RFC 4180; the first record names the columns */
    READER_TSV,     /* .tsv; the same with tabs, a line a record, nothing quoted or escaped */
    READER_PARQUET, /* .parquet; a row is a record. Neither packed nor from a pipe */
} reader_format;

typedef struct reader_options {
    reader_format format;
    const char *field;    /* of a record; NULL: "text". Dots go into objects: "meta.body" */
    const char *template; /* NULL: none. "{title}\n\n{text}" joins fields; {{ and }} are braces */
    const char *label;    /* more fields of a record, for document.label, .id and .score; */
    const char *id;       /* NULL: none */
    const char *score;
    bool label_may_lack; /* a table without a column `label` is read, too */
    const char *charset; /* NULL: found out for each file; else utf-8, utf-16le, ... */
    double max_bad; /* share of bad records above which reading fails, once 1,000 were read or at
                       the end; 0: at the first one; 1: never; negative: 0.01 */
    size_t max_document_bytes; /* of a document that has to be in memory in one piece; 0: 1 GiB */
} reader_options;

typedef struct document {
    const char *text; /* UTF-8; not NUL-terminated */
    size_t len;
    const char *source; /* path, valid until reader_close; "-" for standard input */
    uint32_t line;      /* of its file on which the record begins, from 1; 0: the whole file */
    /* Of the record in the unpacked file (as UTF-8), in bytes; of Parquet, in its rows as JSONL,
     * with what of them is read. */
    uint64_t offset;
    const char *label; /* what those fields hold, as text; NULL: no such field */
    const char *id;
    double score; /* NaN: none, or no number */
} document;

typedef struct reader reader;

/* Finds the files. ST_FAILED: an input that cannot be read; ST_USAGE: no file at all. `opt` may be
 * NULL; inputs may be freed afterwards. */
status reader_open(reader **out, const char *const *inputs, int n, const reader_options *opt,
                   err *e) ATH_MUST_USE;
void reader_close(reader *r);
/* The next document that is not empty, valid until the next call; *more = false at the end.
 * ST_FORMAT: a binary file, a broken archive, too many bad records (the first is named with file
 * and record). ST_USAGE at the end when there was no text at all. The document is whole in memory,
 * but for a plain text file of more than 16 MiB, which is mapped: it must not shrink meanwhile. */
status reader_next(reader *r, document *doc, bool *more, err *e) ATH_MUST_USE;
/* The caller needs the first `bytes` of the document no more: they need not stay resident. */
void reader_forget(const reader *r, size_t bytes);

/* ---- by chunks ---- */

/* A place between two records, where reader_seek can go on with the same inputs. */
typedef struct reader_position {
    uint32_t file;      /* number of the file in reader_file order */
    uint32_t line;      /* lines of it that were read */
    uint64_t offset;    /* bytes of it that were read, unpacked and as UTF-8 */
    uint64_t documents; /* given so far: not empty, not bad */
    uint64_t bad;       /* records */
    uint64_t records;
} reader_position;

/* What was found: charsets, broken characters, bad records. Longer texts are cut. */
typedef struct reader_report {
    uint64_t records, documents, bad;
    struct {
        char name[32]; /* "UTF-16LE" */
        int files;
    } charset[8];
    int n_charsets;
    struct {
        uint64_t characters, texts; /* of text files, and the files that have them */
        char source[512];           /* the first of these */
        int64_t at;                 /* and its first such byte; -1: of another charset than UTF-8 */
    } replaced;                     /* what was broken, and became U+FFFD */
    struct {
        char source[512];
        uint32_t line;
        char why[160];   /* "is not JSON: ..." */
        char start[120]; /* of the record, printable */
    } sample[8];         /* the first few bad ones */
    int n_samples;
} reader_report;

typedef struct chunk chunk;
/* The next piece: some megabytes of whole records of one file, or a whole text file. *out NULL at
 * the end. Serial; errors as reader_next, bad records aside. */
status reader_next_chunk(reader *r, chunk **out, err *e) ATH_MUST_USE;
/* The next document of a chunk that is not empty; false at its end. Bad records are tallied in the
 * chunk. Different chunks may be read by different threads. */
bool chunk_next(chunk *c, document *doc);
size_t chunk_bytes(const chunk *c);
/* True for a long text file that is not in memory: before bytes of its document are looked at,
 * chunk_need must have asked for them. */
bool chunk_is_partial(const chunk *c);
/* Reads n bytes of a document, from a place in its text on. Nothing to do for others. ST_FORMAT:
 * the file cannot be read, or has become shorter. Not for the same bytes by two threads at once. */
status chunk_need(const chunk *c, const char *from, size_t n, err *e) ATH_MUST_USE;
/* To be called once all documents of a chunk were read: adds what it found to the report. Chunks
 * in order. Fills in where reading stands after it. ST_FORMAT: too many bad records so far, or a
 * text file that could not be read on. */
status reader_done(reader *r, chunk *c, reader_position *after, err *e) ATH_MUST_USE;
void chunk_free(chunk *c);
/* The first `bytes` of its document, a whole text file, need not stay in memory. */
void chunk_forget(const chunk *c, size_t bytes);
/* Goes on at a position from reader_done of a reader with the same inputs and options; `found` is
 * what that one had found by then, NULL: nothing but what the position says. */
status reader_seek(reader *r, const reader_position *at, const reader_report *found,
                   err *e) ATH_MUST_USE;
/* After the last chunk: ST_FORMAT when the share of bad records is too high, ST_USAGE when there
 * was no text at all. reader_next calls it itself. */
status reader_finish(reader *r, err *e) ATH_MUST_USE;

/* ---- questions ---- */

int reader_n_files(const reader *r);
const char *reader_file(const reader *r, int i);
/* Changes when a file's name, size or time does, or an option: what was read with another value
 * cannot be gone on with. Standard input has none: 0. */
uint64_t reader_fingerprint(const reader *r);
/* True when every input is plain text: there is one document per file. */
bool reader_is_text_only(const reader *r);
/* Bytes of a document that has to be in memory in one piece; see reader_options. */
size_t reader_document_limit(const reader *r);
uint64_t reader_bytes_done(const reader *r); /* of the files as they lie on disk */
/* Bytes of all files; 0 when unknown (standard input). */
uint64_t reader_bytes_total(const reader *r);

const reader_report *reader_get_report(const reader *r);
/* Tell people of broken characters that were replaced; and of records that were left out. */
void reader_warn_of_broken_text(const reader_report *p);
void reader_warn_of_bad_records(const reader_report *p);
/* Adds a charset, or a bad record, while there is room; or the broken characters of texts, of which the
 * first are named. */
void reader_report_charset(reader_report *p, const char *name, int files);
void reader_report_replaced(reader_report *p, const char *path, int64_t at, uint64_t characters,
                            uint64_t texts);
void reader_report_sample(reader_report *p, const char *path, uint32_t line, const char *why,
                          const char *start);

#endif
