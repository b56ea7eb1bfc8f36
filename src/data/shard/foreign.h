/* Token files of others, read as they are. foreign_list.c finds which files a path means and of
 * which format they are, foreign.c opens and samples them, and one small file per format knows what
 * lies inside. Private to this module. */
#ifndef DATA_FOREIGN_H
#define DATA_FOREIGN_H

#include "data/shard/shard_format.h"

/* ---- which files (foreign_list.c) ---- */

typedef struct foreign_list {
    char **file; /* in the arena; Megatron's are the .bin files */
    int n;
    shards_format format;
} foreign_list;
/* ST_USAGE: no such file, several formats, or a name that tells nothing. ST_FORMAT: files whose
 * head says that they are something else. */
status foreign_list_files(foreign_list *out, const shards_spec *spec, arena *a,
                          err *e) ATH_MUST_USE;

/* ---- the set (foreign.c) ---- */

status foreign_open(shards **out, const shards_spec *spec, err *e) ATH_MUST_USE;
/* Path of a shard's tokens or index. */
void foreign_path(const shards *s, int number, shard_kind kind, char out[SHARD_PATH_BYTES]);
/* Megatron and nanotron: see shard_read_ends. */
status foreign_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends,
                    err *e) ATH_MUST_USE;
/* What the index says beyond the documents' ends. */
status foreign_verify(const shards *s, int number, err *e) ATH_MUST_USE;

/* ---- formats: each fills in shard `number`, whose file is known, from what lies in the file ----
 *
 * tokens may stay 0: such files are left out. No number of a file is believed before the file's
 * size has proved it. */

enum { LLMC_HEADER_BYTES = 1024 };

/* What a file of llm.c holds that begins with this word; NULL: it is none of llm.c's. */
const char *llmc_contents(int32_t magic);
status llmc_open(shards *s, int number, const shards_spec *spec, err *e) ATH_MUST_USE;
/* nanoGPT and OLMo: ids and nothing else; a .npy may have NumPy's own header. */
status flat_open(shards *s, int number, const shards_spec *spec, err *e) ATH_MUST_USE;
status megatron_open(shards *s, int number, const shards_spec *spec, err *e) ATH_MUST_USE;
status megatron_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends,
                     err *e) ATH_MUST_USE;
status megatron_verify(const shards *s, int number, err *e) ATH_MUST_USE;
/* *indexed: there is a .ds.index beside the file. */
status nanotron_open(shards *s, int number, const shards_spec *spec, bool *indexed,
                     err *e) ATH_MUST_USE;
status nanotron_ends(const shards *s, int number, uint64_t doc, int64_t n, uint64_t *ends,
                     err *e) ATH_MUST_USE;

/* ---- for the formats ---- */

/* Notes a shard's file (shard_note_file) and gives its size; ST_FORMAT when it cannot be read or is
 * larger than any set may be. */
status foreign_size(shards *s, int number, shard_kind kind, uint64_t *bytes, err *e) ATH_MUST_USE;
/* Width of ids that no header tells: what the spec says, else what the vocabulary needs. */
shard_item foreign_width(const shards_spec *spec);
/* totals.tokens from the bytes behind data_offset; ST_FORMAT when they are no whole ids. */
status foreign_count_tokens(shards *s, int number, uint64_t bytes, err *e) ATH_MUST_USE;
/* The hint of errors that another format= or dtype= may mend. */
void foreign_hint_keys(err *e);

#endif
