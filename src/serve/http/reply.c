/* Replies, as handlers see them: any thread. What a handler gives is kept under the server's lock, and
 * the server's thread is woken. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/json.h"
#include "serve/http/server_int.h"

static void lock(http_reply *r) {
    pthread_mutex_lock(&r->server->lock);
}

/* Takes one reference, with the lock held, and frees the reply after the last one. */
static void drop(http_reply *r) {
    http_server *s = r->server;
    bool last = --r->refs == 0;
    if (last) {
        s->n_replies--;
        s->bodies_bytes -= r->body.len;
        if (atomic_load(&s->stops) > 0) eventfd_write(s->wake_fd, 1); /* it may be the last */
    }
    pthread_mutex_unlock(&s->lock);
    if (!last) return;
    strbuf_free(&r->body);
    strbuf_free(&r->out);
    free(r);
}

/* The server's thread is to look at it. With the lock held. */
static void set_ready(http_reply *r) {
    http_server *s = r->server;
    if (r->listed) return;
    r->listed = true;
    r->refs++;
    r->next_ready = s->ready;
    s->ready = r;
    eventfd_write(s->wake_fd, 1);
}

/* ---- for the server ---- */

http_reply *reply_new(http_server *s, connection *c) {
    http_reply *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->server = s;
    r->connection = c;
    r->refs = 2;
    pthread_mutex_lock(&s->lock);
    s->n_replies++;
    pthread_mutex_unlock(&s->lock);
    return r;
}

bool reply_take_body(http_reply *r, const char *data, size_t n) {
    http_server *s = r->server;
    lock(r);
    bool fits = s->bodies_bytes + n <= s->options.bodies_bytes;
    if (fits) {
        s->bodies_bytes += n;
        s->counters.body_bytes += n;
        strbuf_append(&r->body, data, n);
    }
    pthread_mutex_unlock(&s->lock);
    return fits;
}

void reply_release(http_reply *r) {
    lock(r);
    drop(r);
}

void reply_set_gone(http_reply *r) {
    lock(r);
    r->gone = true;
    if (!r->ended && r->on_gone) r->on_gone(r->gone_ctx);
    r->on_gone = NULL;
    pthread_mutex_unlock(&r->server->lock);
}

http_reply *reply_pop_ready(http_server *s) {
    pthread_mutex_lock(&s->lock);
    http_reply *r = s->ready;
    if (r) {
        s->ready = r->next_ready;
        r->listed = false;
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* ---- for handlers ---- */

void http_reply_drop_body(http_reply *r) {
    lock(r);
    r->server->bodies_bytes -= r->body.len;
    strbuf body = r->body;
    r->body = (strbuf){0};
    r->request.body = "";
    r->request.body_bytes = 0;
    pthread_mutex_unlock(&r->server->lock);
    strbuf_free(&body);
}

void http_reply_header(http_reply *r, const char *name, const char *value) {
    CHECK(r->n_headers < MAX_HEADERS, "a reply has %d headers of its own at most", MAX_HEADERS);
    CHECK(strlen(value) < HEADER_BYTES, "the header %s is too long", name);
    lock(r);
    snprintf(r->headers[r->n_headers].name, sizeof r->headers[0].name, "%s", name);
    snprintf(r->headers[r->n_headers++].value, HEADER_BYTES, "%s", value);
    pthread_mutex_unlock(&r->server->lock);
}

void http_reply_note(http_reply *r, const char *note) {
    lock(r);
    snprintf(r->note, sizeof r->note, "%s", note);
    pthread_mutex_unlock(&r->server->lock);
}

static void set_head(http_reply *r, int code, const char *content_type) {
    CHECK(r->code == 0 && !r->ended, "a reply begins once");
    CHECK(code >= 200 && code < 600, "%d is no status of an answer", code);
    r->code = code;
    snprintf(r->content_type, sizeof r->content_type, "%s", content_type);
}

/* With the lock held, which it gives up. */
static void end(http_reply *r) {
    r->ended = true;
    r->on_gone = NULL;
    set_ready(r);
    drop(r);
}

void reply_abandon(http_reply *r) {
    lock(r);
    end(r);
}

void http_reply_send(http_reply *r, int code, const char *content_type, const void *body,
                     size_t body_bytes) {
    lock(r);
    set_head(r, code, content_type);
    if (!r->gone) strbuf_append(&r->out, body, body_bytes);
    end(r);
}

static json_t *text_or_null(const char *text) {
    return text ? json_cstr(text) : json_null();
}

void http_reply_error(http_reply *r, int code, const char *type, const char *param,
                      const char *code_word, const char *message) {
    json_t *body = json_pack("{s:{s:o,s:o,s:o,s:o}}", "error", "message", json_cstr(message),
                             "type", text_or_null(type), "param", text_or_null(param), "code",
                             text_or_null(code_word));
    strbuf text = {0};
    json_format(&text, body, 0);
    json_decref(body);
    http_reply_send(r, code, "application/json", text.data, text.len);
    strbuf_free(&text);
}

void http_reply_begin(http_reply *r, int code, const char *content_type) {
    lock(r);
    set_head(r, code, content_type);
    r->streams = true;
    set_ready(r);
    pthread_mutex_unlock(&r->server->lock);
}

bool http_reply_piece(http_reply *r, const void *bytes, size_t n) {
    lock(r);
    CHECK(r->streams && !r->ended, "pieces come between begin and end");
    if (n > r->largest) r->largest = n;
    if (!r->gone && r->out.len - r->out_at + n > r->server->options.unread_bytes + r->largest) {
        r->gone = r->dropped = true;
        r->server->counters.dropped++;
    }
    if (!r->gone) strbuf_append(&r->out, bytes, n);
    bool here = !r->gone;
    set_ready(r);
    pthread_mutex_unlock(&r->server->lock);
    return here;
}

void http_reply_end(http_reply *r) {
    lock(r);
    CHECK(r->streams && !r->ended, "a reply in pieces ends once");
    end(r);
}

bool http_reply_gone(http_reply *r) {
    lock(r);
    bool gone = r->gone;
    pthread_mutex_unlock(&r->server->lock);
    return gone;
}

void http_reply_on_gone(http_reply *r, void (*gone)(void *ctx), void *ctx) {
    lock(r);
    if (r->gone) {
        gone(ctx);
    } else {
        r->on_gone = gone;
        r->gone_ctx = ctx;
    }
    pthread_mutex_unlock(&r->server->lock);
}
