/* A file of a shard being written: a header whose contents are known last, then a body that is
 * hashed as it goes. It can be made durable in the middle and gone on with later.
 *
 * The first error is kept: all later calls fail with it. */
#ifndef DATA_SHARD_OUT_H
#define DATA_SHARD_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

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

#endif
