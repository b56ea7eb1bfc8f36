/* `athanor merge`: several models of one shape become one, tensor by tensor, in fp32.
 *
 * The result is a folder as exports are, with a card and a ledger. A merge that was killed goes on
 * where it was when it is started again; one that is complete says so and does nothing.
 *
 * Memory: the largest tensor, once for each model and twice more; a GGUF file is dequantised whole.
 *
 * Reading order: merge_recipe.h (what is asked for), merge_check.h (may it be), merge_math.h (how),
 * merge_write.h (into files), merge_run in merge.c. */
#ifndef INTERCHANGE_MERGE_H
#define INTERCHANGE_MERGE_H

#include <jansson.h>

#include "base/strbuf.h"
#include "interchange/where_runs.h"

typedef struct merge_options {
    unsigned allow; /* bits of merge_check.h */
    bool force;     /* replace a model that stands there */
    uint64_t max_shard_bytes;
    const char *license; /* for the card; NULL: that of all models, else unknown */
} merge_options;

typedef struct merge_report {
    const char *method, *model_type;
    char format[16];
    int64_t params;
    uint64_t bytes;
    int files;
    int tensors, taken_up; /* taken_up: written by an earlier start */
    bool was_done;         /* this very merge stood there already */
    json_t *models;        /* [{path, form, digest}], the base last */
    json_t
        *layers; /* [{layer, distance: [...]}]: |result - model| / |model| for each of `models`, of
                       what lies in one layer together; layer null: outside of the layers */
    where_runs where;
    strbuf notes;
} merge_report;

/* Called after each tensor; may be NULL. */
typedef void (*merge_progress_fn)(void *ctx, int done, int tensors);

/* config, origins: what merge_recipe_read takes. ST_USAGE: the config is wrong, or the models do not fit
 * each other; ST_NONFINITE names a tensor. Free the report in any case. */
status merge_run(const json_t *config, const json_t *origins, const char *file, const char *result,
                 const merge_options *opt, merge_progress_fn progress, void *ctx, merge_report *r,
                 err *e) ATH_MUST_USE;
void merge_report_free(merge_report *r);

#endif
