/* Which programs load a model as it is exported, and what stands in the way where one does not.
 *
 * Facts, as of: transformers 5.23.0 (its table of model types); what the writer of GGUF files knows
 * of llama.cpp (gguf_arch.h); vLLM's registry of models at commit 0002bff (January 2026); Ollama's
 * converter at commit 01cf744 (February 2026), and that it runs GGUF files by llama.cpp. */
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

typedef struct where_runs {
    where_answer tool[WHERE_TOOLS];
} where_runs;

const char *where_tool_name(where_tool t);
/* t may be NULL: nothing is said of tokenizers then. */
where_runs where_runs_of(const model_config *mc, const tok *t);
bool where_runs_nowhere(const where_runs *w);
/* A line for each tool; and {"transformers": {"runs": true, "why": ""}, ...}. */
void where_runs_describe(const where_runs *w, strbuf *out);
json_t *where_runs_json(const where_runs *w);

#endif
