/* The inside of a shard writer, shared by writing (shard_writer.c) and by stopping and going on
 * (shard_resume.c). */
#ifndef DATA_SHARD_WRITER_H
#define DATA_SHARD_WRITER_H

#include "data/shard/shard_format.h"
#include "data/shard/shard_out.h"

struct shard_writer {
    shards *set; /* what the manifest will say */
    int shard_cap, source_cap;
    shard_writer_options opt;
    shard_out out[SHARD_KINDS];
    uint64_t pending; /* tokens of a document that goes on in the next record */
    bool open;        /* `out` are being written: the last entry of set->shard */
    bool synced;      /* someone may go on with the unfinished shard */
    arena *scratch;
};

/* Bytes of the file's header, and of its body as the unfinished shard stands. */
size_t writer_header_bytes(shard_kind kind);
uint64_t writer_body_bytes(const shard_writer *w, shard_kind kind);
/* The kinds of files that this writer writes are 0 .. n - 1. */
int writer_kinds(const shard_writer *w);
/* An empty set as the options say. */
shards *writer_new_set(const char *dir, const shard_writer_options *opt);
/* Takes `set` over. */
shard_writer *writer_new(shards *set, const shard_writer_options *opt);
/* Removes shard files with a number of `from` or above: what a dead build left. */
status writer_remove_from(const char *dir, int from, err *e) ATH_MUST_USE;

#endif
