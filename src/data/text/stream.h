/* The bytes of one file, unpacked: plain, gzip (all its members) or zstd (all its frames), told by
 * the first bytes and not by the name. Memory is a buffer of fixed size and the window of the
 * packing: at most 128 MiB, for a packed file of that size or more at most 2 GiB.
 *
 * A file that unpacks to more than STREAM_MAX_RATIO times its size is refused, once that is more
 * than STREAM_FREE_BYTES: no text packs so well, and a few kilobytes could keep a reader busy for
 * ever. */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { STREAM_MAX_RATIO = 1000, STREAM_FREE_BYTES = 64 << 20 };

typedef struct stream stream;

/* "-" is standard input. The path must outlive the stream. */
status stream_open(stream **out, const char *path, err *e) ATH_MUST_USE;
void stream_close(stream *s); /* NULL is fine */
/* Up to n unpacked bytes; *got 0 only at the end. ST_FORMAT: the file cannot be read, is broken,
 * ends too early, or unpacks to more than is allowed. */
status stream_read(stream *s, void *p, size_t n, size_t *got, err *e) ATH_MUST_USE;
/* Passes over up to n unpacked bytes; *passed fewer only at the end. A plain file is not read. */
status stream_skip(stream *s, uint64_t n, uint64_t *passed, err *e) ATH_MUST_USE;
bool stream_is_packed(const stream *s);
uint64_t stream_disk_bytes(const stream *s); /* of the file as it lies there, read so far */

#endif
