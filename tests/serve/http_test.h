/* A server in a thread of the test, with routes that answer at once, later, in pieces or never; and
 * clients that send bytes as they like. */
#ifndef TESTS_SERVE_HTTP_TEST_H
#define TESTS_SERVE_HTTP_TEST_H

#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/strbuf.h"
#include "serve/http/http.h"

/* ---- the server ---- */

typedef struct scene {
    http_server *server;
    pthread_t thread;
    /* what the handlers of /later and /stream were given, and what became of it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    http_reply *held;
    int n_gone, n_logged;
    http_log_line last;
    char last_path[80];
} scene;

static void scene_change(scene *s, int *counter, http_reply *held) {
    pthread_mutex_lock(&s->lock);
    if (counter) ++*counter;
    if (held) s->held = held;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until a handler holds a reply, and takes it. */
static inline http_reply *scene_take(scene *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->held) pthread_cond_wait(&s->changed, &s->lock);
    http_reply *r = s->held;
    s->held = NULL;
    pthread_mutex_unlock(&s->lock);
    return r;
}

static inline void scene_await(scene *s, const int *counter, int least) {
    pthread_mutex_lock(&s->lock);
    while (*counter < least) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void on_gone(void *ctx) {
    scene *s = ctx;
    scene_change(s, &s->n_gone, NULL);
}

static void handle_health(void *ctx, const http_request *rq, http_reply *r) {
    (void)ctx;
    http_reply_send(r, 200, "text/plain", rq->method, strlen(rq->method));
}

static void handle_echo(void *ctx, const http_request *rq, http_reply *r) {
    (void)ctx;
    assert_int_equal(rq->body[rq->body_bytes], 0);
    http_reply_note(r, "an echo");
    http_reply_send(r, 200, rq->content_type, rq->body, rq->body_bytes);
}

static void handle_later(void *ctx, const http_request *rq, http_reply *r) {
    (void)rq;
    http_reply_on_gone(r, on_gone, ctx);
    scene_change(ctx, NULL, r);
}

static void on_log(void *ctx, const http_log_line *line) {
    scene *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->last = *line;
    snprintf(s->last_path, sizeof s->last_path, "%s", line->path);
    pthread_mutex_unlock(&s->lock);
    scene_change(s, &s->n_logged, NULL);
}

static void *run_server(void *server) {
    err e;
    assert_int_equal(http_server_run(server, &e), ST_OK);
    return NULL;
}

static http_route routes[] = {
    {"GET", "/health", handle_health, NULL, true, 0},
    {"POST", "/echo", handle_echo, NULL, false, 0},
    {"POST", "/later", handle_later, NULL, false, 0},
    {0},
};

static inline void scene_begin(scene *s, http_options options) {
    err e = {0};
    *s = (scene){0};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    for (int i = 0; i < 3; i++) routes[i].ctx = s;
    options.log = on_log;
    options.log_ctx = s;
    if (http_server_open(&s->server, &options, routes, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(pthread_create(&s->thread, NULL, run_server, s->server), 0);
}

static inline void scene_end(scene *s) {
    http_server_stop(s->server);
    pthread_join(s->thread, NULL);
    http_server_close(s->server);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

static inline http_counters scene_count(const scene *s) {
    http_counters c;
    http_server_count(s->server, &c);
    return c;
}

/* Until no more connections are open than this. */
static inline void scene_await_connections(const scene *s, int64_t most) {
    while (scene_count(s).connections > most) usleep(1000);
}

static inline int count_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* ---- clients ---- */

static inline int client_connect(const scene *s) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)http_server_port(s->server))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* False when the server has closed the connection. */
static inline bool client_send(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n > 0;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Reads until the server closes the connection, or `until` has come (NULL: only until it closes). */
static inline const char *client_read(int fd, strbuf *in, const char *until) {
    char part[4096];
    strbuf_clear(in);
    while (!until || !strstr(strbuf_cstr(in), until)) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n <= 0) break;
        strbuf_append(in, part, (size_t)n);
    }
    return strbuf_cstr(in);
}

/* A request of n bytes (-1: a text) on a connection of its own: all that comes until the server closes. */
static inline const char *exchange(const scene *s, const char *request, long n, strbuf *in) {
    int fd = client_connect(s);
    client_send(fd, request, n < 0 ? strlen(request) : (size_t)n);
    client_read(fd, in, NULL);
    close(fd);
    return strbuf_cstr(in);
}

static inline int status_of(const char *answer) {
    int code = 0;
    if (sscanf(answer, "HTTP/1.%*1[01] %d", &code) != 1) return 0;
    return code;
}

#endif
