/* Documents from files: plain text (a file is a document) and JSONL (a line is one), single files,
 * folders (recursive, in sorted order, hidden names left out) and "-" for standard input.
 *
 * JSONL (.jsonl, .ndjson) is read line by line, so memory is bounded by the longest line. Text is
 * passed through as bytes; files that are not text are refused, not guessed at. */
#ifndef DATA_READER_H
#define DATA_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum reader_format { READER_AUTO, READER_TEXT, READER_JSONL } reader_format;

typedef struct reader_options {
    reader_format format; /* READER_AUTO: by the file's name; standard input is text */
    const char *field;    /* of a JSONL object; NULL: "text" */
    const char *label;    /* a second field of it, for document.label; NULL: none */
} reader_options;

typedef struct document {
    const char *text; /* valid until the next call; not NUL-terminated */
    size_t len;
    const char *source; /* path, valid until reader_close; "-" for standard input */
    uint32_t line;      /* in a JSONL file, from 1; 0: the whole file */
    const char *label;  /* what the label field holds, as text; NULL: no text */
} document;

typedef struct reader reader;

/* Finds the files. ST_FAILED: an input that cannot be read; ST_USAGE: no file at all. `opt` may be
 * NULL; inputs may be freed afterwards. */
status reader_open(reader **out, const char *const *inputs, int n, const reader_options *opt,
                   err *e) ATH_MUST_USE;
void reader_close(reader *r);
/* The next document that is not empty; *more = false at the end. ST_FORMAT: a binary file, a line
 * that is not JSON or lacks the field, named with file and line or offset. ST_USAGE at the end when
 * there was no text at all. */
status reader_next(reader *r, document *doc, bool *more, err *e) ATH_MUST_USE;

/* The caller needs the first `bytes` of the document no more: they need not stay resident. */
void reader_forget(const reader *r, size_t bytes);

int reader_n_files(const reader *r);
/* True when no input is JSONL: there is one document per file. */
bool reader_is_text_only(const reader *r);
uint64_t reader_bytes_done(const reader *r);
/* Bytes of all files; 0 when unknown (standard input). */
uint64_t reader_bytes_total(const reader *r);

/* ST_FORMAT when the bytes are not text: a NUL, or more than 30 % control characters and bytes that
 * are not UTF-8 in the first MiB; names the offset. */
status text_check(const char *path, const char *data, size_t len, err *e) ATH_MUST_USE;

#endif
