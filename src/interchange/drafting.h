/* Tokens that are tried in advance for a model (infer/draft.h), by the word of the option --draft:
 *
 *   auto    what the text itself suggests, and the model's module, as long as that saves time
 *   mtp     the model's first module of multi-token prediction alone, whatever it costs
 *   ngram   what the text itself suggests, alone
 *   none    nothing
 *   MODEL   as auto, and by a smaller model with the same tokenizer
 *
 *   open_model_set_engine   ->  drafting_open  ->  open_model_load, open_model_engine  ->  drafting_begin
 *
 * What is written does not depend on it. */
#ifndef INTERCHANGE_DRAFTING_H
#define INTERCHANGE_DRAFTING_H

#include "base/json.h"
#include "interchange/open_model.h"

typedef struct drafting {
    open_model model; /* the smaller one; a NULL: there is none */
    generator gen;    /* of it */
} drafting;

/* Sets m->serve by the word (NULL: auto), and opens the smaller model. threads: of that. ST_USAGE: m has no
 * module, the two have different tokenizers. To be closed after an error, too. */
status drafting_open(drafting *d, open_model *m, const char *word, int threads,
                     err *e) ATH_MUST_USE;
void drafting_begin(drafting *d, engine *en);
/* How a text came about: tokens tried, and right; where the module was timed, its engine_cost. */
json_t *drafting_json(const engine *en, const generate_result *result);
void drafting_close(drafting *d); /* after the engine */

#endif
