/* What an answer may be by its response_format and its tools, as a grammar. */
#ifndef SERVE_API_LIMITS_H
#define SERVE_API_LIMITS_H

#include "serve/api/answer.h"

/* Sets a->grammar; it stays NULL where all may be written. must_call: the answer is calls of tools,
 * of `name` alone if it is not NULL. Faults: a format that is not known, what of a schema is not
 * supported, with its place. */
status answer_read_limits(answer *a, bool must_call, const char *name, api_fault *f) ATH_MUST_USE;

#endif
