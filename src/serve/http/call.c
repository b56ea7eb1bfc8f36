/* One request: what libmicrohttpd says of it, the checks before its body, the handler, the answer. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/text.h"
#include "serve/http/server_int.h"

/* ---- its headers ---- */

/* Those that are looked at; NULL: not there. */
typedef struct head {
    const char *host, *origin, *authorization, *content_type, *content_length, *transfer_encoding,
        *preflight, *preflight_headers, *preflight_private;
    bool twice;  /* one of them is given twice */
    bool broken; /* a line that servers before this one may have read in another way */
} head;

static const struct {
    const char *name;
    size_t at;
} known_headers[] = {
    {"Host", offsetof(head, host)},
    {"Origin", offsetof(head, origin)},
    {"Authorization", offsetof(head, authorization)},
    {"Content-Type", offsetof(head, content_type)},
    {"Content-Length", offsetof(head, content_length)},
    {"Transfer-Encoding", offsetof(head, transfer_encoding)},
    {"Access-Control-Request-Method", offsetof(head, preflight)},
    {"Access-Control-Request-Headers", offsetof(head, preflight_headers)},
    {"Access-Control-Request-Private-Network", offsetof(head, preflight_private)},
};

/* A name is a token (RFC 9110, 5.6.2). A line that goes on with the one before is added to that one's
 * name by libmicrohttpd 0.9.75: what is a length for others would be none for us. */
static bool is_broken(const char *name, const char *value) {
    static const char *const lengths[] = {"Content-Length", "Transfer-Encoding"};
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || (name[n] && strchr("!#$%&'*+-.^_`|~", name[n]))) n++;
    bool broken = n == 0 || name[n] || strchr(value, '\r');
    for (int i = 0; i < ARRAY_LEN(lengths); i++) {
        size_t len = strlen(lengths[i]);
        broken |= n > len && strncasecmp(name, lengths[i], len) == 0;
    }
    return broken;
}

/* Each of these once, or servers before this one may have read the request in another way. */
static enum MHD_Result take_header(void *ctx, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    head *h = ctx;
    (void)kind;
    if (!value) value = "";
    h->broken |= is_broken(name, value);
    for (int i = 0; i < ARRAY_LEN(known_headers); i++) {
        if (strcasecmp(known_headers[i].name, name) != 0) continue;
        const char **at = (const char **)(void *)((char *)h + known_headers[i].at);
        h->twice |= *at != NULL;
        *at = value;
    }
    return MHD_YES;
}

static const char *find_broken(const head *h, bool old) {
    if (h->broken)
        return "a header is broken: its name is no token, or it goes on in a second line";
    if (h->twice) return "a header that may be given once is given twice";
    if (!h->host && !old) return "the request has no Host";
    if (h->transfer_encoding && (h->content_length || old))
        return "Transfer-Encoding stands beside Content-Length, or in HTTP/1.0";
    if (h->transfer_encoding && strcasecmp(h->transfer_encoding, "chunked") != 0)
        return "the only Transfer-Encoding is chunked";
    if (h->content_length && h->content_length[strspn(h->content_length, "0123456789")] != 0)
        return "Content-Length is not a number";
    return NULL;
}

/* ---- refusals, each before the body is read ---- */

static bool refuse(http_reply *r, int code, const char *word, const char *message) {
    http_reply_error(r, code, code >= 500 ? "server_error" : "invalid_request_error", NULL, word,
                     message);
    return true;
}

static bool refuse_host(http_reply *r, const char *host) {
    char text[400];
    const char *name;
    int n = guard_split_host(host, &name);
    snprintf(text, sizeof text, "this server does not go by the name '%.*s' (--allow-host %.*s)",
             n ? n : 4, n ? name : "that", n ? n : 4, n ? name : "NAME");
    return refuse(r, 403, "unknown_host", text);
}

/* Whether that is the path which was sent. */
static bool is_path(const http_route *t, const char *sent) {
    unsigned char c;
    for (const char *p = t->path; *p; p++) {
        if ((c = (unsigned char)*sent++) == 0) return false;
        bool escaped = c == '%' && t->name && p - t->path >= t->name &&
                       isxdigit((unsigned char)sent[0]) && isxdigit((unsigned char)sent[1]);
        if (escaped) {
            sscanf(sent, "%2hhx", &c);
            sent += 2;
        }
        if (c != (unsigned char)*p) return false;
    }
    return *sent == 0;
}

static bool refuse_method(http_reply *r, const char *path) {
    char allow[64] = "OPTIONS";
    for (const http_route *t = r->server->routes; t->path; t++) {
        if (!is_path(t, path)) continue;
        size_t n = strlen(allow);
        snprintf(allow + n, sizeof allow - n, ", %s%s", t->method,
                 strcmp(t->method, "GET") == 0 ? ", HEAD" : "");
    }
    http_reply_header(r, "Allow", allow);
    if (strcmp(r->method, "OPTIONS") != 0)
        return refuse(r, 405, "method_not_allowed", "this address takes other methods");
    http_reply_send(r, 204, "", NULL, 0);
    return true;
}

/* "authorization, content-type" */
static bool is_token_list(const char *s) {
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-_, ", *s)) return false;
    return true;
}

/* A browser asks whether a page of another site may send what it wants to. */
static bool answer_preflight(http_reply *r, const head *h) {
    const char *names = h->preflight_headers;
    http_reply_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    if (names && strlen(names) < HEADER_BYTES && is_token_list(names))
        http_reply_header(r, "Access-Control-Allow-Headers", names);
    if (h->preflight_private) http_reply_header(r, "Access-Control-Allow-Private-Network", "true");
    http_reply_header(r, "Access-Control-Max-Age", "600");
    http_reply_send(r, 204, "", NULL, 0);
    return true;
}

static bool refuse_length(http_reply *r, const head *h) {
    http_server *s = r->server;
    char text[100];
    if (!h->content_length) return false;
    size_t digits = strlen(h->content_length + strspn(h->content_length, "0"));
    if (digits < 19 && strtoull(h->content_length, NULL, 10) <= s->options.body_bytes) return false;
    snprintf(text, sizeof text, "a request has %zu bytes at most", s->options.body_bytes);
    return refuse(r, 413, "request_too_large", text);
}

/* Whose request it is, and from where. */
static bool refuse_asker(http_reply *r, const head *h, const http_route *route) {
    http_server *s = r->server;
    if (h->host && !guard_allows_host(&s->guard, h->host)) return refuse_host(r, h->host);
    if (h->origin && !guard_allows_origin(&s->guard, h->origin, h->host ? h->host : ""))
        return refuse(r, 403, "foreign_origin",
                      "pages of other sites may not ask this server (--allow-origin)");
    if (h->origin) snprintf(r->origin, sizeof r->origin, "%s", h->origin);
    if (h->origin && h->preflight && strcmp(r->method, "OPTIONS") == 0)
        return answer_preflight(r, h);
    if ((route && route->open) || guard_allows_key(&s->guard, h->authorization)) return false;
    http_reply_header(r, "WWW-Authenticate", "Bearer");
    return refuse(r, 401, "invalid_api_key",
                  h->authorization ? "this API key is not one of the server's"
                                   : "the server wants an API key: Authorization: Bearer KEY");
}

static bool refuse_route(http_reply *r, const char *path, bool known) {
    char text[160];
    if (r->route) return false;
    if (known) return refuse_method(r, path);
    snprintf(text, sizeof text, "there is nothing at %s", r->path);
    return refuse(r, 404, "unknown_url", text);
}

/* Finds the route; true where the request was answered already. */
static bool check(http_reply *r, const head *h, const char *path, const char *version) {
    http_server *s = r->server;
    const char *asked = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    const http_route *route = NULL;
    bool known = false, old = strcmp(version, "HTTP/1.0") == 0;
    for (const http_route *t = s->routes; t->path; t++) {
        if (!is_path(t, path)) continue;
        known = true;
        if (strcmp(t->method, asked) == 0) route = t;
    }
    if (!old && strcmp(version, "HTTP/1.1") != 0)
        return refuse(r, 505, "version", "this server speaks HTTP/1.1");
    const char *broken = find_broken(h, old);
    if (broken) return refuse(r, 400, "bad_request", broken);
    if (atomic_load(&s->stops) > 0) {
        http_reply_header(r, "Retry-After", "5");
        return refuse(r, 503, "stopping", "the server is stopping");
    }
    if (refuse_asker(r, h, route)) return true;
    r->route = route;
    return refuse_route(r, path, known) || refuse_length(r, h);
}

/* ---- the answer ---- */

/* libmicrohttpd 0.9.75 forgets a connection that its owner closes, until all older ones are closed,
 * unless it has a time limit of its own. */
static enum MHD_Result give_up(http_reply *r) {
    MHD_set_connection_option(r->connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    r->server->look_again = true;
    return MHD_NO;
}

static ssize_t read_pieces(void *reply, uint64_t position, char *to, size_t most) {
    http_reply *r = reply;
    http_server *s = r->server;
    (void)position;
    pthread_mutex_lock(&s->lock);
    size_t n = r->out.len - r->out_at;
    if (n > most) n = most;
    if (n > 0) memcpy(to, r->out.data + r->out_at, n);
    r->out_at += n;
    if (r->out_at == r->out.len || r->out_at >= s->options.unread_bytes) {
        size_t left = r->out.len - r->out_at;
        if (left) memmove(r->out.data, r->out.data + r->out_at, left);
        strbuf_truncate(&r->out, left);
        r->out_at = 0;
    }
    bool gone = r->gone, ended = r->ended;
    pthread_mutex_unlock(&s->lock);
    r->sent += n;
    if (gone) {
        give_up(r);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (n > 0) return (ssize_t)n;
    if (ended) return MHD_CONTENT_READER_END_OF_STREAM;
    r->suspended = true;
    MHD_suspend_connection(r->connection->mhd);
    return 0;
}

static struct MHD_Response *make_response(http_reply *r) {
    if (r->streams)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_pieces, r, NULL);
    strbuf out = r->out;
    r->out = (strbuf){0};
    r->sent = out.len;
    if (out.len > 0)
        return MHD_create_response_from_buffer(out.len, out.data, MHD_RESPMEM_MUST_FREE);
    strbuf_free(&out);
    return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
}

/* Unless the handler has given one. */
static void add_default(const http_reply *r, struct MHD_Response *to, const char *name,
                        const char *value) {
    for (int i = 0; i < r->n_headers; i++)
        if (strcasecmp(r->headers[i].name, name) == 0) return;
    MHD_add_response_header(to, name, value);
}

/* With the server's lock held. */
static void add_headers(const http_reply *r, struct MHD_Response *to) {
    if (r->content_type[0]) MHD_add_response_header(to, "Content-Type", r->content_type);
    add_default(r, to, "Cache-Control", "no-store");
    add_default(r, to, "X-Content-Type-Options", "nosniff");
    if (r->server->options.n_allow_origins > 0) MHD_add_response_header(to, "Vary", "Origin");
    if (r->origin[0]) MHD_add_response_header(to, "Access-Control-Allow-Origin", r->origin);
    for (int i = 0; i < r->n_headers; i++)
        MHD_add_response_header(to, r->headers[i].name, r->headers[i].value);
}

static enum MHD_Result queue_answer(http_reply *r) {
    http_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    struct MHD_Response *response = make_response(r);
    if (response) add_headers(r, response);
    bool ended = r->ended;
    pthread_mutex_unlock(&s->lock);
    if (!response) return give_up(r);
    if (ended) connection_enter(s, r->connection, PHASE_WRITE);
    r->sent_code = r->code;
    enum MHD_Result done = MHD_queue_response(r->connection->mhd, (unsigned)r->sent_code, response);
    MHD_destroy_response(response);
    return done;
}

/* Sends the answer that is there, or waits for one. */
static enum MHD_Result answer(http_reply *r) {
    http_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    bool gone = r->gone, begun = r->code != 0, ended = r->ended;
    pthread_mutex_unlock(&s->lock);
    if (!gone && !ended && r->connection->half_closed) {
        reply_set_gone(r);
        gone = true;
    }
    if (gone) return give_up(r);
    if (begun) return queue_answer(r);
    r->suspended = true;
    MHD_suspend_connection(r->connection->mhd);
    return MHD_YES;
}

void call_resume(http_reply *r) {
    connection *c = r->connection;
    if (!c) return;
    if (r->suspended) MHD_resume_connection(c->mhd);
    r->suspended = false;
}

void call_refresh(http_reply *r) {
    http_server *s = r->server;
    connection *c = r->connection;
    if (!c || !r->asked) return;
    pthread_mutex_lock(&s->lock);
    bool ended = r->ended, dropped = r->dropped;
    pthread_mutex_unlock(&s->lock);
    if (ended && c->phase == PHASE_ANSWER) connection_enter(s, c, PHASE_WRITE);
    if (dropped) connection_shut(c);
    call_resume(r);
}

/* ---- the body and the handler ---- */

void call_cut(connection *c, int code, const char *message) {
    char body[256], text[512];
    int n = snprintf(body, sizeof body, "{\"error\":{\"message\":\"%s\",\"type\":\"%s\"}}", message,
                     code >= 500 ? "server_error" : "invalid_request_error");
    int m = snprintf(text, sizeof text,
                     "HTTP/1.1 %d Refused\r\nConnection: close\r\nRetry-After: 1\r\n"
                     "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                     code, n, body);
    send(c->fd, text, (size_t)m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (c->reply) c->reply->sent_code = code;
    if (c->reply) c->reply->unread = true;
}

/* libmicrohttpd takes no answer within a body, but closes the connection. */
static enum MHD_Result take_body(http_reply *r, const char *data, size_t n) {
    if (r->body.len + n > r->server->options.body_bytes) {
        call_cut(r->connection, 413, "the request is larger than the server takes");
        return give_up(r);
    }
    if (reply_take_body(r, data, n)) return MHD_YES;
    call_cut(r->connection, 503, "the server has too many requests at once");
    return give_up(r);
}

static void ask(http_reply *r) {
    http_server *s = r->server;
    r->asked = true;
    r->request.body = strbuf_cstr(&r->body);
    r->request.body_bytes = r->body.len;
    connection_enter(s, r->connection, PHASE_ANSWER);
    if (atomic_load(&s->stops) > 0) {
        http_reply_header(r, "Retry-After", "5");
        refuse(r, 503, "stopping", "the server is stopping");
        return;
    }
    r->route->handle(r->route->ctx, &r->request, r);
}

/* "http://HOST/v1/models", which every server must take (RFC 9112, 3.2.2): HOST counts then, not the header, which is
 * needed all the same. Returns the path. */
static const char *split_target(const char *target, head *h, char host[300]) {
    static const char SCHEME[] = "http://";
    size_t skip = sizeof SCHEME - 1;
    if (strncasecmp(target, SCHEME, skip) != 0) return target;
    size_t n = strcspn(target + skip, "/");
    if (n >= 300) return target;
    snprintf(host, 300, "%.*s", (int)n, target + skip);
    if (h->host) h->host = host;
    return target[skip + n] ? target + skip + n : "/";
}

static enum MHD_Result begin(http_server *s, connection *c, const char *path, const char *method,
                             const char *version, void **reply) {
    head h = {0};
    char host[300];
    http_reply *r = reply_new(s, c);
    if (!r) return MHD_NO;
    *reply = c->reply = r;
    r->began_ns = clock_now_ns();
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, take_header, &h);
    path = split_target(path, &h, host);
    snprintf(r->method, sizeof r->method, "%s", method);
    snprintf(r->path, sizeof r->path, "%s", path);
    text_make_plain(r->method);
    text_make_plain(r->path);
    connection_enter(s, c, PHASE_BODY);
    r->refused = check(r, &h, path, version);
    r->unread = r->refused && (h.broken || h.content_length || h.transfer_encoding);
    if (r->unread) return queue_answer(r);
    if (r->refused) return MHD_YES;
    snprintf(r->body_type, sizeof r->body_type, "%s", h.content_type ? h.content_type : "");
    r->request = (http_request){
        .method = r->route->method, .path = r->route->path, .content_type = r->body_type};
    return MHD_YES;
}

enum MHD_Result call_access(void *server, struct MHD_Connection *mhd, const char *path,
                            const char *method, const char *version, const char *data,
                            size_t *data_bytes, void **reply) {
    http_reply *r = *reply;
    if (!r) {
        connection *c =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
        return c ? begin(server, c, path, method, version, reply) : MHD_NO;
    }
    size_t n = *data_bytes;
    *data_bytes = 0;
    if (n > 0) return take_body(r, data, n);
    if (!r->asked && !r->refused) ask(r);
    return answer(r);
}

/* ---- its end ---- */

static void count(http_reply *r, bool whole) {
    http_server *s = r->server;
    char note[sizeof r->note];
    pthread_mutex_lock(&s->lock);
    s->counters.by_status[r->sent_code]++;
    s->counters.answer_bytes += r->sent;
    s->counters.gone += !whole && !r->dropped && r->asked;
    memcpy(note, r->note, sizeof note);
    pthread_mutex_unlock(&s->lock);
    if (!s->options.log) return;
    http_log_line line = {.method = r->method,
                          .path = r->path,
                          .status = r->sent_code,
                          .cut = !whole,
                          .ms = clock_since_s(r->began_ns) * 1e3,
                          .bytes = r->sent,
                          .note = note};
    s->options.log(s->options.log_ctx, &line);
}

void call_completed(void *server, struct MHD_Connection *mhd, void **reply,
                    enum MHD_RequestTerminationCode how) {
    http_server *s = server;
    http_reply *r = *reply;
    (void)mhd;
    if (!r) return;
    *reply = NULL;
    connection *c = r->connection;
    bool whole = how == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    if (!whole) reply_set_gone(r);
    count(r, whole);
    if (r->unread) connection_linger(s, c);
    if (c->phase != PHASE_SHUT) connection_enter(s, c, PHASE_IDLE);
    c->reply = NULL;
    r->connection = NULL;
    if (!r->asked && !r->refused) reply_abandon(r);
    reply_release(r);
}
