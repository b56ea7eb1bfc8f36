/* What shard files look like inside, and what the parts of this module share; private to it.
 * Integers are little-endian.
 *
 *   offset 0  magic, 8 bytes: "ATHSHRD1" tokens, "ATHSIDX1" documents
 *          8  u32 version       12  u32 bytes per item (2 or 4; 40 in the .idx)
 *         16  u64 tokens        24  u64 documents      32  u64 text bytes
 *         40  u64 tokenizer hash
 *         48  u32 vocabulary    52  u32 shard number   56  u64 zero
 *
 * The .ids and .mrk files have no header: length and checksum are in the manifest. The manifest repeats
 * every field, so a header is checked by comparing it with the expected one: no value of a header
 * is ever trusted. */
#ifndef DATA_SHARD_FORMAT_H
#define DATA_SHARD_FORMAT_H

#include "data/shard/shards.h"

enum { SHARD_HEADER_BYTES = 64, SHARD_DOCUMENT_BYTES = 40 };
/* Limits that keep every product and sum below 2^63. */
#define SHARD_MAX_TOKENS (UINT64_C(1) << 48)
#define SHARD_MAX_TEXT_BYTES (UINT64_C(1) << 56)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shard files are read as they are");

/* A record of the .idx. Numbers count from the beginning of the shard. */
typedef struct shard_document {
    uint64_t end_tok;     /* tokens up to the end of this document */
    uint64_t text_offset; /* of its record in the unpacked source */
    uint64_t id_end;      /* bytes of .ids up to the end of this document's id */
    uint32_t source;      /* number in the manifest's list */
    uint32_t line;        /* record in that file, from 1; 0: the whole file */
    float score;          /* NaN: none */
    uint32_t zero;
} shard_document;
_Static_assert(sizeof(shard_document) == SHARD_DOCUMENT_BYTES, "records are read as they are");

/* "shard-00000.bin", ".idx", ".ids" or ".mrk" */
void shard_file_name(char out[32], int number, shard_kind kind);
/* The number in such a name, -1 for others. */
long shard_file_number(const char *name);
/* Path of a file of an open set, own or foreign. */
void shard_path(const shards *s, int number, shard_kind kind, char out[SHARD_PATH_BYTES]);
/* Notes which file this is now: from here on shard_read takes no other one for it. False with errno
 * when it cannot be looked at. */
bool shard_note_file(shards *s, int number, shard_kind kind);
/* Bytes before the body of a file of ours. */
static inline size_t shard_header_bytes(shard_kind kind) {
    return kind == SHARD_IDS || kind == SHARD_MARKS ? 0 : SHARD_HEADER_BYTES;
}
/* Whether shards of this set of ours have such a file. */
static inline bool shard_has_kind(const shards *s, shard_kind kind) {
    return kind == SHARD_IDS ? s->has_ids : kind != SHARD_MARKS || s->chat.marks;
}
status shard_read(const shards *s, int number, shard_kind kind, uint64_t offset, void *buf,
                  size_t n, err *e) ATH_MUST_USE;
/* ST_FORMAT "PATH is corrupt: what"; the hint is to rebuild or, for files of others, to restore. */
status shard_error(const shards *s, int number, shard_kind kind, err *e, const char *fmt, ...)
    ATH_PRINTF(5, 6);
/* The hint of every error about a damaged folder of ours. */
void shards_hint_rebuild(err *e);
int shard_item_bytes(shard_item item);
/* The last shard whose first token (or document) is <= x. */
int shard_find(const shards *s, uint64_t x, bool by_doc);
/* Ends of n documents of a shard from its document `doc` on, in tokens of the shard, as they are
 * stored: not checked. scores may be NULL. Sets with index only. */
status shard_read_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends,
                       float *scores, err *e) ATH_MUST_USE;
/* Takes the ends of a run of documents one after the other: fails when one lies before the last or
 * behind the shard. Documents of our own sets are not empty. */
status shard_check_end(const shards *s, int number, uint64_t doc, uint64_t last, uint64_t end,
                       err *e) ATH_MUST_USE;

/* ---- our own format (shard_own.c) ---- */

void shard_header_make(uint8_t out[SHARD_HEADER_BYTES], const shards *s, int number,
                       shard_kind kind);
/* Notes the files of a shard, and checks that they exist, with the sizes and headers that the
 * manifest says. */
status own_check_shard(shards *s, int number, err *e) ATH_MUST_USE;
/* The same for all shards, and that the manifest is still the folder's. ST_FORMAT also when the set was rebuilt meanwhile. */
status own_check_files(shards *s, err *e) ATH_MUST_USE;
/* Whether the manifest that was read is still the folder's. */
bool own_is_current(const shards *s);
/* Reads the manifest; own_check_files looks at the shards. */
status own_open(shards **out, const char *dir, uint64_t max_tok, err *e) ATH_MUST_USE;
status own_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends, float *scores,
                err *e) ATH_MUST_USE;
/* Fills in what the record of a document says beside its bounds. */
status own_place(const shards *s, int number, uint64_t doc, arena *a, shard_place *out,
                 err *e) ATH_MUST_USE;
status own_verify(const shards *s, int number, err *e) ATH_MUST_USE;

/* Keeps only the shards that end at or before max_tok; sums up the totals. */
status shards_limit(shards *s, uint64_t max_tok, err *e) ATH_MUST_USE;
shards *shards_new(const char *dir, shards_format format);
/* From now on the set's files can be read; NULL: through a cache of its own. */
void shards_use_files(shards *s, shard_files *shared);
status shards_none_such(const char *path, err *e) ATH_MUST_USE;

/* ---- manifests ---- */

/* manifest.json as text, for the writer. */
status manifest_write(const shards *s, const char *path, err *e) ATH_MUST_USE;
/* The same as an object, for a writer's state; totals may be zero there and shards lacking. */
json_t *manifest_to_json(const shards *s);
status manifest_from_json(shards **out, const char *dir, const json_t *root, bool unfinished,
                          err *e) ATH_MUST_USE;
/* A hash of 16 hex digits, and a whole number; false when the key is not one. */
bool manifest_get_hash(const json_t *o, const char *key, uint64_t *out);
bool manifest_get_count(const json_t *o, const char *key, uint64_t max, uint64_t *out);
void manifest_put_totals(json_t *o, const shard_totals *t);

#endif
