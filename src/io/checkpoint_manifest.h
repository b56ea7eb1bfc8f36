/* state/manifest.json: size and XXH3-64 of every file of a checkpoint, and a checksum of itself.
 * Private to the checkpoint files. */
#ifndef IO_CHECKPOINT_MANIFEST_H
#define IO_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "base/status.h"

#define MANIFEST_NAME "state/manifest.json"
#define STATE_DIR "state"

typedef struct manifest_file {
    const char *name; /* "config.json" or "state/cursor.json" */
    uint64_t bytes, hash;
} manifest_file;

typedef struct manifest {
    int64_t step;
    manifest_file *files;
    int n, cap;
} manifest;

/* "name" or "state/name", where name is printable and does not begin with a dot. */
bool manifest_name_ok(const char *name);
/* Heap text, to be freed. */
char *manifest_encode(const manifest *m);
/* Strings and files live in the arena. The message does not name the manifest itself. */
status manifest_decode(arena *a, manifest *m, const char *text, size_t len, err *e) ATH_MUST_USE;

#endif
