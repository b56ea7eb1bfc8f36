/* The bytes of one file of records as UTF-8: unpacked and, where need be, converted.
 *
 * While there is only ASCII the charset is left open; the first other byte decides. Offsets count
 * these bytes, which in UTF-8 are those of the unpacked file. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct source source;

/* `charset` NULL: to be found out. The path must outlive the source. */
status source_open(source **out, const char *path, const char *charset, err *e) ATH_MUST_USE;
void source_close(source *s); /* NULL is fine */
/* Up to n bytes; *got 0 only at the end. ST_FORMAT: a broken file. */
status source_read(source *s, char *p, size_t n, size_t *got, err *e) ATH_MUST_USE;
/* Passes over bytes that were read before. ST_FORMAT also when there are not so many. */
status source_skip(source *s, uint64_t bytes, err *e) ATH_MUST_USE;
uint64_t source_disk_bytes(const source *s);
const char *source_charset(const source *s); /* "unknown" when nothing explained it */

#endif
