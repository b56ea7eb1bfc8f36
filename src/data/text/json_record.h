/* One JSON record: checks it whole and strictly (RFC 8259) in one pass and picks the wanted fields,
 * which stay where they are. About as fast as the bytes can be looked at eight at a time.
 *
 * Stricter than many: no NaN, no lone surrogates, no bytes that are not UTF-8, nesting of at most
 * JSON_MAX_DEPTH. Of keys that stand twice in an object the last counts. */
#ifndef DATA_JSON_RECORD_H
#define DATA_JSON_RECORD_H

#include "data/text/fields.h"

enum { JSON_MAX_DEPTH = 512 };

typedef struct json_problem {
    const char *why; /* "a comma or a closing bracket is missing" */
    size_t at;       /* byte of the record, from 0 */
} json_problem;

/* Fills value[0..f->n). False when this is not JSON; p says why. *is_object is false for other
 * values, which hold no fields. */
bool json_record_scan(const char *s, size_t n, const record_fields *f, field_value *value,
                      bool *is_object, json_problem *p);
/* The contents of a string that json_record_scan found, unescaped; `out` has room for n bytes.
 * Returns the length. */
size_t json_record_unescape(const char *s, size_t n, char *out);
/* The first key of an object that was scanned; NULL when there is none. Not unescaped. */
const char *json_record_first_key(const char *s, size_t n, size_t *len);

#endif
