/* HTTP/1.1 as a client speaks it (RFC 9112): the head, and bodies by length, by chunks or to the end. */
#include "app/bench/http_call.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MOST_HEAD = 1 << 16 };

/* ---- where ---- */

bool http_is_url(const char *text) {
    return strstr(text, "://") != NULL;
}

static status resolve(http_place *p, const char *host, const char *port, const char *url, err *e) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return err_at(e, ST_USAGE, url, "there is no server %s: %s", p->host, gai_strerror(failed));
    p->addr_len = found->ai_addrlen;
    memcpy(&p->addr, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return ST_OK;
}

status http_place_read(http_place *p, const char *url, err *e) {
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        err_at(e, ST_USAGE, url, "only http:// can be measured");
        return err_hint(e, "measure beside the server, before what adds TLS");
    }
    const char *host = url + sizeof scheme - 1;
    size_t n = strcspn(host, "/?#"), base = strlen(host + n);
    if (n == 0 || n >= sizeof p->host || base >= sizeof p->base || strpbrk(url, " \r\n\t?#@"))
        return err_at(e, ST_USAGE, url, "this is no URL of a server: http://HOST[:PORT][/BASE]");
    memcpy(p->host, host, n);
    p->host[n] = '\0';
    while (base > 0 && host[n + base - 1] == '/') base--;
    memcpy(p->base, host + n, base);
    p->base[base] = '\0';
    char name[sizeof p->host];
    memcpy(name, p->host, n + 1);
    char *from = name, *port = strrchr(name, ':');
    if (*name == '[' && strchr(name, ']')) { /* [::1]:80 */
        from = name + 1;
        char *end = strchr(name, ']');
        port = end[1] == ':' ? end + 1 : NULL;
        *end = '\0';
    }
    if (port) *port = '\0';
    return resolve(p, from, port ? port + 1 : "80", url, e);
}

/* ---- the request ---- */

void http_put_request(strbuf *out, const http_place *p, const char *method, const char *path,
                      const char *key, const char *body, size_t n) {
    strbuf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, p->base,
                  path, p->host);
    if (key) strbuf_printf(out, "Authorization: Bearer %s\r\n", key);
    if (body) strbuf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", n);
    strbuf_puts(out, "\r\n");
    if (body) strbuf_append(out, body, n);
}

static bool broke(http_call *c, const char *why) {
    c->state = HTTP_BROKEN;
    c->why = why;
    return false;
}

void http_call_open(http_call *c, const http_place *p, const char *bytes, size_t n) {
    int on = 1;
    c->state = HTTP_SEND;
    strbuf_append(&c->out, bytes, n);
    c->fd = socket(p->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) {
        broke(c, "no descriptor is free");
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (const struct sockaddr *)&p->addr, p->addr_len) != 0 && errno != EINPROGRESS)
        broke(c, "no connection");
}

short http_call_events(const http_call *c) {
    return c->state == HTTP_SEND ? POLLOUT | POLLIN : POLLIN;
}

/* ---- the answer ---- */

/* The value of a header in the head, or NULL; its length is in *n. */
static const char *find_header(const char *head, const char *name, size_t *n) {
    size_t len = strlen(name);
    for (const char *at = strstr(head, "\r\n"); at; at = strstr(at, "\r\n")) {
        at += 2;
        if (strncasecmp(at, name, len) != 0 || at[len] != ':') continue;
        at += len + 1;
        at += strspn(at, " \t");
        *n = strcspn(at, "\r");
        return at;
    }
    return NULL;
}

static bool read_length(const char *text, size_t n, int base, int64_t *out) {
    char *end;
    errno = 0;
    if (n == 0 || *text == '-' || *text == '+' || *text == ' ') return false;
    long long value = strtoll(text, &end, base);
    *out = value;
    return errno == 0 && end > text && value >= 0;
}

static bool read_head(http_call *c) {
    const char *head = c->line.data, *value;
    size_t n;
    if (strlen(head) != c->line.len || sscanf(head, "HTTP/1.%*1[01] %3d", &c->code) != 1 ||
        c->code < 100)
        return broke(c, "the answer is no HTTP/1.1");
    c->state = HTTP_HEAD;
    if (c->code < 200) return true; /* the answer itself follows */
    c->left = -1;
    c->state = HTTP_BODY;
    value = find_header(head, "Transfer-Encoding", &n);
    c->chunked = value && n == 7 && strncasecmp(value, "chunked", 7) == 0;
    if (c->chunked) {
        c->state = HTTP_CHUNK_SIZE;
    } else if ((value = find_header(head, "Content-Length", &n))) {
        if (!read_length(value, n, 10, &c->left))
            return broke(c, "the answer's Content-Length is no number");
        if (c->left == 0) c->state = HTTP_ENDED;
    }
    return true;
}

static bool end_line(http_call *c) {
    const char *line = strbuf_cstr(&c->line);
    bool empty = c->line.len == 2;
    switch (c->state) {
        case HTTP_CHUNK_SIZE:
            if (!read_length(line, c->line.len, 16, &c->left))
                return broke(c, "a chunk of the answer has no length");
            c->state = c->left ? HTTP_BODY : HTTP_TRAILER;
            return true;
        case HTTP_CHUNK_END:
            c->state = HTTP_CHUNK_SIZE;
            return empty || broke(c, "a chunk of the answer is longer than it says");
        default:
            if (empty) c->state = HTTP_ENDED;
            return true;
    }
}

/* Takes bytes up to the end of a line, or of the head, and acts on it when it is whole. */
static bool take_line(http_call *c, const char **at, const char *end) {
    const char *stop = c->state == HTTP_HEAD ? "\r\n\r\n" : "\r\n";
    size_t n = strlen(stop);
    while (*at < end) {
        strbuf_putc(&c->line, *(*at)++);
        if (c->line.len > MOST_HEAD) return broke(c, "the head of the answer has no end");
        if (c->line.len < n || memcmp(c->line.data + c->line.len - n, stop, n) != 0) continue;
        bool go_on = c->state == HTTP_HEAD ? read_head(c) : end_line(c);
        strbuf_clear(&c->line);
        return go_on;
    }
    return true;
}

static void take_body(http_call *c, const char **at, const char *end) {
    size_t n = (size_t)(end - *at);
    if (c->left >= 0 && (int64_t)n > c->left) n = (size_t)c->left;
    if (c->on_body) c->on_body(c->ctx, *at, n);
    *at += n;
    if (c->left < 0) return;
    c->left -= (int64_t)n;
    if (c->left == 0) c->state = c->chunked ? HTTP_CHUNK_END : HTTP_ENDED;
}

bool http_call_take(http_call *c, const char *at, size_t n) {
    const char *end = at + n;
    if (c->state == HTTP_SEND) c->state = HTTP_HEAD; /* refused before all was said */
    while (at < end && c->state < HTTP_ENDED && !c->enough) {
        if (c->state == HTTP_BODY)
            take_body(c, &at, end);
        else if (!take_line(c, &at, end))
            return false;
    }
    return c->state < HTTP_ENDED && !c->enough;
}

/* ---- steps ---- */

/* False: the call has ended. A server that has said no may close before it has read all: its answer counts. */
static bool send_some(http_call *c) {
    while (c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINTR)) return true;
        if (n < 0 && errno == EPIPE) break;
        if (n < 0) return broke(c, "no connection");
        c->sent += (size_t)n;
    }
    if (c->hang_up) return broke(c, "it was not to be answered");
    c->state = HTTP_HEAD;
    return true;
}

bool http_call_step(http_call *c) {
    char bytes[1 << 14];
    if (c->state >= HTTP_ENDED) return false;
    if (c->state == HTTP_SEND && !send_some(c)) return false;
    for (;;) {
        ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            bool waits = errno == EAGAIN || errno == ENOTCONN;
            return waits || broke(c, c->code ? "the connection broke" : "no connection");
        }
        if (n > 0) {
            if (!http_call_take(c, bytes, (size_t)n)) return false;
            continue;
        }
        if (c->state != HTTP_BODY || c->left >= 0)
            return broke(c, c->code ? "the answer was cut" : "the connection ended without answer");
        c->state = HTTP_ENDED;
        return false;
    }
}

void http_call_close(http_call *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    strbuf_free(&c->out);
    strbuf_free(&c->line);
}
