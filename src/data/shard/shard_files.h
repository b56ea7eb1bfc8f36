/* A bounded cache of open files for reading by position, shared by any number of threads and of
 * owners (shard sets). A file is named by (owner, number); its path is asked for only when it is
 * opened. The file that was not used for longest and that nobody reads is closed for another one;
 * when all are being read, a file is opened for the one read.
 *
 * A file has an identity, taken when its set is opened. Every read compares it with that of the
 * open file, so a file that is replaced or written to while a run reads it stops the run: old and
 * new contents are never mixed. */
#ifndef DATA_SHARD_FILES_H
#define DATA_SHARD_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SHARD_PATH_BYTES = 4096 };

/* Which file lies under a path, and in which state. */
typedef struct file_identity {
    uint64_t device, inode, bytes;
    int64_t modified_ns;
} file_identity;
/* False with errno when the file cannot be looked at. */
bool file_identity_of(const char *path, file_identity *out);
bool file_identity_equal(const file_identity *a, const file_identity *b);

typedef struct shard_files shard_files;
/* Writes the NUL-terminated path of the owner's file `number`. */
typedef void shard_files_path(const void *owner, int number, char out[SHARD_PATH_BYTES]);

/* At most `limit` files stay open. */
shard_files *shard_files_new(int limit);
void shard_files_free(shard_files *f); /* NULL is fine */
/* Closes the owner's files; nobody may be reading them. */
void shard_files_drop(shard_files *f, const void *owner);
/* Reads exactly n bytes at `offset` of the file that was `known` when its set was opened.
 * ST_FORMAT: it cannot be opened or read, ends before, or is not that file any more. */
status shard_files_read(shard_files *f, const void *owner, int number, shard_files_path *path,
                        const file_identity *known, uint64_t offset, void *buf, size_t n,
                        err *e) ATH_MUST_USE;

#endif
