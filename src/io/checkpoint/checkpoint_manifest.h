/* state/manifest.json: size and XXH3-64 of every file of a checkpoint, XXH3-64 of every tensor of
 * its safetensors files, the validation loss, and a checksum of itself. Private to the checkpoint
 * files. */
#ifndef IO_CHECKPOINT_MANIFEST_H
#define IO_CHECKPOINT_MANIFEST_H

#include "base/arena.h"
#include "base/status.h"

#define MANIFEST_NAME "state/manifest.json"
#define STATE_DIR "state"
#define UPLOAD_MARK "state/uploaded"

typedef struct manifest_tensor {
    const char *name;
    uint64_t hash;
} manifest_tensor;

typedef struct manifest_file {
    const char *name; /* "config.json" or "state/cursor.json" */
    uint64_t bytes, hash;
    manifest_tensor *tensors; /* those of a safetensors file, when its writer knew them */
    int64_t n_tensors;
} manifest_file;

typedef struct manifest {
    int64_t step;
    double score; /* NaN: none */
    manifest_file *files;
    int n, cap;
} manifest;

/* "name" or "state/name", where name is printable and does not begin with a dot. */
bool manifest_name_ok(const char *name);
/* Heap text, to be freed. */
char *manifest_encode(const manifest *m);
/* Strings, files and tensors live in the arena. The message does not name the manifest itself. */
status manifest_decode(arena *a, manifest *m, const char *text, size_t len, err *e) ATH_MUST_USE;
/* Reads the manifest of the checkpoint in dir. ST_FORMAT: it is missing or damaged; the message begins
 * with MANIFEST_NAME. */
status manifest_read(arena *a, manifest *m, const char *dir, err *e) ATH_MUST_USE;

#endif
