/* libFuzzer target: bytes that a client sends to the HTTP server, in pieces of a length that the first byte
 * says; then Host, Origin and Authorization alone, which the rest reaches seldom. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/http/server_int.h"

static const char *const keys[] = {"key"};
static const char *const hosts[] = {"models.lan"};
static const char *const origins[] = {"https://app.example"};

static void handle(void *ctx, const http_request *rq, http_reply *r) {
    (void)ctx;
    if (strlen(rq->content_type) > 127 || rq->body[rq->body_bytes] != 0) abort();
    if (rq->body_bytes > 0 && rq->body[0] == 's') {
        http_reply_begin(r, 200, "text/event-stream");
        if (!http_reply_piece(r, rq->body, rq->body_bytes)) abort();
        http_reply_end(r);
    } else {
        http_reply_send(r, 200, rq->content_type, rq->body, rq->body_bytes);
    }
}

static const http_route routes[] = {{"GET", "/health", handle, NULL, true, 0},
                                    {"POST", "/echo", handle, NULL, false, 0},
                                    {"GET", "/models/a b", handle, NULL, false, 8},
                                    {0}};
static http_server *server;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    static const http_options options = {.keys = keys,
                                         .n_keys = 1,
                                         .allow_hosts = hosts,
                                         .n_allow_hosts = 1,
                                         .allow_origins = origins,
                                         .n_allow_origins = 1,
                                         .body_bytes = 1000};
    err e;
    if (http_server_open(&server, &options, routes, &e) != ST_OK) abort();
    return 0;
}

static void turn(void) {
    for (http_reply *r; (r = reply_pop_ready(server)) != NULL;) {
        call_refresh(r);
        reply_release(r);
    }
    MHD_run(server->daemon);
}

static void drain(int fd) {
    char part[4096];
    while (recv(fd, part, sizeof part, MSG_DONTWAIT) > 0) continue;
}

static void converse(const uint8_t *data, size_t size, size_t step) {
    static const struct sockaddr from = {.sa_family = AF_UNIX};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) abort();
    if (MHD_add_connection(server->daemon, pair[1], &from, sizeof from) != MHD_YES) abort();
    for (size_t at = 0; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (send(pair[0], data + at, n, MSG_NOSIGNAL) < 0) break;
        turn();
        drain(pair[0]);
    }
    close(pair[0]);
    for (int i = 0; i < 100 && server->n_connections > 0; i++) turn();
    turn(); /* of what the last one left in the list */
    connection_end_lingering(server);
    if (server->n_connections != 0 || server->n_replies != 0 || server->bodies_bytes != 0) abort();
}

static void ask_guard(const uint8_t *data, size_t size) {
    char text[600];
    const char *name;
    if (size >= sizeof text) return;
    memcpy(text, data, size);
    text[size] = 0;
    int n = guard_split_host(text, &name);
    if (n < 0 || n > 253 || (n > 0 && strcspn(name, "/@ :") < (size_t)n && text[0] != '[')) abort();
    if (guard_allows_host(&server->guard, text) && n == 0) abort();
    if (guard_allows_key(&server->guard, text) && !strstr(text, "key")) abort();
    if (guard_allows_origin(&server->guard, text, "localhost") &&
        !strcasestr(text, "://localhost") && !strcasestr(text, "app.example"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 20000) return 0;
    converse(data + 1, size - 1, 1 + data[0] * 16u);
    ask_guard(data, size);
    return 0;
}
