/* YAML (and JSON, its subset) text to jansson values, with typing rules of its own.
 *
 * Plain scalars follow the YAML 1.2 core schema: `1`, `0x1f`, `3e-4`, `.5` are numbers, `true` and
 * `false` booleans, `null`, `~` and nothing null. Everything else is a string: `no`, `on`, `10B`,
 * `.inf`. Quoted and block scalars are always strings.
 *
 * The text is untrusted: size, depth, node count (after aliases) and path length are bounded,
 * duplicate keys are errors. Beside the value comes a table of origins: a JSON object that maps a
 * key path ("train.steps", "data.train.0.path") to "file:line". */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

enum {
    YAML_MAX_BYTES = 4 << 20,
    YAML_MAX_DEPTH = 64,
    YAML_MAX_NODES = 100000, /* after alias expansion */
    YAML_MAX_PATH = 1024,
};

/* Parses one document. `name` stands in origins and errors. `origins` may be NULL. On success the
 * caller owns *root (an empty document gives null) and *origins; on failure both are NULL. */
status yaml_parse(json_t **root, json_t **origins, const char *name, const char *text, size_t len,
                  err *e) ATH_MUST_USE;
/* The same from a file; "-" is standard input. */
status yaml_load(json_t **root, json_t **origins, const char *path, err *e) ATH_MUST_USE;
/* The same from a file that is no config: what is wrong with it is ST_FORMAT. */
status yaml_load_data(json_t **root, json_t **origins, const char *path, err *e) ATH_MUST_USE;
/* "file:line" of the key path or of its nearest parent in the table; NULL when there is none. */
const char *yaml_origin(const json_t *origins, const char *path);

#endif
