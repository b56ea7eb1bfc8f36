/* What a BERT vocabulary stands for. */
#ifndef TOK_FORMAT_BERT_H
#define TOK_FORMAT_BERT_H

#include <jansson.h>

#include "tok/tok.h"

/* The tokenizer.json of a vocabulary ({token: id}) and a normalizer; takes both over. */
json_t *bert_tree(json_t *vocab, json_t *normalizer);
/* ST_USAGE unless the tok (its tokenizer.json is `root`) has the parts of BERT but for the options
 * of the normalizer. */
status bert_check(const tok *t, const json_t *root, err *e) ATH_MUST_USE;

#endif
