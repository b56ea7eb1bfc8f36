/* A bounded cache of open files for reading by position, shared by any number of threads and of
 * owners (shard sets). Files are named by (owner, number); the path is asked for only when a file
 * is opened. The least recently used file that nobody reads is closed for another one; when all are
 * in use, a file is opened for the one read. */
#ifndef DATA_SHARD_FILES_H
#define DATA_SHARD_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SHARD_PATH_BYTES = 4096 };

typedef struct shard_files shard_files;
/* Writes the NUL-terminated path of the owner's file `number`. */
typedef void shard_files_path(const void *owner, int number, char out[SHARD_PATH_BYTES]);

/* At most `limit` files stay open. */
shard_files *shard_files_new(int limit);
void shard_files_free(shard_files *f); /* NULL is fine */
/* Closes the owner's files; nobody may be reading them. */
void shard_files_drop(shard_files *f, const void *owner);
/* Reads exactly n bytes at `offset`. ST_FORMAT: cannot be opened or read, or ends before. */
status shard_files_read(shard_files *f, const void *owner, int number, shard_files_path *path,
                        uint64_t offset, void *buf, size_t n, err *e) ATH_MUST_USE;

#endif
