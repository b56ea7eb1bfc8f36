/* Writes a Hugging Face folder from a model of any source: config.json, weights, tokenizer,
 * generation_config.json, chat_template.jinja. */
#ifndef IO_MODEL_FOLDER_H
#define IO_MODEL_FOLDER_H

#include "io/model_source.h"

typedef struct model_folder_options {
    dtype dt;                 /* DT_COUNT: as stored */
    uint64_t max_shard_bytes; /* 0: one file */
} model_folder_options;

typedef struct model_folder_report {
    int n_files;      /* of weights */
    int64_t n_params; /* unique numbers */
    uint64_t bytes;   /* of weights */
    dtype dt;         /* of most numbers */
    bool lossy;       /* a format was given that does not hold what was stored */
} model_folder_report;

/* Into an existing, empty folder; what was written stays on failure: the folder is the caller's. */
status model_folder_write(const model_source *s, const char *dir, const model_folder_options *opt,
                          model_folder_report *out, err *e) ATH_MUST_USE;

/* All of such a folder but the weights. dt: of these, for config.json. */
status model_folder_write_rest(const model_source *s, const char *dir, dtype dt,
                               err *e) ATH_MUST_USE;

/* The weights of such a folder: model.safetensors, or shards with an index
 * (model.safetensors.index.json), named and cut as transformers does. All tensors are written, in
 * their order; a shard is larger than max_bytes (0: no bound) only if it is a single tensor.
 * *n_files (may be NULL): files that hold them. */
status shards_write(const char *dir, const st_tensor *tensors, int64_t n, uint64_t max_bytes,
                    int *n_files, err *e) ATH_MUST_USE;

/* How the same tensors are cut into files: tensors first[k] to first[k + 1] are in file k, named
 * name[k]. In the arena. */
typedef struct shard_cut {
    int64_t *first; /* [n + 1] */
    const char **name;
    int n;
    uint64_t bytes; /* of all tensors */
} shard_cut;
shard_cut shards_plan(arena *a, const st_tensor *tensors, int64_t n, uint64_t max_bytes);
/* model.safetensors.index.json; nothing where one file has all. */
status shards_write_index(const char *dir, const st_tensor *tensors, const shard_cut *c,
                          err *e) ATH_MUST_USE;

/* A folder or file that is written under a hidden name beside the place where it will stand. */
typedef struct staged {
    const char *path, *temp;
    bool replace;                     /* what stands there goes when the new one is complete */
    const char *beside, *beside_temp; /* a file beside it that gets its name with it; NULL: none */
} staged;
/* ST_USAGE: something stands there and force is false, or it is no model that could be replaced. */
status staged_begin(staged *s, arena *a, const char *path, bool folder, bool force,
                    err *e) ATH_MUST_USE;
/* The same for a folder that may take several starts of the program: DIR/.part-NAME, in which what an
 * earlier start wrote is still there. */
status staged_resume(staged *s, arena *a, const char *path, bool force, err *e) ATH_MUST_USE;
/* A file NAME with that suffix goes with a result that is a file: it is to be written as s->beside_temp. */
void staged_add_beside(staged *s, arena *a, const char *suffix);
status staged_commit(const staged *s, err *e) ATH_MUST_USE;
void staged_abandon(const staged *s, err *why); /* the error then names the result */

#endif
