/* What a request asks for, beside its prompt: one table of fields for all routes (params.c). */
#ifndef SERVE_API_PARAMS_H
#define SERVE_API_PARAMS_H

#include "infer/settings.h"
#include "serve/api/body.h"

enum {
    API_COMPLETIONS = 1, /* /v1/completions */
    API_CHAT = 2,        /* /v1/chat/completions */
    API_TOKENIZE = 4,    /* /tokenize */
    API_DETOKENIZE = 8,  /* /detokenize */
    API_MAX_STOPS = 32,
    API_MAX_STOP_BYTES = 1024,
    API_MAX_TEXTS = 1024 /* of one request: prompts times choices */
};

/* The JSON values belong to the body. NULL where the body has none, or null. */
typedef struct api_params {
    /* which model, and what it is given */
    const json_t *model;              /* a string */
    const json_t *prompt;             /* completions: strings or ids; tokenize: a string */
    const json_t *messages, *tools;   /* lists */
    const json_t *tool_choice;        /* a string or an object */
    const json_t *template_variables; /* chat_template_kwargs */
    const json_t *documents;          /* of the template; a list */
    bool begin_answer,
        continue_last;    /* the template begins an answer; it leaves the last message open */
    int64_t last_tokens;  /* of a prompt that are kept; -1: as there is room for; 0: all */
    const json_t *tokens; /* detokenize: a list of ids */
    bool add_special;     /* what the tokenizer adds to a text, as BOS */

    /* sampling */
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t no_repeat_ngram;
    int64_t top_k, seed;
    const json_t *logit_bias;

    /* where an answer ends */
    int64_t max_tokens; /* -1: up to the context */
    int64_t min_tokens;
    const json_t *stop;           /* a string or a list of them */
    const json_t *stop_token_ids; /* a list of ids */
    bool ignore_eos;
    const json_t *response_format;

    /* the reply */
    int64_t n, best_of; /* best_of 0: n */
    bool stream, include_usage, echo, return_token_ids, skip_special;
    int64_t n_top; /* alternatives of each token; -1: no log-probabilities */
    bool parallel_calls;
} api_params;

/* Sampling as OpenAI documents it: temperature 1 and nothing else. */
api_params api_params_default(void);
/* What the makers of the model advise, if they advise to sample. */
void api_params_advise(api_params *p, const generation_settings *settings);
/* Reads the fields that `route` (one of API_...) knows; others are passed over. ST_USAGE names the
 * field and what it may be. */
status api_params_read(api_params *p, const json_t *body, int route, err *e) ATH_MUST_USE;

/* Texts of a field that is a string or a list of strings, in an array for the caller to free; the
 * texts are the field's. ST_USAGE: an empty one, one with a zero byte, too many. */
status api_read_stops(const json_t *field, const char ***out, int *n, err *e) ATH_MUST_USE;
/* A list of ids below `vocab`. name: of the field. */
status api_read_ids(const json_t *list, const char *name, int32_t vocab, tok_ids *out,
                    err *e) ATH_MUST_USE;
/* {"id": bias}, with ids below `vocab` and a bias from -100 to 100. The arrays are the caller's to
 * free. */
status api_read_bias(const json_t *field, int32_t vocab, int32_t **ids, double **bias, int *n,
                     err *e) ATH_MUST_USE;

#endif
