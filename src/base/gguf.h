/* The metadata of a GGUF file: typed values under keys, both ways.
 *
 * File, little-endian, versions 2 and 3: "GGUF", u32 version, u64 tensors, u64 pairs; the pairs; a
 * record for each tensor; padding; the data. A pair is a string, a u32 type and a value; a string
 * is a u64 length and its bytes; an array is a u32 type of its items, a u64 count and the items.
 *
 * The bytes are not trusted. A count is believed only as far as there are bytes for it, every value
 * is walked before it is handed out, keys are unique and have no control characters. Values stay
 * where they are, as they are stored: their bytes may be read after that without any check.
 *
 * Reading order: gguf_value, gguf_meta_read, gguf_meta_find and the getters; gguf_pairs. */
#ifndef BASE_GGUF_H
#define BASE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

#define GGUF_MAGIC "GGUF"
#define GGUF_VERSION 3
#define GGUF_DEFAULT_ALIGNMENT 32

/* As numbered in files. */
typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} gguf_type;

/* Bytes of one value; 0 for strings and arrays. */
size_t gguf_type_bytes(gguf_type type);
const char *gguf_type_name(gguf_type type); /* "u32", "string", ... */

typedef struct gguf_text {
    const char *text; /* not terminated */
    size_t len;
} gguf_text;

/* A value, or an array of n of them. */
typedef struct gguf_value {
    gguf_type type;    /* GGUF_ARRAY, or that of the value */
    gguf_type item;    /* of the items of an array (never GGUF_ARRAY); of a single value its type */
    uint64_t n;        /* items of an array; 1 */
    const char *bytes; /* the items as in the file, at any address; strings with their lengths */
    size_t len;
} gguf_value;

/* Item i < n (0 of a single value) as a number: an integer of any type that an int64 holds, a float
 * of either, or a bool. Returns false when it is something else. */
bool gguf_value_int(const gguf_value *v, uint64_t i, int64_t *x);
bool gguf_value_float(const gguf_value *v, uint64_t i, double *x);
bool gguf_value_bool(const gguf_value *v, uint64_t i, bool *x);
/* All n strings, in the arena; NULL when they are no strings. */
const gguf_text *gguf_value_texts(const gguf_value *v, arena *mem);

typedef struct gguf_pair {
    const char *key;
    gguf_value value;
} gguf_pair;

typedef struct gguf_meta {
    const char *label; /* of the file in errors */
    uint32_t version;
    uint64_t n_tensors;
    int64_t n;
    const gguf_pair *pairs;          /* in the order of the file */
    const gguf_pair *const *by_name; /* sorted */
    size_t end;                      /* of the metadata: where the records of tensors begin */
    uint32_t alignment;              /* general.alignment, a power of two, or the default */
} gguf_meta;

/* Whether it begins like such a file. */
bool gguf_looks(const char *bytes, size_t len);
/* The table lives in the arena and points into the bytes. label must outlive it. ST_FORMAT. */
status gguf_meta_read(gguf_meta *m, arena *mem, const char *bytes, size_t len, const char *label,
                      err *e) ATH_MUST_USE;
const gguf_value *gguf_meta_find(const gguf_meta *m, const char *key); /* NULL when absent */
/* The value of a key that must be there and be of that kind; ST_FORMAT names file and key. */
status gguf_meta_int(const gguf_meta *m, const char *key, int64_t *x, err *e) ATH_MUST_USE;
status gguf_meta_float(const gguf_meta *m, const char *key, double *x, err *e) ATH_MUST_USE;
status gguf_meta_bool(const gguf_meta *m, const char *key, bool *x, err *e) ATH_MUST_USE;
status gguf_meta_text(const gguf_meta *m, const char *key, gguf_text *x, err *e) ATH_MUST_USE;

/* Pairs to be written, in the order they were put. Initialise with {0}. A key is put once. */
typedef struct gguf_pairs {
    strbuf bytes;
    uint64_t n;
} gguf_pairs;

void gguf_put_u32(gguf_pairs *p, const char *key, uint32_t x);
void gguf_put_f32(gguf_pairs *p, const char *key, float x);
void gguf_put_bool(gguf_pairs *p, const char *key, bool x);
void gguf_put_string(gguf_pairs *p, const char *key, const char *s);
/* n numbers of a type, which lie as in memory. */
void gguf_put_array(gguf_pairs *p, const char *key, gguf_type item, const void *items, uint64_t n);
void gguf_put_texts(gguf_pairs *p, const char *key, const gguf_text *items, uint64_t n);
/* A value of any kind, as it was read: byte for byte. */
void gguf_put_value(gguf_pairs *p, const char *key, const gguf_value *v);
void gguf_pairs_free(gguf_pairs *p);

/* A string as files have it, and the header before the pairs. */
void gguf_append_string(strbuf *b, const char *s, size_t len);
void gguf_append_header(strbuf *b, uint64_t n_tensors, const gguf_pairs *p);

#endif
