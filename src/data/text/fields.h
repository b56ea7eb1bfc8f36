/* What is taken out of a record: the fields by name, and how they make up the text.
 *
 * Parsed once when reading begins, shared read-only by all chunks afterwards. The parsers of the
 * formats fill one field_value for each field; chunk.c turns those into a document. */
#ifndef DATA_FIELDS_H
#define DATA_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "data/text/reader.h"

enum { FIELDS_MAX = 32, FIELD_MAX_DEPTH = 16 };

typedef enum value_kind {
    VALUE_NONE, /* the record has no such field */
    VALUE_TEXT,
    VALUE_SCALAR, /* a number, true or false, as it is written */
    VALUE_NULL,
    VALUE_OTHER, /* a list or an object */
} value_kind;

/* Lies in the record. */
typedef struct field_value {
    value_kind kind;
    const char *s;
    size_t len;
    bool escaped; /* s needs the unescaping of its format */
} field_value;

typedef struct field_path {
    const char *name; /* "meta.body" */
    int n_parts;
    const char *part[FIELD_MAX_DEPTH]; /* "meta", "body"; not NUL-terminated */
    size_t part_len[FIELD_MAX_DEPTH];
} field_path;

/* Text between fields, or a field: `field` >= 0. */
typedef struct template_piece {
    int field;
    const char *text;
    size_t len;
} template_piece;

typedef struct record_fields {
    field_path field[FIELDS_MAX];
    int n;
    template_piece *piece; /* the text of a document; without a template one field */
    int n_pieces;
    bool is_template;
    int label, id, score; /* numbers of fields; -1: not asked for */
    uint32_t needed;      /* bits of the fields that a table must have */
} record_fields;

/* ST_USAGE: an empty name, a template with a brace that stands alone, too many fields. */
status record_fields_parse(record_fields *f, arena *a, const reader_options *opt,
                           err *e) ATH_MUST_USE;

#endif
