/* Records of conversations from files, one JSON object after the other: .json (a list of objects), .jsonl,
 * both plain or packed, and .parquet. Private to this folder. */
#ifndef DATA_CHAT_RECORDS_H
#define DATA_CHAT_RECORDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Bytes of one record at most; parsed, it may take fifty times as much memory. */
enum { CHAT_MAX_RECORD_BYTES = 64 << 20 };

typedef struct chat_record {
    json_t *value;      /* the caller's */
    const char *source; /* path; valid until records_close */
    uint32_t line;      /* on which it begins, from 1; of Parquet the row */
    uint64_t offset;    /* of its first byte in the unpacked file; of Parquet 0 */
    size_t bytes;
} chat_record;

typedef struct records records;

/* ST_USAGE: no file, or one of another kind; ST_FAILED: an input that cannot be read. */
status records_open(records **out, const char *const *inputs, int n, err *e) ATH_MUST_USE;
void records_close(records *r); /* NULL is fine */
/* out->value NULL at the end. Integers beyond 64 bits with a sign, as hashes are, become 0 in columns that are not read.
 * ST_FORMAT: what is not JSON, or not an object, or has such integers elsewhere, with file and line. */
status records_next(records *r, chat_record *out, err *e) ATH_MUST_USE;
const char *records_file(const records *r, int i);
/* Changes when a file's name, size or time does; 0 for standard input. */
uint64_t records_fingerprint(const records *r);

/* Finds the end of the JSON value that begins at s, an object: its length, or 0 when it goes on
 * behind the n bytes. Nothing else is checked. For records_next and its fuzzer. */
size_t records_object_length(const char *s, size_t n);

#endif
