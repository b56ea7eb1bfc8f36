/* See thrift.h. */
#include "data/parquet/thrift.h"

enum { MAX_DEPTH = 32, LONG_LIST = 15 };
/* Types in headers of fields and lists. */
enum { TRUE = 1, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID };

void thrift_fail(thrift *t, const char *why) {
    if (!t->why) t->why = why;
    t->p = t->end;
}

bool varint_read(const uint8_t **p, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t byte = *(*p)++;
        if (shift == 63 && byte > 1) return false;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static uint64_t take_varint(thrift *t) {
    uint64_t v;
    if (t->why) return 0;
    if (varint_read(&t->p, t->end, &v)) return v;
    thrift_fail(t, t->p == t->end ? THRIFT_ENDS_TOO_EARLY : "a number has more than 64 bits");
    return 0;
}

static const uint8_t *take_bytes(thrift *t, uint64_t n) {
    const uint8_t *p = t->p;
    if (n > (uint64_t)(t->end - t->p)) {
        thrift_fail(t, THRIFT_ENDS_TOO_EARLY);
        return NULL;
    }
    t->p += n;
    return p;
}

static int take_byte(thrift *t) {
    const uint8_t *p = take_bytes(t, 1);
    return p ? *p : 0;
}

bool thrift_next(thrift *t, thrift_field *f) {
    int header = take_byte(t);
    f->type = header & 15;
    if (t->why || f->type == 0) return false;
    int64_t id = header >> 4 ? f->id + (header >> 4) : zigzag(take_varint(t));
    if (id < INT16_MIN || id > INT16_MAX) thrift_fail(t, "a field has an impossible number");
    f->id = (int)id;
    return !t->why;
}

static bool expect(thrift *t, bool as_expected) {
    if (!as_expected) thrift_fail(t, "a field has the wrong type");
    return !t->why;
}

int64_t thrift_int(thrift *t, const thrift_field *f, int64_t least, int64_t most) {
    if (!expect(t, f->type >= BYTE && f->type <= I64)) return 0;
    int64_t v = f->type == BYTE ? (int8_t)take_byte(t) : zigzag(take_varint(t));
    if (v < least || v > most) thrift_fail(t, "a number is out of its range");
    return t->why ? 0 : v;
}

bool thrift_bool(thrift *t, const thrift_field *f) {
    return expect(t, f->type == TRUE || f->type == FALSE) && f->type == TRUE;
}

const char *thrift_binary(thrift *t, const thrift_field *f, size_t *len) {
    *len = 0;
    if (!expect(t, f->type == BINARY)) return "";
    uint64_t n = take_varint(t);
    const uint8_t *p = take_bytes(t, n);
    if (!p) return "";
    *len = (size_t)n;
    return (const char *)p;
}

bool thrift_struct(thrift *t, const thrift_field *f) {
    return expect(t, f->type == STRUCT);
}

static uint64_t take_list(thrift *t, int *type) {
    int header = take_byte(t);
    uint64_t n = (uint64_t)header >> 4;
    *type = header & 15;
    if (n == LONG_LIST) n = take_varint(t);
    if (n > (uint64_t)(t->end - t->p)) thrift_fail(t, THRIFT_ENDS_TOO_EARLY);
    return t->why ? 0 : n;
}

int64_t thrift_structs(thrift *t, const thrift_field *f) {
    int type;
    if (!expect(t, f->type == LIST)) return 0;
    uint64_t n = take_list(t, &type);
    return n == 0 || expect(t, type == STRUCT) ? (int64_t)n : 0;
}

static void skip_value(thrift *t, int type, bool in_list, int depth);

static void skip_list(thrift *t, int depth) {
    int type;
    uint64_t n = take_list(t, &type);
    for (uint64_t i = 0; i < n && !t->why; i++) skip_value(t, type, true, depth);
}

static void skip_map(thrift *t, int depth) {
    uint64_t n = take_varint(t);
    int types = n > 0 ? take_byte(t) : 0;
    if (n > (uint64_t)(t->end - t->p)) thrift_fail(t, THRIFT_ENDS_TOO_EARLY);
    for (uint64_t i = 0; i < n && !t->why; i++) {
        skip_value(t, types >> 4, true, depth);
        skip_value(t, types & 15, true, depth);
    }
}

/* A truth value of a field lies in its header, one of a list in a byte. */
static void skip_value(thrift *t, int type, bool in_list, int depth) {
    thrift_field f = {0};
    if (depth == MAX_DEPTH) thrift_fail(t, "structs are nested too deep");
    if (t->why) return;
    switch (type) {
        case TRUE:
        case FALSE: take_bytes(t, in_list); break;
        case BYTE: take_bytes(t, 1); break;
        case I16:
        case I32:
        case I64: take_varint(t); break;
        case DOUBLE: take_bytes(t, 8); break;
        case UUID: take_bytes(t, 16); break;
        case BINARY: take_bytes(t, take_varint(t)); break;
        case LIST:
        case SET: skip_list(t, depth + 1); break;
        case MAP: skip_map(t, depth + 1); break;
        case STRUCT:
            while (thrift_next(t, &f)) skip_value(t, f.type, false, depth + 1);
            break;
        default: thrift_fail(t, "a field has an unknown type");
    }
}

void thrift_skip(thrift *t, const thrift_field *f) {
    skip_value(t, f->type, false, 0);
}
