/* A small HTTP/1.1 server for programs and browsers of strangers, over libmicrohttpd.
 *
 *   connection --bounded, timed--> request --guard: Host, Origin, key, route, length--> body --> handler
 *   handler --> reply: at once or later, from any thread, whole or in pieces --> connection
 *
 * One thread runs all connections (http_server_run) and calls the handlers; a handler that takes
 * long hands the request to another thread, which answers there. What a client may take is bounded
 * before it is taken: connections, the time to send a request, the bytes of one body and of all
 * bodies together, the bytes that wait for a client that does not read. What the guard refuses is
 * answered before the body is read.
 *
 * Errors have the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}.
 *
 * Reading order: http.h, guard.h (who may ask), server.c (the loop), call.c (one request and its
 * reply), connection.c (time limits and places). */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct http_server http_server;
typedef struct http_reply http_reply;

/* ---- routes ---- */

/* What a client asks. Lives until its reply has ended; texts are never NULL. */
typedef struct http_request {
    const char *method;       /* of the route: a HEAD comes as GET */
    const char *path;         /* as the route has it */
    const char *content_type; /* "" where none is given */
    const char *body; /* NUL-terminated behind body_bytes bytes, any of which may be NUL, too */
    size_t body_bytes;
} http_request;

/* Called in the server's thread, once the whole body is there. `reply` is the handler's until it has
 * ended it with http_reply_send or http_reply_end, now or later, here or in another thread; it must
 * do so for each, also for one whose client has gone. */
typedef void (*http_handler)(void *ctx, const http_request *rq, http_reply *reply);

/* A path is compared byte by byte with what the client sent before '?': nothing is decoded, so there
 * is one spelling of each and all others are 404; but in a name, which clients write as they like. */
typedef struct http_route {
    const char *method; /* "GET" (serves HEAD, too) or "POST" */
    const char *path;   /* "/v1/models" */
    http_handler handle;
    void *ctx;
    bool open; /* needs no key: what tells nothing, and the page that asks for the key */
    int name;  /* of the path from here on: bytes may have been sent as %2F, ... 0: none may */
} http_route;

/* ---- the server ---- */

/* One line for each request when it is over. */
typedef struct http_log_line {
    const char *method, *path; /* plain text, of bounded length */
    int status;                /* 0: the client had gone before there was one */
    bool cut;                  /* the client went, or was dropped, before the answer's end */
    double ms;                 /* from the end of its headers */
    uint64_t bytes;            /* of the answer's body that were handed to the connection */
    const char *note;          /* http_reply_note; "" */
} http_log_line;

/* Zero means the default that stands behind. */
typedef struct http_options {
    const char *host; /* address or name to listen on; NULL: 127.0.0.1 */
    int port;         /* 0 takes a free one */
    /* Who may ask. Keys: any of them, as "Authorization: Bearer KEY"; none: anybody, which is refused
     * (ST_USAGE) where host is not an address of this machine alone. */
    const char *const *keys;
    int n_keys;
    const char *const *allow_hosts; /* further names in Host, without a port; "*": any */
    int n_allow_hosts;
    const char *const *allow_origins; /* further origins, "https://example.org"; "*": any */
    int n_allow_origins;
    /* What they may take. */
    int connections;     /* 4,096; when they are taken, the one that idles longest makes place */
    int per_address;     /* 256 connections of one address, where not of this machine alone */
    size_t body_bytes;   /* 16 MiB of one request */
    size_t bodies_bytes; /* 128 MiB of all requests whose handlers have not dropped them */
    size_t unread_bytes; /* 1 MiB and a piece of a streamed answer that its client does not read */
    double header_s;     /* 10: from the connection to the end of the first request's headers */
    double idle_s;       /* 60: the same for each request that follows on a connection */
    double body_s;       /* 60: from there to the end of the body */
    double write_s;      /* 60: from the end of an answer until the client has it all */
    void (*log)(void *ctx, const http_log_line *line); /* in the server's thread; NULL: none */
    void *log_ctx;
} http_options;

/* Listens. The options' and the routes' texts and arrays must stay; routes end with a NULL path.
 * ST_USAGE: a host or port that cannot be had, keys that are missing. */
status http_server_open(http_server **out, const http_options *options, const http_route *routes,
                        err *e) ATH_MUST_USE;
int http_server_port(const http_server *s);
/* "http://127.0.0.1:8080": where a client of this machine reaches it. Lives as long as the server. */
const char *http_server_url(const http_server *s);
/* Serves until http_server_stop was called and every reply has ended and is sent. ST_FAILED: the
 * system refused to wait for connections. */
status http_server_run(http_server *s, err *e) ATH_MUST_USE;
/* Once: new requests get 503, running ones go on. Twice: http_server_run returns at once; clients that
 * wait are cut off, and their replies are told that they have gone. May be called from any thread and
 * by a signal's handler. */
void http_server_stop(http_server *s);
/* After run has returned, and after the last use of a reply: who answers in threads of their own
 * ends these first. NULL is fine. */
void http_server_close(http_server *s);

/* ---- replies; any thread, one at a time ---- */

/* The request's body was read and is not needed any more: it is empty, and there is room for others'. An
 * answer may take long. */
void http_reply_drop_body(http_reply *r);
/* Adds a header; before send or begin. Texts of ours, or checked: no control characters. Those that
 * all answers have (Cache-Control: no-store, X-Content-Type-Options: nosniff) can be given instead. */
void http_reply_header(http_reply *r, const char *name, const char *value);
/* What the log line says of it: "12+34 tokens". Copied, up to 95 bytes. */
void http_reply_note(http_reply *r, const char *note);
/* The whole answer, copied. Ends the reply: it and its request are gone when this returns. */
void http_reply_send(http_reply *r, int code, const char *content_type, const void *body,
                     size_t body_bytes);
/* The same with OpenAI's form of an error. `type` ("invalid_request_error"), `param` (the field that is
 * wrong) and `code_word` may be NULL. */
void http_reply_error(http_reply *r, int code, const char *type, const char *param,
                      const char *code_word, const char *message);
/* An answer in pieces ("text/event-stream"): begin, pieces, end. A piece is copied, and sent when the
 * client reads. False: the client has gone, or was dropped because more than unread_bytes and the
 * largest piece waited for it; nothing that follows is sent, and the reply is still to be ended. */
void http_reply_begin(http_reply *r, int code, const char *content_type);
bool http_reply_piece(http_reply *r, const void *bytes, size_t n) ATH_MUST_USE;
void http_reply_end(http_reply *r);
/* Whether the client has gone: closed its side of the connection, or was dropped. */
bool http_reply_gone(http_reply *r);
/* `gone` is called once, in the server's thread, when the client has gone before the reply's end; at
 * once, in this thread, when it already has. Never after http_reply_send or http_reply_end has
 * returned. It must not call functions of the reply, nor wait for a lock under which others do. */
void http_reply_on_gone(http_reply *r, void (*gone)(void *ctx), void *ctx);

/* ---- counters ---- */

/* Since the server began; may be read from any thread. */
typedef struct http_counters {
    int64_t connections;     /* open now */
    int64_t requests_now;    /* whose replies have not ended */
    uint64_t accepted;       /* connections */
    uint64_t evicted;        /* that idled and had to make place */
    uint64_t timed_out;      /* that did not send or read in time */
    uint64_t gone;           /* requests whose client went before the end */
    uint64_t dropped;        /* requests whose client did not read */
    uint64_t body_bytes;     /* in */
    uint64_t answer_bytes;   /* out */
    uint64_t by_status[600]; /* requests by their answer's status */
} http_counters;

void http_server_count(const http_server *s, http_counters *out);

#endif
