/* Tasks that are known by name: what a published set asks, as a task file in the form of
 * lm-evaluation-harness. Their data are the public files of the set, in the folder of --data. */
#ifndef EVAL_ADAPTERS_H
#define EVAL_ADAPTERS_H

#include "base/strbuf.h"

/* Appends the task file of a name ("arc_easy", "mmlu_astronomy"); false: there is none, and
 * something may have been appended. */
bool eval_adapter_text(const char *name, strbuf *out);
/* The name, or the beginning of one with subjects ("mmlu_"), that is most like this one; NULL: none is. */
const char *eval_adapter_nearest(const char *name);
/* The names, NAME_SUBJECT where a set has subjects, one a line with what it reads. The caller frees
 * it. */
char *eval_adapter_list(void);

#endif
