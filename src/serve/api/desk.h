/* A few threads that read requests: templates and tokenizers may take long for a long text, and the
 * thread of the connections must not wait for them. Requests are taken in the order in which they came. */
#ifndef SERVE_API_DESK_H
#define SERVE_API_DESK_H

#include "serve/http/http.h"

typedef struct desk desk;

/* What is done with a request: it ends the reply, or hands it on. */
typedef void (*desk_work)(void *ctx, const http_request *rq, http_reply *reply);

/* ST_FAILED: the system has no thread. */
status desk_open(desk **out, int threads, err *e) ATH_MUST_USE;
void desk_put(desk *d, desk_work work, void *ctx, const http_request *rq, http_reply *reply);
/* When all that was put has been done. NULL is fine. */
void desk_close(desk *d);

#endif
