/* Text from a model: the prompt goes into a generator, then a token is picked and given back to it, until one of the
 * ends in generate_finish.
 *
 * Reading order: generator.h (programs and cache), sample.h (the pick), generate_run here; settings.h and
 * conversation.h for chats. */
#ifndef INFER_GENERATE_H
#define INFER_GENERATE_H

#include "infer/generator.h"
#include "infer/grammar/constraint.h"
#include "infer/sample.h"
#include "infer/token_report.h"

typedef enum generate_finish {
    FINISH_LENGTH,    /* max_new tokens were made */
    FINISH_CONTEXT,   /* the cache of Tmax tokens is full */
    FINISH_END,       /* an id of `end` was picked, or a constraint's text is complete */
    FINISH_STOP,      /* the text came to a stop string */
    FINISH_INTERRUPT, /* *interrupt became nonzero */
} generate_finish;
const char *generate_finish_name(generate_finish f); /* "length" (twice), "eos", "stop",
                                                        "interrupt" */

typedef struct generate_request {
    const int32_t *prompt;
    int64_t n_prompt, max_new;
    sample_options sample;
    const int32_t *end; /* ids that end the text */
    int64_t n_end;
    bool ignore_end;   /* they are tokens as others */
    int64_t min_new;   /* before so many tokens no end is picked, and stop strings are text */
    const tok *tok;    /* for stop strings and streaming; may be NULL */
    bool keep_special; /* special tokens are text, too */
    bool goes_on;      /* the text goes on that of the prompt: the space of a first word is kept */
    const char *const *stop; /* none is empty */
    int n_stop;
    const int32_t *bias_ids; /* [n_bias]: */
    const double *bias;      /* added to the logits of these ids, before the penalties */
    int64_t n_bias;
    /* What may be written; NULL: anything. It belongs to this text alone, is kept and not freed. An
     * end is picked only where the text is complete, whatever min_new says. */
    constraint *limit;
    const volatile sig_atomic_t *interrupt; /* nonzero: stop after this pass; may be NULL */
    /* [max_new] gets log p of each new token by the model, before temperature, penalty and filters;
     * may be NULL. */
    double *logprobs;
    /* Called with each new token, before on_text has its text; may be NULL. An id of `end` that ends
     * the text is told, too. n_top: how many of the most likely ones are wanted, 0 for log p alone, -1 for
     * no probability at all. */
    void (*on_token)(void *ctx, const token_report *t);
    int n_top;
    /* Called with each piece of finished text, whole characters; may be NULL. */
    void (*on_text)(void *ctx, const char *text, size_t len);
    void *ctx;
} generate_request;

typedef struct generate_result {
    generate_finish finish;
    int64_t n_reused; /* tokens of the prompt that were in the cache */
    int64_t n_new;    /* tokens made, without the one that ends the text */
    int64_t n_tried,
        n_right; /* by an engine: tokens tried in advance (draft.h); those that were right */
    /* tokens per second, of the prompt and of the passes after it; 0: nothing was computed */
    double prefill_rate, decode_rate;
} generate_result;

/* A model with an encoder reads the prompt there, and its decoder begins with the generator's `begin`.
 * Appends new ids to `out` (the id that ends the text is not included) and their text to `text`,
 * special tokens left out unless keep_special. Text of a stop string is not streamed. ST_USAGE: an empty prompt, one
 * with ids that the model does not know, or that leaves no room below Tmax; a bias for an unknown id;
 * a constraint that no token of the vocabulary can meet; ST_NONFINITE: the model
 * gives no probabilities. */
status generate_run(generator *g, const generate_request *rq, tok_ids *out, strbuf *text,
                    generate_result *result, err *e) ATH_MUST_USE;

/* What the model's decoder is to write on: the request itself; where there is an encoder, that reads the prompt now, and
 * *answer begins with the decoder's first token. */
status generate_read_source(generator *g, const generate_request *rq, generate_request *answer,
                            err *e) ATH_MUST_USE;

/* ---- one text, of which somebody else makes the logits (writer.h) ---- */

typedef struct generate_limits {
    int Tmax;             /* tokens of prompt and answer */
    int32_t vocab, n_ids; /* as of a generator */
} generate_limits;

/* ST_USAGE: what generate_run says of a request. */
status generation_check(const generate_request *rq, const generate_limits *limits,
                        err *e) ATH_MUST_USE;

typedef struct generation generation;
/* All pointers are kept until generation_free. ST_USAGE as generate_run. */
status generation_begin(generation **out, const generate_request *rq, const generate_limits *limits,
                        tok_ids *ids, strbuf *text, generate_result *result, err *e) ATH_MUST_USE;
/* The sequence after which logits are wanted. */
const tok_ids *generation_ids(const generation *w);
/* Picks the next token from logits [vocab], which are overwritten. *ended: there is no next one, and
 * generation_end gives the last of the text. */
status generation_take(generation *w, float *logits, bool *ended, err *e) ATH_MUST_USE;
/* Whether the token after n tokens follows from the logits by a rule alone, which is *rule: then the
 * device may pick it (op/pick.h). Not where something else wants the logits, or changes them: penalties, biases,
 * constraints, probabilities. */
bool generation_rule(const generation *w, int64_t n, pick_rule *rule);
/* As generation_take, with the token that was picked so; -1: by no distribution. */
status generation_take_id(generation *w, int32_t id, bool *ended, err *e) ATH_MUST_USE;
status generation_end(generation *w, err *e) ATH_MUST_USE;
void generation_free(generation *w); /* NULL is fine */

#endif
