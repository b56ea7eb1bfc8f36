/* The vocabulary of a run that starts from weights (`model.from`) or compares with some
 * (`train.reference`): its tokenizer may have tokens that the weights lack, as `athanor tok add`
 * makes them.
 *
 * The model then has more rows in its embedding, and in a head of its own, than the files. It grows
 * if the run's tokenizer is an extension of the one beside the weights: every id of that one means
 * the same. Then all that the model has learned of old tokens stands. What the new rows begin with
 * says io/hf/hf_load.h (hf_load_grown). */
#ifndef TRAIN_VOCABULARY_H
#define TRAIN_VOCABULARY_H

#include "model/config.h"
#include "run/config/config.h"
#include "tok/tok.h"

/* Makes m->vocab_size, of a model that starts from weights, large enough for the tokens of t (NULL:
 * no tokenizer), and never smaller than in the weights. `model.vocab_size: N` makes it N: more rows
 * than tokens. ST_USAGE: fewer rows than the weights have; another tokenizer; weights without a
 * tokenizer, unless the config sets model.vocab_size. */
status vocabulary_settle(const config *c, const tok *t, model_config *m, err *e) ATH_MUST_USE;

/* Whether the ids of t mean what they mean in the tokenizer in the folder `dir`. *known false: there is
 * none. ST_USAGE, at the key `tokenizer`: they do not. */
status vocabulary_extends(const config *c, const tok *t, const char *dir, bool *known,
                          err *e) ATH_MUST_USE;

/* How many tokens t has that the tokenizer beside the weights of m lacks: whether the model has to
 * learn tokens. 0 for a model that starts from no weights. Where no tokenizer lies beside them, or
 * none that can be read, the rows of the weights count as its tokens. */
int32_t vocabulary_added(const config *c, const tok *t, const model_config *m);

#endif
