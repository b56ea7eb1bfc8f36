/* Reads the metadata of a GGUF file.
 *
 * Reading order: the cursor (gguf_read.h), take_value, take_pairs, index_pairs, gguf_meta_read; the
 * getters. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gguf_read.h"

enum {
    MAX_PAIRS = 1 << 20,
    MAX_KEY_BYTES = 65535,
    MIN_PAIR_BYTES = 8 + 1 + 4 + 1, /* length, a letter, type, the shortest value */
    MAX_ALIGNMENT = 1 << 20
};

/* ---- the cursor ---- */

status gguf_bad(const gguf_cursor *c, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    err_at(c->e, ST_FORMAT, c->label, "%s: %s", c->label, what);
    return err_hint(c->e, "the file is damaged or was not copied whole");
}

status gguf_cut_short(const gguf_cursor *c) {
    return gguf_bad(c, "the GGUF metadata ends too early or a length in it is wrong (at byte %zu)",
                    c->at);
}

status gguf_take_bytes(gguf_cursor *c, size_t n, const char **bytes) {
    if (n > c->len - c->at) return gguf_cut_short(c);
    *bytes = c->bytes + c->at;
    c->at += n;
    return ST_OK;
}

status gguf_take_u32(gguf_cursor *c, uint32_t *x) {
    const char *bytes = NULL;
    TRY(gguf_take_bytes(c, 4, &bytes));
    memcpy(x, bytes, 4);
    return ST_OK;
}

status gguf_take_u64(gguf_cursor *c, uint64_t *x) {
    const char *bytes = NULL;
    TRY(gguf_take_bytes(c, 8, &bytes));
    memcpy(x, bytes, 8);
    return ST_OK;
}

status gguf_take_text(gguf_cursor *c, gguf_text *s) {
    uint64_t n;
    TRY(gguf_take_u64(c, &n));
    if (n > c->len) return gguf_cut_short(c);
    s->len = (size_t)n;
    return gguf_take_bytes(c, s->len, &s->text);
}

status gguf_take_name(gguf_cursor *c, arena *mem, const char *what, size_t max, const char **name) {
    gguf_text s = {0};
    size_t at = c->at;
    TRY(gguf_take_text(c, &s));
    if (s.len < 1 || s.len > max)
        return gguf_bad(c, "the name of a %s at byte %zu has %zu bytes (1 to %zu are allowed)",
                        what, at, s.len, max);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char b = (unsigned char)s.text[i];
        if (b < 0x20 || b == 0x7f)
            return gguf_bad(c, "the name of a %s at byte %zu has a control character", what, at);
    }
    *name = arena_strndup(mem, s.text, s.len);
    return ST_OK;
}

/* ---- types ---- */

static const struct {
    const char *name;
    size_t bytes;
} TYPES[GGUF_TYPES] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},   [GGUF_STRING] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

size_t gguf_type_bytes(gguf_type type) {
    return TYPES[type].bytes;
}

const char *gguf_type_name(gguf_type type) {
    return TYPES[type].name;
}

bool gguf_looks(const char *bytes, size_t len) {
    return len >= 4 && memcmp(bytes, GGUF_MAGIC, 4) == 0;
}

/* ---- pairs ---- */

static status take_type(gguf_cursor *c, gguf_type *type) {
    uint32_t t;
    TRY(gguf_take_u32(c, &t));
    if (t >= GGUF_TYPES) return gguf_bad(c, "GGUF value type %u is not known", t);
    *type = (gguf_type)t;
    return ST_OK;
}

/* The n items; the cursor is at the first. */
static status take_items(gguf_cursor *c, gguf_value *v) {
    size_t size = TYPES[v->item].bytes, start = c->at;
    if (v->n > (c->len - start) / (size ? size : 8)) return gguf_cut_short(c);
    if (size > 0) {
        const char *bytes;
        TRY(gguf_take_bytes(c, size * (size_t)v->n, &bytes));
    } else {
        gguf_text s;
        for (uint64_t i = 0; i < v->n; i++) TRY(gguf_take_text(c, &s));
    }
    v->bytes = c->bytes + start;
    v->len = c->at - start;
    return ST_OK;
}

static status take_value(gguf_cursor *c, gguf_value *v) {
    *v = (gguf_value){.n = 1};
    TRY(take_type(c, &v->type));
    v->item = v->type;
    if (v->type == GGUF_ARRAY) {
        TRY(take_type(c, &v->item));
        TRY(gguf_take_u64(c, &v->n));
        if (v->item == GGUF_ARRAY) return gguf_bad(c, "arrays of arrays are not supported");
    }
    return take_items(c, v);
}

static status take_pairs(gguf_cursor *c, gguf_meta *m, arena *mem, uint64_t n) {
    if (n > MAX_PAIRS || n > (c->len - c->at) / MIN_PAIR_BYTES)
        return gguf_bad(c, "the GGUF header claims %llu keys, more than there is room for",
                        (unsigned long long)n);
    gguf_pair *pairs = ARENA_ARRAY(mem, gguf_pair, n);
    for (uint64_t i = 0; i < n; i++) {
        TRY(gguf_take_name(c, mem, "key", MAX_KEY_BYTES, &pairs[i].key));
        TRY(take_value(c, &pairs[i].value));
    }
    m->pairs = pairs;
    m->n = (int64_t)n;
    return ST_OK;
}

static int compare_key(const void *a, const void *b) {
    return strcmp((*(const gguf_pair *const *)a)->key, (*(const gguf_pair *const *)b)->key);
}

static status index_pairs(const gguf_cursor *c, gguf_meta *m, arena *mem) {
    const gguf_pair **sorted = ARENA_ARRAY(mem, const gguf_pair *, m->n);
    for (int64_t i = 0; i < m->n; i++) sorted[i] = &m->pairs[i];
    qsort(sorted, (size_t)m->n, sizeof(*sorted), compare_key);
    for (int64_t i = 1; i < m->n; i++)
        if (strcmp(sorted[i]->key, sorted[i - 1]->key) == 0)
            return gguf_bad(c, "the key '%.96s' is there twice", sorted[i]->key);
    m->by_name = sorted;
    return ST_OK;
}

static status read_alignment(const gguf_cursor *c, gguf_meta *m) {
    const gguf_value *v = gguf_meta_find(m, "general.alignment");
    int64_t a = GGUF_DEFAULT_ALIGNMENT;
    if (v && (v->type != GGUF_U32 || !gguf_value_int(v, 0, &a)))
        return gguf_bad(c, "general.alignment is no u32");
    if (a < 1 || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return gguf_bad(c, "general.alignment is %lld, not a power of two up to %d", (long long)a,
                        MAX_ALIGNMENT);
    m->alignment = (uint32_t)a;
    return ST_OK;
}

static status read_version(gguf_cursor *c, uint32_t *version) {
    const char *magic = NULL;
    TRY(gguf_take_bytes(c, 4, &magic));
    if (!gguf_looks(magic, 4)) return gguf_bad(c, "this is no GGUF file");
    TRY(gguf_take_u32(c, version));
    if (*version == 2 || *version == 3) return ST_OK;
    if ((*version & 0xffff) == 0) {
        gguf_bad(c, "big-endian GGUF files are not supported");
        return err_hint(c->e,
                        "convert it to little-endian with llama.cpp's gguf_convert_endian.py");
    }
    gguf_bad(c, "GGUF version %u is not supported (2 and 3 are)", *version);
    return err_hint(c->e, "convert the model again with a newer llama.cpp");
}

status gguf_meta_read(gguf_meta *m, arena *mem, const char *bytes, size_t len, const char *label,
                      err *e) {
    gguf_cursor c = {bytes, len, 0, label, e};
    uint64_t pairs;
    *m = (gguf_meta){.label = label};
    if (read_version(&c, &m->version) != ST_OK) return ST_FORMAT;
    TRY(gguf_take_u64(&c, &m->n_tensors));
    TRY(gguf_take_u64(&c, &pairs));
    TRY(take_pairs(&c, m, mem, pairs));
    TRY(index_pairs(&c, m, mem));
    m->end = c.at;
    return read_alignment(&c, m);
}

/* ---- values ---- */

/* Item i of a number; wide enough for each type. */
typedef union gguf_number {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
} gguf_number;

static gguf_number number_at(const gguf_value *v, uint64_t i) {
    CHECK(i < v->n, "item %llu of %llu", (unsigned long long)i, (unsigned long long)v->n);
    gguf_number x = {0};
    size_t size = TYPES[v->item].bytes;
    memcpy(&x, v->bytes + size * (size_t)i, size);
    return x;
}

bool gguf_value_int(const gguf_value *v, uint64_t i, int64_t *x) {
    gguf_number n = number_at(v, i);
    switch (v->item) {
        case GGUF_U8: *x = n.u8; return true;
        case GGUF_I8: *x = n.i8; return true;
        case GGUF_U16: *x = n.u16; return true;
        case GGUF_I16: *x = n.i16; return true;
        case GGUF_U32: *x = n.u32; return true;
        case GGUF_I32: *x = n.i32; return true;
        case GGUF_I64: *x = n.i64; return true;
        case GGUF_U64: *x = (int64_t)n.u64; return n.u64 <= INT64_MAX;
        default: return false;
    }
}

bool gguf_value_float(const gguf_value *v, uint64_t i, double *x) {
    gguf_number n = number_at(v, i);
    *x = v->item == GGUF_F32 ? (double)n.f32 : n.f64;
    return v->item == GGUF_F32 || v->item == GGUF_F64;
}

bool gguf_value_bool(const gguf_value *v, uint64_t i, bool *x) {
    *x = number_at(v, i).u8 != 0;
    return v->item == GGUF_BOOL;
}

const gguf_text *gguf_value_texts(const gguf_value *v, arena *mem) {
    if (v->item != GGUF_STRING) return NULL;
    gguf_text *s = ARENA_ARRAY(mem, gguf_text, v->n);
    const char *at = v->bytes;
    for (uint64_t i = 0; i < v->n; i++) {
        uint64_t len;
        memcpy(&len, at, 8);
        s[i] = (gguf_text){at + 8, (size_t)len};
        at += 8 + len;
    }
    return s;
}

/* ---- keys ---- */

const gguf_value *gguf_meta_find(const gguf_meta *m, const char *key) {
    int64_t lo = 0, hi = m->n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        int c = strcmp(m->by_name[mid]->key, key);
        if (c == 0) return &m->by_name[mid]->value;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* A single value of a key. */
static status require(const gguf_meta *m, const char *key, const gguf_value **v, err *e) {
    *v = gguf_meta_find(m, key);
    if (*v && (*v)->type != GGUF_ARRAY) return ST_OK;
    if (!*v) err_set(e, ST_FORMAT, "%s: the key '%s' is missing", m->label, key);
    if (*v) err_set(e, ST_FORMAT, "%s: the key '%s' is an array, not one value", m->label, key);
    err_where(e, "%s", key);
    return ST_FORMAT;
}

static status wrong_type(const gguf_meta *m, const char *key, const gguf_value *v,
                         const char *wanted, err *e) {
    return err_at(e, ST_FORMAT, key, "%s: the key '%s' is a %s that is no %s", m->label, key,
                  gguf_type_name(v->type), wanted);
}

status gguf_meta_int(const gguf_meta *m, const char *key, int64_t *x, err *e) {
    const gguf_value *v;
    TRY(require(m, key, &v, e));
    return gguf_value_int(v, 0, x) ? ST_OK : wrong_type(m, key, v, "63-bit integer", e);
}

status gguf_meta_float(const gguf_meta *m, const char *key, double *x, err *e) {
    const gguf_value *v;
    TRY(require(m, key, &v, e));
    return gguf_value_float(v, 0, x) ? ST_OK : wrong_type(m, key, v, "floating-point number", e);
}

status gguf_meta_bool(const gguf_meta *m, const char *key, bool *x, err *e) {
    const gguf_value *v;
    TRY(require(m, key, &v, e));
    return gguf_value_bool(v, 0, x) ? ST_OK : wrong_type(m, key, v, "bool", e);
}

status gguf_meta_text(const gguf_meta *m, const char *key, gguf_text *x, err *e) {
    const gguf_value *v;
    TRY(require(m, key, &v, e));
    if (v->type != GGUF_STRING) return wrong_type(m, key, v, "string", e);
    *x = (gguf_text){v->bytes + 8, v->len - 8};
    return ST_OK;
}
