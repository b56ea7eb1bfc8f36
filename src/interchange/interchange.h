/* `athanor import` and `athanor export`: a model in any form that is read becomes a Hugging Face
 * folder or a GGUF file, is compared with its source, and gets a model card and a ledger.
 *
 * It is written under a hidden name beside its place (io/hf/model_folder.h, staged_begin) and
 * renamed at the end: nothing appears under the name of the result before it is complete and
 * compared.
 *
 * Reading order: interchange_run in interchange.c; compare.h (is it the same model?), where_runs.h
 * (who else loads it); io/model_source.h reads, io/hf/model_folder.h and io/gguf/gguf_model.h
 * write. card.h and ledger.h say where it comes from. open_model.h opens a model to run it. */
#ifndef INTERCHANGE_INTERCHANGE_H
#define INTERCHANGE_INTERCHANGE_H

#include "interchange/compare.h"
#include "interchange/inherit.h"
#include "interchange/inherit.h"
#include "interchange/upcycle.h"
#include "interchange/where_runs.h"
#include "io/hf/model_folder.h"

typedef struct interchange_options {
    bool gguf;                 /* the result is a GGUF file, else a folder */
    bool verify;               /* compare the result with the source */
    bool force;                /* replace a model that stands at the result's place */
    const char *format;        /* of the weights: "BF16", "Q8_0"; NULL: folders keep what the source
                                  has, GGUF files get F16 */
    uint64_t max_shard_bytes;  /* of a folder: weights beyond go into another file */
    const char *base;          /* of an adapter; NULL: what it says itself */
    const char *const *ignore; /* [n_ignore] unknown keys of config.json that stop no import */
    int n_ignore;
    const char *kind;    /* of the ledger (ledger.h); NULL: "export" */
    const char *license; /* for the card; NULL: as the source says, else unknown */
    /* The result is another model, made of the source's weights; both NULL: it is the source's. */
    const upcycle_options *upcycle;
    const inherit_options *inherit;
    const json_t *evaluations; /* of the source, for card and ledger: a list; NULL: none */
} interchange_options;

typedef struct interchange_report {
    const char *kind, *model_type; /* of the source */
    char format[16];               /* of most weights of the result */
    int64_t params;
    uint64_t bytes; /* of the files of weights */
    int files;
    model_comparison verified; /* positions 0: it was not asked for */
    where_runs where;
    strbuf notes; /* what was found on the way, a line each */
} interchange_report;

/* ST_FAILED: the result is not the same model; the report has the figures, and the result was
 * removed. After any failure the result's place is as it was before. */
status interchange_run(const char *source, const char *result, const interchange_options *opt,
                       interchange_report *out, err *e) ATH_MUST_USE;
/* ST_USAGE: opt->format is none that can be written so; for who begins with longer work. */
status interchange_check_format(const interchange_options *opt, err *e) ATH_MUST_USE;
void interchange_report_free(interchange_report *r);

#endif
