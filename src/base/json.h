/* JSON: reading files, and writing so that every number reads back to the same value in its shortest
 * form. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

/* The JSON in a file of a folder (file_read_part), with a limit: parsed, it may take fifty times as
 * much memory. The caller owns *out, which is NULL on failure. ST_FORMAT also when an object has the
 * same key twice. */
#define JSON_FILE_MAX_BYTES ((int64_t)64 << 20)
status json_read_file(json_t **out, const char *path, int64_t most_bytes, err *e) ATH_MUST_USE;

/* A real that prints as the shortest decimal which reads back to the same float (at most nine
 * digits); null for NaN and infinities, which JSON cannot say. */
json_t *json_f32(double value); /* rounded to float */
/* The same for a double. */
json_t *json_f64(double value);

/* 16 hex digits (hash_format). */
json_t *json_hash(uint64_t hash);

/* A string of any bytes; what is not UTF-8 becomes U+FFFD (utf8_append). Whatever came from outside
 * (names of files and folders, messages that hold them, what a model says) becomes JSON here: jansson's
 * json_string, and "s" of json_pack, give NULL for such bytes, and json_pack then no object at all. */
json_t *json_text(const char *bytes, size_t len);
/* The same for a string with a NUL after it; null for NULL. */
json_t *json_cstr(const char *text);

/* Appends the value in the order of its keys; indent 0 gives one line, otherwise spaces per level
 * (lists of scalars stay on one line). Reals take the fewest digits that read back exactly. What readers of YAML would change is
 * escaped. */
void json_format(strbuf *out, const json_t *value, int indent);

/* Appends a text in quotes, as JSON and YAML read it, whatever is in it. */
void json_put_text(strbuf *out, const char *text);
/* The same, in the arena. */
const char *json_quoted(arena *a, const char *text);

#endif
