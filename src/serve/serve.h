/* The server behind `athanor serve`: models, their engines, and the OpenAI-compatible routes to them.
 *
 *   an HTTP thread              the thread of the engines (api/worker.h)
 *   body -> params (api/params.h)
 *        -> prompts, tokens (api/completions.c, api/chat.c)
 *        -> an answer (api/answer.h)  --worker-->  engine_submit, engine_step of each engine in turn
 *                                                  tokens -> pieces of the reply (api/reply.c)
 *
 *   serve_open    reads the models and plans all their memory, before anything listens
 *   serve_start   adds the routes to an HTTP server, and starts the engines
 *   serve_close   after the HTTP server has closed
 *
 * docs/serving.md says what is answered; each route's file says why. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "serve/http/http.h"

/* A model and what requests call it. Adapters are models, too; base is as open_model_read_on. */
typedef struct serve_model {
    const char *name; /* NULL: the last part of the path, without .gguf */
    const char *path;
    const char *base; /* NULL: what an adapter says */
} serve_model;

/* Zero is the default of each number, NULL of each text. */
typedef struct serve_options {
    const serve_model *models; /* the first answers requests that name none */
    int n_models;
    int ctx;             /* tokens of a text at most; 0: the model's, at most 8192 */
    int streams;         /* texts at a time, of each model; 0: 16 */
    int64_t cache_bytes; /* of each model's cache; 0: a quarter of what the machine has free, for all together */
    int waiting;         /* texts that may wait for their place, of all models; 0: 1024 */
    int threads;         /* of the CPU; 0: all cores */
    const char *cache, *precision; /* as open_model_set_cache, open_model_set_precision */
} serve_options;

typedef struct server server;
/* ST_USAGE: a name twice, no tokenizer, or a context that the model was not made for. ST_MEMORY: it does not fit. */
status serve_open(server **out, const serve_options *opt, err *e) ATH_MUST_USE;
status serve_start(server *s, http_server *http, err *e) ATH_MUST_USE;
/* Texts that run or wait: 0 when nothing is lost by ending. */
int serve_busy(const server *s);
/* One line for people: the models, their context, streams and memory. */
void serve_describe(const server *s, strbuf *out);
/* Answers that are not whole end here. NULL is fine. */
void serve_close(server *s);

#endif
