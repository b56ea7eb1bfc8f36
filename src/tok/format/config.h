/* tokenizer_config.json and what stands beside it: special tokens by their part, the tokens that a
 * config adds, the chat template. */
#ifndef TOK_FORMAT_CONFIG_H
#define TOK_FORMAT_CONFIG_H

#include "tok/format/format.h"

/* Sets in->config from the file in in->dir; NULL when there is none. */
status tok_config_read(tok_input *in) ATH_MUST_USE;
/* Sets what the config decides in a loaded tok (first and last token), and t->source. */
status tok_config_apply(const tok_input *in, tok_format f, tok *t) ATH_MUST_USE;

#endif
