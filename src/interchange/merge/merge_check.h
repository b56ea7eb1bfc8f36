/* May these models be merged? Each tensor must have the same name and shape everywhere, and each id must
 * mean the same token. What else differs is refused, too, unless it is allowed by its word:
 *
 *   config      keys of config.json that change what is computed, but no shape (rope_theta)
 *   tokenizer   all ids mean the same, but the tokenizers differ otherwise (rules of splitting, more tokens
 *               at the end)
 *   template    the chat templates differ (one that is missing is no difference) */
#ifndef INTERCHANGE_MERGE_CHECK_H
#define INTERCHANGE_MERGE_CHECK_H

#include "io/model_source.h"

#define MERGE_ALLOWED(W)                                                                           \
    W(MERGE_ALLOW_CONFIG, "config")                                                                \
    W(MERGE_ALLOW_TOKENIZER, "tokenizer")                                                          \
    W(MERGE_ALLOW_TEMPLATE, "template")
enum { MERGE_ALLOWED(LIST_ENUMERATOR) MERGE_ALLOW_COUNT };
extern const char *const merge_allow_words[]; /* ended by NULL */

/* allow: bits 1 << MERGE_ALLOW_.... What was allowed and differs is a line of `notes`. ST_USAGE names
 * both models and the first difference. */
status merge_check_pair(const model_source *a, const model_source *b, unsigned allow, strbuf *notes,
                        err *e) ATH_MUST_USE;

/* The chat template as text, in the arena; NULL: none. */
const char *merge_template_of(const model_source *s, arena *a);

#endif
