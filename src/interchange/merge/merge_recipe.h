/* What a merge is to be, from YAML in the words of mergekit:
 *
 *     method: ties                # or merge_method
 *     base: models/base           # or base_model
 *     models:
 *       - {model: models/a, weight: 0.6, density: 0.5}
 *       - model: models/b
 *         parameters: {weight: [0.1, 0.9]}      # from the first layer to the last
 *     parameters: {normalize: true, lambda: 1.0}
 *     dtype: bf16                 # of the result; as the first model is stored when omitted
 *     seed: 0
 *     tokenizer_source: models/a  # whose tokenizer, chat template and config the result has
 *
 * A parameter is a number, a list of numbers (spread over the layers, straight between them; the
 * first for what lies outside the layers), or a list of {filter, value}, of which the first counts whose
 * filter is a part of the tensor's name. A model's own counts before that of all.
 *
 * Reading order: merge_recipe_read, merge_recipe_fill. */
#ifndef INTERCHANGE_MERGE_RECIPE_H
#define INTERCHANGE_MERGE_RECIPE_H

#include <jansson.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "interchange/merge/merge_math.h"

enum { MERGE_MAX_MODELS = 64 };

typedef struct merge_member {
    const char *path;
    const char *where; /* its key: "models.1" */
    const json_t *own; /* its element of `models`; NULL: only a path */
} merge_member;

typedef struct merge_recipe {
    arena *a;
    const json_t *config, *origins; /* the caller's */
    const char *file;
    merge_method method;
    const char *base; /* NULL: none; the first model then gives config and tokenizer */
    merge_member member[MERGE_MAX_MODELS];
    int n;
    const char *dress; /* path of the model that gives tokenizer and template; NULL: not said */
    uint64_t seed;
    dtype dt; /* DT_COUNT: as stored */
} merge_recipe;

/* The words of methods, ended by NULL. */
extern const char *const merge_method_words[];

/* Reads and checks all of it but the models themselves. `config` and `origins` (yaml_load) stay the
 * caller's and must outlive the recipe. ST_USAGE with file and line. */
status merge_recipe_read(merge_recipe *r, arena *a, const json_t *config, const json_t *origins,
                         const char *file, err *e) ATH_MUST_USE;

/* Sets method, seed, weights, densities, t, lambda and switches for the tensor m->name; m->in has
 * room for r->n. place: where its layer lies, from 0, the first, to 1. */
void merge_recipe_fill(const merge_recipe *r, double place, merge_tensor *m);

#endif
