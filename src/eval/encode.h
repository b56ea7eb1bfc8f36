/* Texts to tokens, as lm-evaluation-harness does it for a model of transformers (HFLM), so that the
 * scores are its. */
#ifndef EVAL_ENCODE_H
#define EVAL_ENCODE_H

#include "eval/task.h"
#include "infer/scorer.h"
#include "interchange/open_model.h"

/* To what the score of a request belongs. */
typedef struct eval_owner {
    eval_doc *doc;
    eval_pair *pair; /* NULL: the document is a text */
    int32_t *ids;    /* what the request points into */
} eval_owner;

/* What scores documents: requests of the scorer, in the order of pairs. A text longer than the
 * context becomes several requests. */
typedef struct eval_requests {
    score_request *item;
    eval_owner *owner;
    int64_t n, cap;
    int64_t
        longest; /* tokens of a request, but for the last one, which is no input; with an encoder of a source */
    int64_t longest_scored; /* tokens of a request that are scored */
} eval_requests;

/* The requests of choices and texts. most_tok: the model's context; contexts lose their beginning,
 * but a continuation that is longer is ST_USAGE. */
status eval_encode(const eval_task *t, const open_model *m, int64_t most_tok, eval_requests *r,
                   err *e) ATH_MUST_USE;
/* A prompt, which loses its beginning if it has more than `most` tokens. An empty one is the token
 * of the beginning or end of a text; eos: the latter, NULL: the tokenizer's. */
status eval_encode_prompt(const tok *t, const int32_t *eos, eval_text prompt, int64_t most,
                          tok_ids *out, err *e) ATH_MUST_USE;
/* Gives each score to its pair or document. */
void eval_take_scores(const eval_requests *r);
void eval_requests_free(eval_requests *r);

#endif
