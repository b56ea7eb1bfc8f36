/* How far a build is, as a file: written atomically after the shards were made durable, so it never
 * says more than what is there. A build goes on from it only if it is the same build: the same
 * inputs (by name, size and time), tokenizer and options. */
#ifndef DATA_BUILD_STATE_H
#define DATA_BUILD_STATE_H

#include <jansson.h>

#include "data/build/build.h"
#include "data/build/pipeline.h"

typedef struct build_state {
    json_t *made_with;  /* object of strings: what must be the same */
    bool complete;      /* all text is in the shards; they are being put in place */
    build_place place;  /* in the inputs */
    uint64_t documents; /* begun */
    double seconds;
    reader_report report;
    json_t *writer[2]; /* of shard_writer_sync; NULL: no such side */
} build_state;

status build_state_save(const char *path, const build_state *s, err *e) ATH_MUST_USE;
/* False when there is none, or none that can be understood. */
bool build_state_load(const char *path, build_state *s);
/* The key of `made_with` that differs, NULL when it is the same build. */
const char *build_state_difference(const build_state *s, const json_t *made_with);
void build_state_free(build_state *s);

#endif
