/* The inside of a shard writer, shared by writing (shard_writer.c) and by stopping and going on
 * (shard_resume.c). */
#ifndef DATA_SHARD_WRITER_H
#define DATA_SHARD_WRITER_H

#include "data/shard/shard_format.h"

/* ---- shard_out.c ----
 *
 * A file of a shard being written: a header whose contents are known last, then a body that is
 * hashed as it goes. It can be made durable in the middle and gone on with later. The first error is
 * kept: all later calls fail with it. */

typedef struct shard_out {
    int fd; /* -1: not open */
    char *path;
    size_t header_bytes;
    uint8_t *buf;
    size_t used;
    uint64_t flushed; /* bytes of the body in the file */
    void *hash;       /* of those */
    err failure;
} shard_out;

status shard_out_create(shard_out *o, const char *path, size_t header_bytes, err *e) ATH_MUST_USE;
/* Goes on after body_bytes of an existing file, which are read once for the hash; what follows is
 * cut off. ST_FORMAT: the file is shorter, or these bytes have another hash; it is left alone. */
status shard_out_reopen(shard_out *o, const char *path, size_t header_bytes, uint64_t body_bytes,
                        uint64_t hash, err *e) ATH_MUST_USE;
/* Room in the buffer, at least 8 bytes, and how much of it was filled. */
status shard_out_room(shard_out *o, uint8_t **room, size_t *bytes, err *e) ATH_MUST_USE;
void shard_out_filled(shard_out *o, size_t bytes);
status shard_out_write(shard_out *o, const void *data, size_t bytes, err *e) ATH_MUST_USE;
/* Everything into the file, durably; *hash of the body so far. */
status shard_out_sync(shard_out *o, uint64_t *hash, err *e) ATH_MUST_USE;
/* Puts the header in, syncs and closes. */
status shard_out_finish(shard_out *o, const void *header, uint64_t *hash, err *e) ATH_MUST_USE;
/* Closes without writing anything more; removes the file on demand. Fine when not open. */
void shard_out_abandon(shard_out *o, bool remove);

/* ---- the writer ---- */

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

/* Bytes of a file's body as the unfinished shard stands. */
uint64_t writer_body_bytes(const shard_writer *w, shard_kind kind);
/* An empty set as the options say. */
shards *writer_new_set(const char *dir, const shard_writer_options *opt);
/* Takes `set` over. */
shard_writer *writer_new(shards *set, const shard_writer_options *opt);
/* Removes shard files with a number of `from` or above: what a dead build left. */
status writer_remove_from(const char *dir, int from, err *e) ATH_MUST_USE;

#endif
