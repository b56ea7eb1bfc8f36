/* The wire format of protocol buffers, as far as SentencePiece models need it: a reader that walks
 * the fields of one message and a writer into a string. Hostile bytes end the walk, never the
 * program; nested messages are walked by a reader of their own, so there is no recursion. */
#ifndef TOK_FORMAT_PROTOBUF_H
#define TOK_FORMAT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

typedef enum pb_type { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 } pb_type;

typedef struct pb_reader {
    const uint8_t *at, *end;
    bool bad; /* the bytes are not a message */
} pb_reader;

/* One field. `value` of numbers; `bytes` of strings and messages, inside what is read. */
typedef struct pb_field {
    uint32_t number;
    pb_type type;
    uint64_t value;
    const char *bytes;
    size_t len;
} pb_field;

static inline pb_reader pb_read(const char *bytes, size_t len) {
    return (pb_reader){(const uint8_t *)bytes, (const uint8_t *)bytes + len, false};
}
/* The next field; false at the end, and with r->bad set where the bytes make no sense. */
bool pb_next(pb_reader *r, pb_field *f);
float pb_float(const pb_field *f); /* of a PB_FIXED32 */

void pb_put_varint(strbuf *b, uint32_t number, uint64_t value);
void pb_put_float(strbuf *b, uint32_t number, float value);
void pb_put_bytes(strbuf *b, uint32_t number, const void *bytes, size_t len);

#endif
