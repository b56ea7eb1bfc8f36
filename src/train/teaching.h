/* What a run that learns conversations writes beside its weights, so that others talk with the model as
 * it was taught: the chat template by which its data were rendered, and the tokens at which an answer
 * ends.
 *
 * A set of conversations (data/shard/shards.h) has its template beside it, as chat_template.jinja; it
 * need not be the tokenizer's own. The token that the template writes behind an answer becomes
 * eos_token, and the first eos_token_id of generation_config.json; what ended texts before ends them
 * still. */
#ifndef TRAIN_TEACHING_H
#define TRAIN_TEACHING_H

#include "data/order/loader.h"
#include "train/setup.h"

typedef struct teaching {
    const char *template; /* its text; NULL: none but the tokenizer's own */
    int32_t stop;         /* the token that ends an answer; -1: no conversations are learned */
    tok_ids end;          /* the ids that end a text, `stop` first */
} teaching;

/* Of the stage whose data these are. Strings lie in the run's arena. ST_FORMAT: a template or a
 * generation_config.json that cannot be read. */
status teaching_open(teaching *t, const setup *u, const loader *data, err *e) ATH_MUST_USE;
void teaching_close(teaching *t);

#endif
