/* Import and export: a model of any source as a Hugging Face folder or a GGUF file, verified, with
 * a model card. Nothing appears under the name of the result before it is complete and verified. */
#ifndef PLAN_INTERCHANGE_H
#define PLAN_INTERCHANGE_H

#include "io/hf/model_folder.h"
#include "io/where_runs.h"
#include "plan/compare_models.h"

typedef struct interchange_options {
    bool gguf;          /* a file, not a folder */
    bool verify, force; /* force: replaces a model that stands there */
    const char *format; /* name of the stored format; NULL: as stored, F16 in GGUF files */
    uint64_t max_shard_bytes;
    const char *const *ignore; /* keys of config.json that may be there */
    int n_ignore;
} interchange_options;

typedef struct interchange_report {
    const char *kind, *model_type; /* of the source */
    char format[16];               /* of most weights */
    int64_t params;
    uint64_t bytes;
    int files;
    model_comparison verified; /* positions 0: it was not asked for */
    where_runs where;
    strbuf notes;
} interchange_report;

/* ST_FAILED: it was written and is not the same model (the report has the figures; it was removed
 * again). Other failures name what is wrong; the result's place is as before. */
status interchange_run(const char *source, const char *result, const interchange_options *opt,
                       interchange_report *out, err *e) ATH_MUST_USE;
void interchange_report_free(interchange_report *r);

#endif
