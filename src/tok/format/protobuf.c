/* Protocol buffers on the wire; see protobuf.h. */
#include "tok/format/protobuf.h"

#include <string.h>

static bool fail(pb_reader *r) {
    r->bad = true;
    r->at = r->end;
    return false;
}

static bool read_varint(pb_reader *r, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end) return fail(r);
        uint8_t byte = *r->at++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return fail(r);
}

/* Little-endian, 4 or 8 bytes. */
static bool read_fixed(pb_reader *r, int n, uint64_t *value) {
    *value = 0;
    if (r->end - r->at < n) return fail(r);
    for (int i = 0; i < n; i++) *value |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    return true;
}

static bool read_bytes(pb_reader *r, pb_field *f) {
    uint64_t len;
    if (!read_varint(r, &len) || len > (uint64_t)(r->end - r->at)) return fail(r);
    f->bytes = (const char *)r->at;
    f->len = (size_t)len;
    r->at += len;
    return true;
}

bool pb_next(pb_reader *r, pb_field *f) {
    uint64_t key;
    *f = (pb_field){0};
    if (r->at == r->end || !read_varint(r, &key)) return false;
    if (key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) return fail(r);
    f->number = (uint32_t)(key >> 3);
    f->type = (pb_type)(key & 7);
    switch (f->type) {
        case PB_VARINT: return read_varint(r, &f->value);
        case PB_FIXED64: return read_fixed(r, 8, &f->value);
        case PB_FIXED32: return read_fixed(r, 4, &f->value);
        case PB_BYTES: return read_bytes(r, f);
    }
    return fail(r); /* groups, which nothing here has */
}

float pb_float(const pb_field *f) {
    uint32_t bits = (uint32_t)f->value;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void put_varint(strbuf *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7) strbuf_putc(b, (char)(value | 0x80));
    strbuf_putc(b, (char)value);
}

static void put_key(strbuf *b, uint32_t number, pb_type type) {
    put_varint(b, (uint64_t)number << 3 | type);
}

void pb_put_varint(strbuf *b, uint32_t number, uint64_t value) {
    put_key(b, number, PB_VARINT);
    put_varint(b, value);
}

void pb_put_float(strbuf *b, uint32_t number, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(b, number, PB_FIXED32);
    for (int i = 0; i < 4; i++) strbuf_putc(b, (char)(bits >> 8 * i));
}

void pb_put_bytes(strbuf *b, uint32_t number, const void *bytes, size_t len) {
    put_key(b, number, PB_BYTES);
    put_varint(b, len);
    strbuf_append(b, bytes, len);
}
