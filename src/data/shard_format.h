/* What shard files look like inside; shared by the reader, the writer and the manifest, private to
 * this module. Integers are little-endian.
 *
 *   offset 0  magic, 8 bytes: "ATHSHRD1" tokens, "ATHSIDX1" documents
 *          8  u32 version       12  u32 bytes per item (2 or 4; 16 in the .idx)
 *         16  u64 tokens        24  u64 documents      32  u64 text bytes
 *         40  u64 tokenizer hash
 *         48  u32 vocabulary    52  u32 shard number   56  u64 zero
 *
 * The manifest repeats every field, so a header is checked by comparing it with the expected one:
 * no value of a header is ever trusted. */
#ifndef DATA_SHARD_FORMAT_H
#define DATA_SHARD_FORMAT_H

#include "data/shards.h"

enum { SHARD_DOCUMENT_BYTES = 16 };
/* Limits that keep every product and sum below 2^63. */
#define SHARD_MAX_TOKENS (UINT64_C(1) << 48)
#define SHARD_MAX_TEXT_BYTES (UINT64_C(1) << 56)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shard files are mapped as they are");
_Static_assert(sizeof(shard_document) == SHARD_DOCUMENT_BYTES, "records are mapped as they are");

typedef enum shard_kind { SHARD_TOKENS, SHARD_DOCUMENTS } shard_kind;

void shard_header_make(uint8_t out[SHARD_HEADER_BYTES], const shards *s, int number,
                       shard_kind kind);
/* ST_FORMAT naming the first field of `data` that differs from the manifest. */
status shard_header_check(const file_map *m, const char *path, const shards *s, int number,
                          shard_kind kind, err *e);
/* "shard-00000.bin" or ".idx" */
void shard_file_name(char out[32], int number, shard_kind kind);
/* manifest.json as text, for the writer. */
status manifest_write(const shards *s, const char *path, err *e);
/* The hint of every error about a damaged folder. */
void shards_hint_rebuild(err *e);

#endif
