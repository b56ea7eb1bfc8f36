/* One HTTP/1.1 request and its answer, for who measures a server: over a connection of its own, never
 * waiting. The owner polls the descriptors of many calls and steps those that are ready.
 *
 *   http_call_open -> (poll fd for http_call_events -> http_call_step)* -> ended -> http_call_close
 *
 * Plain http only: what is measured stands on this machine or beside it. The answer is a stranger's: lengths
 * are checked, the head is bounded, and what is no HTTP ends the call with a reason. */
#ifndef APP_BENCH_HTTP_CALL_H
#define APP_BENCH_HTTP_CALL_H

#include <sys/socket.h>

#include "base/strbuf.h"

/* Where a server is, from "http://host[:port][/base]". */
typedef struct http_place {
    struct sockaddr_storage addr;
    socklen_t addr_len;
    char host[300]; /* with the port, as the header Host says it */
    char base[512]; /* what paths begin with; "" or "/base" */
} http_place;

/* Whether the text is a URL at all, and not the name of a file. */
bool http_is_url(const char *text);
/* ST_USAGE: another scheme, or a host that nobody knows. */
status http_place_read(http_place *p, const char *url, err *e) ATH_MUST_USE;

typedef enum http_state {
    HTTP_SEND, /* the connection is made, the request on its way */
    HTTP_HEAD,
    HTTP_BODY,
    HTTP_CHUNK_SIZE, /* the line before a chunk */
    HTTP_CHUNK_END,  /* the empty line after it */
    HTTP_TRAILER,    /* lines after the last chunk */
    HTTP_ENDED,      /* the whole answer has come */
    HTTP_BROKEN,     /* `why` says what happened */
} http_state;

typedef struct http_call {
    http_state state;
    int fd;
    strbuf out; /* the request */
    size_t sent;
    bool
        hang_up; /* ends the connection as soon as the request is sent, even where its head promises more */
    strbuf line; /* the head, or a line, as far as it has come */
    int code;    /* of the answer; 0: none has come */
    bool chunked;
    int64_t left; /* bytes of the body or chunk to come; -1: up to the end of the connection */
    const char *why;
    void (*on_body)(void *ctx, const char *bytes, size_t n);
    void *ctx;
    bool enough; /* to be set by on_body: nothing more is taken */
} http_call;

/* A call begins zeroed. Bytes may be anything, also no HTTP. */
void http_call_open(http_call *c, const http_place *p, const char *bytes, size_t n);
/* Appends a request. key: for Authorization, or NULL; body: JSON, or NULL. */
void http_put_request(strbuf *out, const http_place *p, const char *method, const char *path,
                      const char *key, const char *body, size_t n);
short http_call_events(const http_call *c);
/* Does what can be done now. False: the call has ended, one way or the other. */
bool http_call_step(http_call *c);
/* The answer's next bytes, as a step reads them; false as there. */
bool http_call_take(http_call *c, const char *at, size_t n);
/* Ends the connection, if it is still there, and frees what the call holds. */
void http_call_close(http_call *c);

#endif
