/* The server behind `athanor serve`: models, their engines, and the OpenAI-compatible routes to them.
 *
 *   the HTTP thread   a few threads (api/desk.h)             one thread (api/worker.h)
 *   a request ------> body -> params -> prompts, tokens ---> engine_submit, engine_step of all engines
 *                                                            tokens -> pieces of the reply
 *
 *   serve_open     reads the models and plans all their memory, before anything listens
 *   serve_routes   for http_server_open
 *   serve_start    the threads; before http_server_run
 *   serve_close    after http_server_run, before http_server_close
 *
 * docs/serving.md says what is answered; each route's file says why. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "base/strbuf.h"
#include "serve/http/http.h"

/* A model and what requests call it. Adapters are models, too; base is as open_model_read_on. */
typedef struct serve_model {
    const char *name; /* NULL: the last part of the path, without .gguf */
    const char *path;
    const char *base;     /* NULL: what an adapter says */
    const char *draft;    /* what tries tokens in advance (interchange/drafting.h); NULL: auto */
    const char *template; /* a file, or "chatml"; NULL: its own chat template */
} serve_model;

/* Zero is the default of each number, NULL of each text. */
typedef struct serve_options {
    const serve_model *models; /* the first answers requests that name none */
    int n_models;
    int ctx;     /* tokens of a text at most; 0: the model's, at most 8192 */
    int streams; /* texts at a time, of each model; 0: 16 */
    int64_t
        cache_bytes; /* of each model's cache; 0: a quarter of what the machine has free, for all together */
    int waiting;                   /* texts that may wait for their place, of all models; 0: 1024 */
    const char *device;            /* as open_model_read_on takes it */
    int threads;                   /* of the CPU; 0: all cores */
    const char *cache, *precision; /* as open_model_set_cache, open_model_set_precision */
} serve_options;

typedef struct server server;
/* ST_USAGE: a name twice, no tokenizer, or a context that the model was not made for. ST_MEMORY: it does not fit. */
status serve_open(server **out, const serve_options *opt, err *e) ATH_MUST_USE;
/* They live as long as the server, and end with a NULL path. */
const http_route *serve_routes(const server *s);
/* http: whose counters /metrics prints. */
status serve_start(server *s, const http_server *http, err *e) ATH_MUST_USE;
/* One line for people: the models, their context, streams and memory. */
void serve_describe(const server *s, strbuf *out);
/* Answers that are not whole end here. NULL is fine. */
void serve_close(server *s);

#endif
