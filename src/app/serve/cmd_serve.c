/* athanor serve: a model answers over HTTP, in the forms of OpenAI's API. Options become those of the
 * server (serve/serve.h) and of its HTTP side (serve/http/http.h); memory is planned before anything
 * listens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "app/serve/serve_plan.h"
#include "app/serve/stopper.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "serve/serve.h"

enum { DEFAULT_PORT = 8080, MOST_KEYS = 1000, KEY_FILE_MAX_BYTES = 1 << 20 };

/* ---- who may ask ---- */

static status add_key(const char **keys, int *n, const char *key, err *e) {
    if (*n == MOST_KEYS) return err_set(e, ST_USAGE, "there are more than %d API keys", MOST_KEYS);
    keys[(*n)++] = key;
    return ST_OK;
}

/* A key a line; empty lines and those that begin with # are none. White space at the end is none of a key:
 * a header cannot end with it. */
static status read_key_file(arena *a, const char *path, const char **keys, int *n, err *e) {
    char *data;
    size_t len;
    TRY(file_read_input(path, KEY_FILE_MAX_BYTES, &data, &len, e));
    char *text = arena_strndup(a, data, len), *rest = NULL;
    free(data);
    int before = *n;
    status st = ST_OK;
    for (char *line = strtok_r(text, "\r\n", &rest); line && st == ST_OK;
         line = strtok_r(NULL, "\r\n", &rest)) {
        size_t end = strlen(line);
        while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t')) line[--end] = 0;
        if (end > 0 && *line != '#') st = add_key(keys, n, line, e);
    }
    if (st == ST_OK && *n == before)
        return err_at(e, ST_USAGE, path, "there is no API key in %s", path);
    return st;
}

static status read_keys(const cli_args *args, arena *a, http_options *o, err *e) {
    const char **keys = ARENA_ARRAY(a, const char *, MOST_KEYS);
    const char *given[] = {cli_value(args, "api-key"), getenv("ATHANOR_API_KEY")};
    int n = 0;
    for (int i = 0; i < ARRAY_LEN(given); i++)
        if (given[i]) TRY(add_key(keys, &n, given[i], e));
    if (cli_has(args, "api-key-file"))
        TRY(read_key_file(a, cli_value(args, "api-key-file"), keys, &n, e));
    o->keys = keys;
    o->n_keys = n;
    return ST_OK;
}

static void log_request(void *unused, const http_log_line *line) {
    char when[16];
    time_t now = time(NULL);
    struct tm tm;
    (void)unused;
    strftime(when, sizeof when, "%H:%M:%S", localtime_r(&now, &tm));
    log_info("%s %s %s %d%s%s %.0f ms%s", when, line->method, line->path, line->status,
             *line->note ? " " : "", line->note, line->ms, line->cut ? ", cut off" : "");
}

static status read_http_options(const cli_args *args, arena *a, http_options *o, err *e) {
    int64_t port;
    TRY(cli_int(args, "port", DEFAULT_PORT, 0, 65535, &port, e));
    o->port = (int)port;
    o->host = cli_value(args, "host");
    if (cli_has(args, "allow-host"))
        o->allow_hosts = cli_split_tokens(a, cli_value(args, "allow-host"), &o->n_allow_hosts);
    if (cli_has(args, "allow-origin"))
        o->allow_origins =
            cli_split_tokens(a, cli_value(args, "allow-origin"), &o->n_allow_origins);
    o->log = cli_has(args, "quiet") ? NULL : log_request;
    return read_keys(args, a, o, e);
}

/* ---- what answers ---- */

/* MODEL, then each NAME=PATH of --model. */
static status read_models(const cli_args *args, arena *a, serve_options *o, err *e) {
    int n = 0;
    const char *given = cli_value(args, "model");
    const char **further = given ? cli_split_tokens(a, given, &n) : NULL;
    serve_model *models = ARENA_ARRAY(a, serve_model, n + 1);
    models[0] = (serve_model){.name = cli_value(args, "name"),
                              .path = args->inputs[0],
                              .base = cli_value(args, "base"),
                              .draft = cli_value(args, "draft"),
                              .template = cli_value(args, "template")};
    for (int i = 0; i < n; i++) {
        const char *is = strchr(further[i], '=');
        if (!is || is == further[i] || !is[1]) {
            err_at(e, ST_USAGE, "--model", "'%s' is not NAME=PATH", further[i]);
            return err_hint(e, "for example: --model poet=runs/poet");
        }
        models[i + 1] =
            (serve_model){.name = arena_strndup(a, further[i], (size_t)(is - further[i])),
                          .path = arena_strdup(a, is + 1)};
    }
    o->models = models;
    o->n_models = n + 1;
    return ST_OK;
}

static status read_serve_options(const cli_args *args, arena *a, serve_options *o, err *e) {
    int64_t ctx, streams, waiting;
    TRY(cli_int(args, "ctx", 0, 16, INT32_MAX, &ctx, e));
    TRY(cli_int(args, "streams", 0, 1, 256, &streams, e));
    TRY(cli_int(args, "waiting", 0, 1, 1000000, &waiting, e));
    TRY(cli_threads(args, &o->threads, e));
    TRY(cli_int(args, "memory", 0, 1 << 20, (int64_t)1 << 50, &o->cache_bytes, e));
    o->ctx = (int)ctx;
    o->streams = (int)streams;
    o->waiting = (int)waiting;
    o->cache = cli_value(args, "cache");
    o->precision = cli_value(args, "precision");
    o->device = cli_value(args, "device");
    return read_models(args, a, o, e);
}

/* ---- the command ---- */

static void announce(const cli_args *args, const server *s, const http_server *http,
                     const http_options *o) {
    strbuf text = {0};
    serve_describe(s, &text);
    if (args->json)
        cli_print_json(json_pack("{s:s, s:s}", "event", "listening", "url", http_server_url(http)));
    else
        printf("%s%s for browsers, %s/v1 for programs%s; Ctrl-C ends it\n", strbuf_cstr(&text),
               http_server_url(http), http_server_url(http), o->n_keys ? ", with an API key" : "");
    fflush(stdout);
    strbuf_free(&text);
}

static status answer(const cli_args *args, server *s, http_server *http, const http_options *o,
                     stopper *signals, err *e) {
    TRY(serve_start(s, http, e));
    announce(args, s, http, o);
    stopper_serve(signals, http);
    return http_server_run(http, e);
}

static status serve(const cli_args *args, const serve_options *so, const http_options *ho, err *e) {
    server *s = NULL;
    http_server *http = NULL;
    stopper signals;
    TRY(stopper_begin(&signals, e));
    status st = serve_open(&s, so, e);
    if (st == ST_MEMORY) err_hint(e, "choose a shorter --ctx, fewer --streams or less --memory");
    if (st == ST_OK) st = http_server_open(&http, ho, serve_routes(s), e);
    if (st == ST_OK) st = answer(args, s, http, ho, &signals, e);
    stopper_end(&signals);
    serve_close(s);
    http_server_close(http);
    return st;
}

static status serve_models(const cli_args *args, arena *a, const http_options *ho, err *e) {
    serve_options so = {0};
    if (!args->n_inputs) {
        err_set(e, ST_USAGE, "'athanor serve' needs an input");
        return err_hint(e, "a model, or --plan for the planner alone");
    }
    TRY(read_serve_options(args, a, &so, e));
    return serve(args, &so, ho, e);
}

static status cmd_serve(const cli_args *args, err *e) {
    arena *a = arena_new("serve");
    http_options ho = {0};
    bool plans = cli_has(args, "plan") || cli_has(args, "plan-page");
    status st = read_http_options(args, a, &ho, e);
    if (st == ST_OK) st = plans ? serve_plan(args, &ho, e) : serve_models(args, a, &ho, e);
    arena_free(a);
    return st;
}

static const cli_option options[] = {
    {"port", "N", "listen on this port; 0 takes a free one (8080)"},
    {"host", "ADDRESS", "listen on this address; one that others reach needs a key (127.0.0.1)"},
    {"api-key", "KEY", "what clients must give; ATHANOR_API_KEY is another, seen by fewer"},
    {"api-key-file", "FILE", "the same, one a line"},
    {"allow-host", "NAME,NAME", "further names by which clients call this server"},
    {"allow-origin", "URL,URL", "sites whose pages may ask, as https://example.org"},
    {"name", "NAME", "what requests call MODEL (the last part of its path)"},
    {"model", "NAME=PATH,...", "a further model, or an adapter"},
    {"base", "FOLDER", "of MODEL, if it is an adapter (where the adapter says)"},
    {"template", "FILE", "of MODEL's chats (its own)"},
    {"draft", "WORD|MODEL",
     "what tries tokens of MODEL's texts in advance: auto, mtp, ngram, none, or a smaller model "
     "(auto)"},
    {"ctx", "N", "tokens of a text at most, prompt and answer (the model's, at most 8192)"},
    {"streams", "N", "texts at a time, of each model (16)"},
    {"waiting", "N", "texts that may wait for their turn; more are told to come again (1024)"},
    {"memory", "BYTES", "of each model's cache, as 2Gi (a quarter of what is free, for all)"},
    {"cache", "auto|f32|f16", "what keys and values are kept in (auto: f16 for quantised weights)"},
    {"precision", "auto|fp32|bf16", "in which numbers to compute (auto: as the weights)"},
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    {"plan", NULL, "no model, but the planner as a page (`make web` builds it)"},
    {"plan-page", "FILE", "the same, with this page"},
    {"quiet", NULL, "no line for each request"},
    {0}};

#define NO_MODEL "the planner's page has no model: leave it out, or give a MODEL and no --plan"
#define OF_MODELS                                                                                  \
    "model|base|name|template|draft|ctx|streams|waiting|memory|cache|precision|threads"
static const cli_rule rules[] = {{"plan", CLI_EXCLUDES, OF_MODELS, NO_MODEL},
                                 {"plan-page", CLI_EXCLUDES, OF_MODELS, NO_MODEL},
                                 {0}};

const cli_command command_serve = {
    .name = "serve",
    .summary = "answer programs and browsers, as OpenAI's API does",
    .usage = "MODEL|--plan [--port N] [--host ADDRESS] [--api-key KEY] [--option value]",
    .run = cmd_serve,
    .max_inputs = 1,
    .options = options,
    .rules = rules};
