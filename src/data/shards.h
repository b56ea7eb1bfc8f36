/* Token shards: a folder of memory-mapped token files with document bounds and checksums.
 *
 *   manifest.json    format version, tokenizer hash, vocabulary, totals, sources, one record per
 *                    shard; written last and atomically, so a folder without it is not finished
 *   shard-00000.bin  64-byte header, then the tokens (u16 or u32, little-endian)
 *   shard-00000.idx  64-byte header, then one 16-byte record per document
 *   tokenizer.json   the tokenizer that made the tokens (written by `data build`)
 *
 * A document lies wholly in one shard and has at least one token; with a tokenizer that has an
 * end-of-text token, that token is its last. Token and document numbers run through all shards.
 * Opening costs nothing per token and per document: sizes and headers are checked, contents are
 * not; shards_verify reads and checks every byte. Reading is safe on hostile contents. */
#ifndef DATA_SHARDS_H
#define DATA_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

enum { SHARD_HEADER_BYTES = 64, SHARD_VERSION = 1 };

typedef struct shard_totals {
    uint64_t tokens;
    uint64_t documents;
    uint64_t text_bytes; /* of the text the tokens were made from; bits per byte divide by it */
} shard_totals;

/* One document's record in the .idx file. */
typedef struct shard_document {
    uint64_t end_tok; /* tokens of this shard up to the end of the document */
    uint32_t source;  /* index into the manifest's sources */
    uint32_t line;    /* line of a JSONL file, from 1; 0: the whole file */
} shard_document;

typedef struct shard {
    char *file; /* "shard-00000.bin" */
    shard_totals totals;
    uint64_t bin_hash, idx_hash; /* XXH3-64 of the whole files */
    uint64_t first_tok;          /* tokens and documents of the shards before this one */
    uint64_t first_doc;
    file_map bin, idx;
} shard;

/* An open shard folder; read-only after shards_open, so any number of threads may use it. */
typedef struct shards {
    char *dir;
    uint64_t tok_hash;  /* tok_hash() of the tokenizer */
    int32_t vocab_size; /* every id is below it */
    int width_bytes;    /* of a stored id: 2 or 4 */
    shard_totals totals;
    shard *shard;
    int n_shards;
    char **source; /* paths of the documents' files */
    int n_sources;
} shards;

/* ST_FORMAT: no manifest, or a file that contradicts it, naming the file and key. A folder that
 * holds train/ and valid/ is refused with a hint that names them. */
status shards_open(shards **out, const char *dir, err *e) ATH_MUST_USE;
void shards_close(shards *s);
/* Parses manifest.json text without touching shard files; `shards_close` frees the result. */
status shards_parse_manifest(shards **out, const char *dir, const char *json, size_t len,
                             err *e) ATH_MUST_USE;
/* Full check: checksums, ids below vocab_size, document bounds. ST_FORMAT names the first fault. */
status shards_verify(const shards *s, err *e) ATH_MUST_USE;
/* ST_USAGE when the shards were made with another tokenizer than `tok_hash`. */
status shards_check_tokenizer(const shards *s, uint64_t tok_hash, err *e) ATH_MUST_USE;

/* Copies n tokens from `first` on; the range must lie inside the set (CHECK). Ids are as stored:
 * the caller compares them with its vocabulary. Returns the largest id as unsigned. */
uint32_t shards_copy(const shards *s, uint64_t first, int64_t n, int32_t *ids);
/* How many documents end at or before token position `tok` (0..totals.tokens), by binary search;
 * so also the number of the document that holds token `tok`. */
uint64_t shards_documents_before(const shards *s, uint64_t tok);
/* Bounds in tokens of the whole set, source and line. False when the record is not sane (corrupt
 * .idx) or doc >= totals.documents. */
typedef struct shard_range {
    uint64_t first_tok, end_tok;
    uint32_t source, line;
    int shard;
} shard_range;
bool shards_document(const shards *s, uint64_t doc, shard_range *out);

typedef struct shard_writer_options {
    uint64_t tok_hash;
    int32_t vocab_size;
    int32_t eos;           /* id appended to each document; -1: none */
    uint64_t shard_tokens; /* a shard is closed when it holds this many; 0: 100 million */
} shard_writer_options;

typedef struct shard_writer shard_writer;
/* Creates the folder; removes an older shard set in it, and nothing else. */
status shard_writer_open(shard_writer **out, const char *dir, const shard_writer_options *opt,
                         err *e) ATH_MUST_USE;
/* Adds one document. ST_USAGE: an id outside the vocabulary. A document without tokens is not
 * stored. `source` is a path; equal paths in a row share one entry of the manifest. */
status shard_writer_add(shard_writer *w, const int32_t *ids, int64_t n, const char *source,
                        uint32_t line, uint64_t text_bytes, err *e) ATH_MUST_USE;
shard_totals shard_writer_totals(const shard_writer *w);
/* Writes the manifest. The folder is complete only after ST_OK. Frees nothing. */
status shard_writer_finish(shard_writer *w, err *e) ATH_MUST_USE;
void shard_writer_free(shard_writer *w);
/* Removes manifest.json and shard files from a folder, if there are any. */
status shards_remove(const char *dir, err *e) ATH_MUST_USE;

#endif
