/* Writing pieces into a file that exists, at any place: as one of several processes that fill it.
 *
 * Pieces that follow each other are gathered, so small ones cost no system call each. After a
 * failure the only call left is file_patch_close. */
#ifndef BASE_FILE_PATCH_H
#define BASE_FILE_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FILE_PATCH_BYTES = 1 << 20 }; /* of the buffer */

typedef struct file_patch {
    int fd;
    char *path;
    uint8_t *buf;
    uint64_t at; /* of the buffer's first byte in the file */
    size_t used;
} file_patch;

status file_patch_open(file_patch *f, const char *path, err *e) ATH_MUST_USE;
status file_patch_write(file_patch *f, uint64_t offset, const void *data, size_t len,
                        err *e) ATH_MUST_USE;
/* The same for bytes that are yet to be made, at most FILE_PATCH_BYTES: the place to fill before
 * the next call. Aligned as `offset` is, up to 64. */
status file_patch_room(file_patch *f, uint64_t offset, size_t len, void **room,
                       err *e) ATH_MUST_USE;
/* With `keep`: flushes, fsyncs; closes in any case. */
status file_patch_close(file_patch *f, bool keep, err *e) ATH_MUST_USE;

#endif
