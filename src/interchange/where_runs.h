/* Which other programs load a model as it is exported, and what stands in the way where one does
 * not.
 *
 * There are two kinds of knowledge, and every answer says which it is (where_basis). Models of each
 * family were run by transformers and llama.cpp, and compared with this program: that is evidence.
 * vLLM and Ollama were never run; of them only the list of models is known that stands in their
 * source, at some version. */
#ifndef INTERCHANGE_WHERE_RUNS_H
#define INTERCHANGE_WHERE_RUNS_H

#include <jansson.h>

#include "base/strbuf.h"
#include "model/family.h"
#include "tok/tok.h"

typedef enum where_tool {
    WHERE_TRANSFORMERS,
    WHERE_LLAMA_CPP,
    WHERE_VLLM,
    WHERE_OLLAMA,
    WHERE_TOOLS
} where_tool;

typedef struct where_answer {
    bool runs;
    char why[200]; /* what it takes, or the key or tensor that stands in the way; may be empty */
} where_answer;

/* How it is known what a program loads. */
typedef struct where_basis {
    const char *program;
    bool compared;  /* it was run, and gave the same logits; else: it is on its list of models */
    const char *of; /* version of the program, or of the list with its date */
} where_basis;

typedef struct where_runs {
    where_answer tool[WHERE_TOOLS];
} where_runs;

where_basis where_basis_of(where_tool t);
/* t may be NULL: nothing is said of tokenizers then. */
where_runs where_runs_of(const model_config *mc, const tok *t);
bool where_runs_nowhere(const where_runs *w);
/* "yes, as a GGUF file (compared with ...)", "listed (...)", "no, ...". */
void where_describe(where_tool t, const where_answer *answer, strbuf *out);
/* A line for each program. */
void where_runs_describe(const where_runs *w, strbuf *out);
/* {"transformers": {"runs": true, "why": "", "basis": "compared", "of": "5.23.0"}, ...}; the other
 * basis is "listed". */
json_t *where_runs_json(const where_runs *w);

#endif
