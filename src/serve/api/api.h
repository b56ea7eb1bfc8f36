/* The routes. Each takes a request and ends its reply, or hands it to the worker. They run at the desk,
 * but for those that only print what is there. ctx of all is the server. */
#ifndef SERVE_API_API_H
#define SERVE_API_API_H

#include "serve/api/desk.h"
#include "serve/api/worker.h"

struct server {
    served_list models;
    metrics *metrics;
    worker *worker;
    desk *desk;
    int most_texts;
    const http_server *http;
    http_route *routes;
};

/* completions.c */
void api_completions(void *ctx, const http_request *rq, http_reply *reply);
/* chat.c */
void api_chat(void *ctx, const http_request *rq, http_reply *reply);
/* tokens.c */
void api_tokenize(void *ctx, const http_request *rq, http_reply *reply);
void api_detokenize(void *ctx, const http_request *rq, http_reply *reply);
void api_tokenizer_info(void *ctx, const http_request *rq, http_reply *reply);

/* ---- shared by completions.c and chat.c ---- */

/* Reads body, model and params into a new answer; NULL: the fault says why. */
answer *api_begin(server *s, const http_request *rq, http_reply *reply, int route, api_fault *f);
/* Reads what is special to a route, and prepares the answer. */
status api_make_completion(answer *a, api_fault *f) ATH_MUST_USE;
status api_make_chat(answer *a, api_fault *f) ATH_MUST_USE;
/* Hands the answer to the worker, if st and the fault allow; else refuses the request. */
void api_finish(server *s, answer *a, http_reply *reply, status st, api_fault *f);

/* ---- shared by chat.c and tokens.c ---- */

/* The ids of a conversation as the model's template has it, up to where the answer begins. *text (may
 * be NULL) is theirs. Faults: no template, a message that is wrong, a template that refuses. */
status api_render(const served *m, const api_params *p, const json_t *tools, tok_ids *ids,
                  strbuf *text, api_fault *f) ATH_MUST_USE;

#endif
