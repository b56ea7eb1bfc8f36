/* Reading order: serve_open, the routes, serve_start and serve_close. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "serve/api/api.h"
#include "serve/page/page.h"

enum { DESK_THREADS = 2, DEFAULT_WAITING = 1024 };

/* ---- routes that print what is there ---- */

static void get_models(void *ctx, const http_request *rq, http_reply *reply) {
    const server *s = ctx;
    (void)rq;
    reply_object(reply, served_json(&s->models));
}

static void get_model(void *ctx, const http_request *rq, http_reply *reply) {
    const server *s = ctx;
    int i = 0;
    while (strcmp(s->models.item[i].route, rq->path) != 0) i++;
    reply_object(reply, served_one_json(&s->models.item[i], s->models.began));
}

static void get_health(void *ctx, const http_request *rq, http_reply *reply) {
    (void)ctx, (void)rq;
    reply_object(reply, json_pack("{s:s}", "status", "ok"));
}

static void get_metrics(void *ctx, const http_request *rq, http_reply *reply) {
    const server *s = ctx;
    const char **names = xcalloc((size_t)s->models.n, sizeof *names);
    http_counters http;
    strbuf text = {0};
    (void)rq;
    for (int i = 0; i < s->models.n; i++) names[i] = s->models.item[i].name;
    http_server_count(s->http, &http);
    metrics_print(s->metrics, names, s->models.n, &http, &text);
    http_reply_send(reply, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
    strbuf_free(&text);
    free(names);
}

/* What the page must be sent with is said in page.h. */
static void get_page(void *ctx, const http_request *rq, http_reply *reply) {
    (void)ctx, (void)rq;
    http_reply_header(reply, "Content-Security-Policy", chat_page_csp);
    http_reply_header(reply, "X-Content-Type-Options", "nosniff");
    http_reply_header(reply, "Referrer-Policy", "no-referrer");
    http_reply_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
    http_reply_header(reply, "Cache-Control", "no-cache");
    http_reply_send(reply, 200, "text/html; charset=utf-8", chat_page, chat_page_bytes);
}

/* ---- routes that read a body ---- */

/* A client that hung up while its request lay on the desk costs no more work. */
static bool skip(http_reply *reply) {
    if (!http_reply_gone(reply)) return false;
    http_reply_send(reply, 499, "application/json", "",
                    0); /* nobody reads it; logs know the number */
    return true;
}

#define AT_DESK(name, COUNT)                                                                       \
    static void work_##name(void *ctx, const http_request *rq, http_reply *reply) {                \
        if (skip(reply))                                                                           \
            COUNT;                                                                                 \
        else                                                                                       \
            api_##name(ctx, rq, reply);                                                            \
    }                                                                                              \
    static void desk_##name(void *ctx, const http_request *rq, http_reply *reply) {                \
        desk_put(((server *)ctx)->desk, work_##name, ctx, rq, reply);                              \
    }
AT_DESK(completions, metrics_add_answer(((server *)ctx)->metrics, false, "gone", 0))
AT_DESK(chat, metrics_add_answer(((server *)ctx)->metrics, true, "gone", 0))
AT_DESK(tokenize, (void)0)
AT_DESK(detokenize, (void)0)

static void set_routes(server *s) {
    const http_route routes[] = {
        {"GET", "/", get_page, s, true, 0},
        {"GET", "/health", get_health, s, true, 0},
        {"GET", "/metrics", get_metrics, s, false, 0},
        {"GET", "/v1/models", get_models, s, false, 0},
        {"POST", "/v1/completions", desk_completions, s, false, 0},
        {"POST", "/v1/chat/completions", desk_chat, s, false, 0},
        {"POST", "/tokenize", desk_tokenize, s, false, 0},
        {"POST", "/detokenize", desk_detokenize, s, false, 0},
        {"GET", "/tokenizer_info", api_tokenizer_info, s, false, 0},
    };
    int n = ARRAY_LEN(routes), name = (int)strlen("/v1/models/");
    s->routes =
        xcalloc((size_t)(n + s->models.n + 1), sizeof *s->routes); /* an empty one ends it */
    memcpy(s->routes, routes, sizeof routes);
    for (int i = 0; i < s->models.n; i++)
        s->routes[n + i] = (http_route){"GET", s->models.item[i].route, get_model, s, false, name};
}

const http_route *serve_routes(const server *s) {
    return s->routes;
}

/* ---- the server ---- */

status serve_open(server **out, const serve_options *opt, err *e) {
    server *s = xcalloc(1, sizeof *s);
    *out = s;
    TRY(served_open_all(&s->models, opt, e));
    int streams = 0;
    for (int i = 0; i < s->models.n; i++) streams += s->models.item[i].model.serve.seqs;
    s->most_texts = streams + (opt->waiting ? opt->waiting : DEFAULT_WAITING);
    s->metrics = metrics_new();
    set_routes(s);
    return ST_OK;
}

status serve_start(server *s, const http_server *http, err *e) {
    s->http = http;
    TRY(worker_start(&s->worker, &s->models, s->metrics, s->most_texts, e));
    return desk_open(&s->desk, DESK_THREADS, e);
}

void serve_describe(const server *s, strbuf *out) {
    for (int i = 0; i < s->models.n; i++) {
        const served *m = &s->models.item[i];
        const engine_size *z = &m->model.serve;
        strbuf_printf(out, "%s: %d text%s at a time of up to %d tokens, a cache of %ld tokens%s\n",
                      m->name, z->seqs, text_s(z->seqs), z->longest, (long)z->page * (z->pages - 1),
                      m->template ? "" : "; no chat template, so it continues texts only");
    }
}

/* The desk first: what is on it goes to the worker. */
void serve_close(server *s) {
    if (!s) return;
    desk_close(s->desk);
    worker_stop(s->worker);
    metrics_free(s->metrics);
    served_close_all(&s->models);
    free(s->routes);
    free(s);
}
