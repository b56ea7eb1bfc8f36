/* Generation with a KV cache: the prompt goes through the prefill program in pieces, then one token
 * at a time through the decode program. Both are ordinary programs, bound to the same cache, so
 * prefill + decode equal one full forward. */
#ifndef INFER_GENERATE_H
#define INFER_GENERATE_H

#include "infer/sample.h"
#include "prog/prog.h"
#include "tok/tok.h"

typedef struct generator {
    const prog *prefill, *decode; /* TASK_LOGITS, B = 1, one row of logits */
    dev *dev;
    int prefill_T, Tmax;
    int32_t vocab;    /* columns of the logits */
    int32_t n_ids;    /* ids below this may be picked: rows that pad the vocabulary never are */
    int64_t n_cached; /* tokens in the cache */
} generator;

/* Starts a new sequence: forgets the cache. */
void generator_reset(generator *g);
/* Appends ids to the sequence and returns the logits [V] (fp32, in `logits`) after the last one.
 * The caller keeps n_cached + n <= Tmax. */
void generator_feed(generator *g, const int32_t *ids, int64_t n, float *logits);

typedef enum generate_finish { FINISH_LENGTH, FINISH_EOS, FINISH_STOP } generate_finish;
const char *generate_finish_name(generate_finish f); /* "length", "eos", "stop" */

typedef struct generate_request {
    const int32_t *prompt;
    int64_t n_prompt, max_new;
    sample_options sample;
    int32_t eos;    /* -1: none */
    const tok *tok; /* for stop strings and streaming; may be NULL */
    const char *const *stop;
    int n_stop;
    /* Called with each piece of finished text; may be NULL. */
    void (*on_text)(void *ctx, const char *text, size_t len);
    void *ctx;
} generate_request;

/* Appends new ids to `out` (the end-of-text id is not included). Text of a stop string is not
 * streamed. ST_USAGE: an empty prompt, or one that leaves no room below Tmax. */
status generate_run(generator *g, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_finish *finish, err *e) ATH_MUST_USE;

#endif
