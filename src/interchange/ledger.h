/* athanor_ledger.json: where a model comes from, beside the model itself. What was given, in which order,
 * with which digests, by which program.
 *
 *     format      1
 *     kind        "run", "import", "export" or "merge"
 *     program     {name, version, revision}
 *     model       {model_type, params, files: [{name, bytes, xxh3}]}   of the folder that it lies in
 *     parents     the models that this one was made from: {role, path, form, digest, files, ledger}, and
 *                 of merges {weight, density}; `ledger` is that model's own one, whole, or null
 *     run         of a checkpoint: {config, steps, tokens, stages: [{name, first_step, last_step, sources}],
 *                 valid: [...], evaluations: [...]}; of an export from a run, that of its checkpoint is in
 *                 the parent
 *     merge       {plan, config}
 *     checked     of an export: what was compared with its source
 *
 * Digests are XXH3-64 of whole files; that of a model is XXH3-64 over its files' names and digests, in
 * the order of names. Nothing in a ledger is a proof: it is what the program did, in its own words. */
#ifndef INTERCHANGE_LEDGER_H
#define INTERCHANGE_LEDGER_H

#include <jansson.h>

#include "base/strbuf.h"

#define LEDGER_FILE "athanor_ledger.json"
#define LEDGER_BESIDE ".ledger.json" /* behind the name of a model that is one file */

/* With format, kind and program; no parents yet. The caller owns it. */
json_t *ledger_new(const char *kind);
/* The files of weights of a model: a folder, or one file. Reads them whole. The caller owns both. */
status ledger_read_files(const char *path, json_t **files, err *e) ATH_MUST_USE;
json_t *ledger_digest(const json_t *files); /* of the model */
/* A model that another is made from, with its own ledger. */
status ledger_read_parent(const char *role, const char *path, const char *form, json_t **parent,
                          err *e) ATH_MUST_USE;
void ledger_add_parent(json_t *ledger, json_t *parent); /* takes it over */
/* Of a folder: DIR/athanor_ledger.json; of a file: FILE.ledger.json. NULL where there is none that can be
 * read. The caller owns it. */
json_t *ledger_read(const char *model);
status ledger_write(const char *model, const json_t *ledger, err *e) ATH_MUST_USE;

/* Appends what a model card says of it: sources, stages, parents and theirs. */
void ledger_describe(const json_t *ledger, strbuf *out);

#endif
