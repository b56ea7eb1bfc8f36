/* What the files of the server share. `lock` guards what stands under "any thread"; all else belongs
 * to the server's thread. */
#ifndef SERVE_SERVER_INT_H
#define SERVE_SERVER_INT_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/strbuf.h"
#include "serve/http/guard.h"
#include "serve/http/http.h"

/* ---- connections (connection.c) ---- */

/* What a connection is at. Each phase has one time limit, so its connections stand in a list in the
 * order in which they run out. */
typedef enum phase {
    PHASE_FIRST,  /* the headers of its first request are to come */
    PHASE_IDLE,   /* those of a further one */
    PHASE_BODY,   /* the body is to come */
    PHASE_ANSWER, /* the handler has it; no limit */
    PHASE_WRITE,  /* the client is to read the rest of the answer */
    PHASE_HALF,   /* the client sends no more; what it has sent is to be a request */
    PHASE_LINGER, /* refused: what it still sends is thrown away, so that it reads the answer */
    PHASE_SHUT,   /* cut off, which libmicrohttpd is to find; no limit */
    PHASES
} phase;

typedef struct connection {
    struct connection *next, *previous;
    phase phase;
    int64_t since_ns;
    int fd;
    bool half_closed;           /* by the client */
    struct MHD_Connection *mhd; /* NULL: lingers */
    http_reply *reply;          /* of the request under way, or NULL */
} connection;

typedef struct connection_list {
    connection *first, *last;
} connection_list;

void connection_notify(void *server, struct MHD_Connection *mhd, void **socket_context,
                       enum MHD_ConnectionNotificationCode code);
/* The phase begins now. */
void connection_enter(http_server *s, connection *c, phase p);
/* poll_fd has seen the client's end; or that a lingering one sends. */
void connection_event(http_server *s, connection *c);
/* Ends those whose time is over; nanoseconds until the next one's is, or -1. */
int64_t connection_expire(http_server *s);
/* libmicrohttpd will find it closed. */
void connection_shut(connection *c);
/* libmicrohttpd is about to close a connection whose client may still send a body: a copy lingers. */
void connection_linger(http_server *s, const connection *c);
/* Cuts off requests that are not whole yet: 503. */
void connection_refuse_bodies(http_server *s);
void connection_end_lingering(http_server *s);
/* Cuts off all that wait for a handler, and tells these. */
void connection_end_all(http_server *s);

/* ---- the server ---- */

struct http_server {
    http_options options;
    const http_route *routes;
    guard guard;
    struct MHD_Daemon *daemon;
    int listener, poll_fd, wake_fd, port;
    char url[300];
    connection_list phases[PHASES];
    int64_t limit_ns[PHASES];
    int n_connections, n_lingering;
    bool stopping;                   /* it was seen that stops > 0 */
    bool look_again;                 /* libmicrohttpd is to run without an event */
    connection waker, daemon_events; /* what poll_fd says of these two has an address, too */
    /* any thread */
    atomic_int stops;
    pthread_mutex_t lock;
    http_reply *ready;   /* replies about which something is new */
    int64_t n_replies;   /* that live */
    size_t bodies_bytes; /* of theirs */
    http_counters counters;
};

/* ---- replies (call.c in the server's thread, reply.c in any) ---- */

enum { MAX_HEADERS = 8, HEADER_BYTES = 512 };

struct http_reply {
    http_server *server;
    connection *connection; /* NULL: it is closed */
    const http_route *route;
    http_request request;
    strbuf body;
    int64_t began_ns;
    char method[16], path[80]; /* for the log: plain */
    char origin[256];          /* another site's, which may read the answer; "" */
    char body_type[128];
    bool asked;   /* the handler was called */
    bool refused; /* it will not be */
    bool unread;  /* was refused before its body was read */
    bool suspended, queued;
    uint64_t sent;
    int sent_code;
    /* any thread, under server->lock */
    http_reply *next_ready;
    int refs; /* the connection's, the handler's, the ready list's */
    bool listed, streams, ended, gone, dropped;
    int code;
    char content_type[64];
    struct {
        char name[48], value[HEADER_BYTES];
    } headers[MAX_HEADERS];
    int n_headers;
    char note[96];
    strbuf out; /* what is to be sent, from out_at on */
    size_t out_at;
    size_t largest; /* piece: it may wait beside the others */
    void (*on_gone)(void *ctx);
    void *gone_ctx;
};

http_reply *reply_new(http_server *s, connection *c);
void reply_release(http_reply *r);
/* The request ended before there was a handler to end its reply. */
void reply_abandon(http_reply *r);
/* The client has gone: tells the handler, if it has not ended the reply. */
void reply_set_gone(http_reply *r);
/* Keeps a part of the body; false: there is no room for it beside the bodies of others. */
bool reply_take_body(http_reply *r, const char *data, size_t n);
/* One about which something is new, or NULL; the caller releases it. */
http_reply *reply_pop_ready(http_server *s);

/* libmicrohttpd's calls. */
enum MHD_Result call_access(void *server, struct MHD_Connection *mhd, const char *path,
                            const char *method, const char *version, const char *data,
                            size_t *data_bytes, void **reply);
void call_completed(void *server, struct MHD_Connection *mhd, void **reply,
                    enum MHD_RequestTerminationCode how);
/* libmicrohttpd is to look at a waiting request again. */
void call_resume(http_reply *r);
/* The same, where something is new about its reply. */
void call_refresh(http_reply *r);
/* An answer for a request whose body is still to come, before its connection is closed. */
void call_cut(connection *c, int code, const char *message);

#endif
