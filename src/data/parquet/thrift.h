/* Thrift's compact protocol, in which Parquet writes its footer and its page headers
 * (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
 *
 * A struct is read field by field; fields that nobody knows are passed over:
 *
 *     for (thrift_field f = {0}; thrift_next(t, &f);)
 *         if (f.id == 1) rows = thrift_int(t, &f, 0, INT64_MAX);
 *         else thrift_skip(t, &f);
 *
 * What is wrong is remembered: `why` then says it, every loop ends, every number is 0, and the
 * caller asks once, at the end. No call reads beyond `end`. */
#ifndef DATA_PARQUET_THRIFT_H
#define DATA_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct thrift {
    const uint8_t *p, *end;
    const char *why; /* NULL: all is well */
} thrift;

#define THRIFT_ENDS_TOO_EARLY "it ends too early"

typedef struct thrift_field {
    int id; /* of the field just read; begins as 0 */
    int type;
} thrift_field;

/* The next field of a struct; false at its end, and when something is wrong. */
bool thrift_next(thrift *t, thrift_field *f);
/* The value of a field; of another type than asked for, or outside of [least, most]: wrong. */
int64_t thrift_int(thrift *t, const thrift_field *f, int64_t least, int64_t most);
bool thrift_bool(thrift *t, const thrift_field *f);
/* Lies in the bytes that are read. */
const char *thrift_binary(thrift *t, const thrift_field *f, size_t *len);
/* True before a struct, whose fields are then read with a thrift_field of their own. */
bool thrift_struct(thrift *t, const thrift_field *f);
/* The number of structs in a list, which are then read one after the other. It is at most the
 * number of bytes that are left. */
int64_t thrift_structs(thrift *t, const thrift_field *f);
void thrift_skip(thrift *t, const thrift_field *f);
/* For what is wrong in the eyes of the caller; the first reason stays. */
void thrift_fail(thrift *t, const char *why);

/* ULEB128 of at most 64 bits, which encodings of values use, too; false when it is wrong or cut
 * off. */
bool varint_read(const uint8_t **p, const uint8_t *end, uint64_t *value);
static inline int64_t zigzag(uint64_t v) {
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

#endif
