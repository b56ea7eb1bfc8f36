/* A whole server in a thread of the test, over a tiny model of characters (and, if there are two, an adapter of it), and
 * a client that posts JSON
 * and reads what comes. */
#ifndef TESTS_SERVE_API_TEST_H
#define TESTS_SERVE_API_TEST_H

#include "test.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "serve/serve.h"
#include "tok/tok.h"

enum { HOUSE_CTX = 200 };
#define ADAPTER TEST_DIR "/golden/lora/llama"

/* A template with the calls of Hermes and thoughts. */
#define HOUSE_TEMPLATE                                                                             \
    "{% if tools %}T:{% for t in tools %}{{ t.function.name }};{% endfor %}{% endif %}"            \
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% if m.tool_calls %}"                  \
    "<tool_call>{{ m.tool_calls[0].function.arguments.a }}</tool_call>{% endif %}"                 \
    "{{ '<end>' if m.role == 'assistant' }};{% endfor %}{{ mood }}"                                \
    "{% if add_generation_prompt %}a:{% endif %}"

typedef struct house {
    char dir[64], path[96];
    bool drafts; /* given: the model tries tokens for itself */
    server *server;
    http_server *http;
    pthread_t thread;
} house;

static inline void write_text(const char *dir, const char *name, const char *text, size_t len) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void make_tokenizer(const char *dir) {
    static const char *const special[] = {"<end>"};
    tok_train_options opt = {.kind = TOK_CHAR, .special = special, .n_special = 1};
    char all[96];
    tok_trainer *tr;
    tok *t;
    err e;
    for (int i = 0; i < 95; i++) all[i] = (char)(32 + i);
    all[95] = '\n';
    assert_int_equal(tok_trainer_new(&tr, &opt, &e), ST_OK);
    assert_int_equal(tok_trainer_add(tr, all, 96, &e), ST_OK);
    assert_int_equal(tok_trainer_finish(tr, &t, &e), ST_OK);
    assert_int_equal(tok_save_dir(t, dir, 256, &e), ST_OK);
    tok_free(t);
    tok_trainer_free(tr);
}

/* A model folder: random weights, 96 characters and <end>. template NULL: a base model. */
static inline void make_model(const char *dir, const char *template) {
    const char *from = TEST_DIR "/golden/models/llama-gqa-tied";
    char *data, path[160];
    size_t len;
    err e;
    snprintf(path, sizeof path, "%s/config.json", from);
    json_t *config = NULL;
    assert_int_equal(json_read_file(&config, path, 1 << 20, &e), ST_OK);
    json_object_set_new(config, "max_position_embeddings", json_integer(256));
    char *text = json_dumps(config, 0);
    write_text(dir, "config.json", text, strlen(text));
    free(text);
    json_decref(config);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    assert_int_equal(file_read_all(path, &data, &len, &e), ST_OK);
    write_text(dir, "model.safetensors", data, len);
    free(data);
    make_tokenizer(dir);
    if (template) write_text(dir, "chat_template.jinja", template, strlen(template));
}

static inline void *house_run(void *arg) {
    err e;
    assert_int_equal(http_server_run(arg, &e), ST_OK);
    return NULL;
}

static inline void house_begin_with(house *h, const char *template, serve_options opt) {
    err e = {0};
    snprintf(h->dir, sizeof h->dir, "/tmp/athanor-serve-XXXXXX");
    assert_non_null(mkdtemp(h->dir));
    snprintf(h->path, sizeof h->path, "%s/tiny", h->dir);
    assert_int_equal(mkdir(h->path, 0700), 0);
    make_model(h->path, template);
    serve_model models[] = {{.path = h->path}, {.name = "other", .path = ADAPTER, .base = h->path}};
    if (h->drafts) models[0].draft = h->path;
    opt.models = models;
    if (!opt.n_models) opt.n_models = 1;
    if (!opt.ctx) opt.ctx = HOUSE_CTX;
    if (!opt.threads) opt.threads = 1;
    if (serve_open(&h->server, &opt, &e) != ST_OK) fail_msg("%s", e.message);
    http_options http = {0};
    assert_int_equal(http_server_open(&h->http, &http, serve_routes(h->server), &e), ST_OK);
    assert_int_equal(serve_start(h->server, h->http, &e), ST_OK);
    assert_int_equal(pthread_create(&h->thread, NULL, house_run, h->http), 0);
}

static inline void house_begin(house *h, const char *template) {
    house_begin_with(h, template, (serve_options){0});
}

static inline void house_end(house *h) {
    char command[128];
    http_server_stop(h->http);
    pthread_join(h->thread, NULL);
    serve_close(h->server);
    http_server_close(h->http);
    snprintf(command, sizeof command, "rm -rf %s", h->dir);
    assert_int_equal(system(command), 0);
}

/* ---- the client ---- */

/* A connection on which the request has been sent; body NULL: a GET. */
static inline int house_ask(const house *h, const char *path, const char *body) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(h->http))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    strbuf rq = {0};
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    strbuf_printf(&rq, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                  body ? "POST" : "GET", path);
    if (body) strbuf_printf(&rq, "Content-Length: %zu\r\n", strlen(body));
    strbuf_printf(&rq, "\r\n%s", body ? body : "");
    assert_int_equal(send(fd, rq.data, rq.len, MSG_NOSIGNAL), rq.len);
    strbuf_free(&rq);
    return fd;
}

/* Chunks of a body to the body. */
static inline void join_chunks(strbuf *b) {
    size_t from = 0, to = 0;
    for (;;) {
        char *end;
        size_t n = strtoul(b->data + from, &end, 16);
        if (n == 0) break;
        from = (size_t)(end - b->data) + 2;
        memmove(b->data + to, b->data + from, n);
        to += n;
        from += n + 2;
    }
    strbuf_truncate(b, to);
}

/* The status and, in `body`, all that follows the headers. */
static inline int house_read(int fd, strbuf *body) {
    char piece[4096];
    int code = 0;
    strbuf_clear(body);
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) > 0;)
        strbuf_append(body, piece, (size_t)n);
    close(fd);
    char *head = strbuf_cstr(body) ? strstr(body->data, "\r\n\r\n") : NULL;
    assert_non_null(head);
    assert_int_equal(sscanf(body->data, "HTTP/1.1 %d", &code), 1);
    *head = '\0';
    bool chunked = strstr(body->data, "chunked");
    size_t skip = (size_t)(head + 4 - body->data);
    memmove(body->data, body->data + skip, body->len - skip);
    strbuf_truncate(body, body->len - skip);
    if (chunked) join_chunks(body);
    return code;
}

static inline int house_send(const house *h, const char *path, const char *body, strbuf *out) {
    return house_read(house_ask(h, path, body), out);
}

/* The JSON of an answer; the caller frees it. Quotes of `body` may be written as '. */
static inline json_t *house_json(const house *h, const char *path, const char *body, int want) {
    strbuf out = {0};
    char *copy = body ? strdup(body) : NULL;
    for (char *c = copy; c && *c; c++)
        if (*c == '\'') *c = '"';
    int code = house_send(h, path, copy, &out);
    json_t *o = json_loadb(strbuf_cstr(&out), out.len, JSON_DECODE_ANY, NULL);
    if (code != want || !o)
        fail_msg("%s %s\n-> %d %s", path, body ? body : "", code, strbuf_cstr(&out));
    free(copy);
    strbuf_free(&out);
    return o;
}

/* A place in JSON: "choices.0.text". */
static inline json_t *at(const json_t *o, const char *place) {
    char part[64];
    while (o && *place) {
        size_t n = strcspn(place, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, place);
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(part)) : json_object_get(o, part);
        place += n + (place[n] == '.');
    }
    return (json_t *)o;
}

static inline const char *text_at(const json_t *o, const char *place) {
    const char *s = json_string_value(at(o, place));
    if (!s) fail_msg("no text at %s", place);
    return s;
}

static inline long int_at(const json_t *o, const char *place) {
    if (!json_is_integer(at(o, place))) fail_msg("no integer at %s", place);
    return (long)json_integer_value(at(o, place));
}

/* A line of /metrics. */
static inline long metric(const house *h, const char *name) {
    strbuf out = {0};
    assert_int_equal(house_send(h, "/metrics", NULL, &out), 200);
    strbuf line = {0};
    strbuf_printf(&line, "\n%s ", name);
    const char *found = strstr(strbuf_cstr(&out), line.data);
    if (!found) fail_msg("no %s in %s", name, out.data);
    long value = strtol(found + line.len, NULL, 10);
    strbuf_free(&line);
    strbuf_free(&out);
    return value;
}

#endif
