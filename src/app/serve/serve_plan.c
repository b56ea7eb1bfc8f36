#include "app/serve/serve_plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/serve/stopper.h"
#include "base/file.h"
#include "base/json.h"

enum { PAGE_MAX_BYTES = 16 << 20 };

/* The page names its own scripts by their SHA-256 in a policy of its own; both policies hold. */
static const char POLICY[] =
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; "
    "worker-src blob:; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

typedef struct plan_page {
    char *data;
    size_t len;
} plan_page;

static void get_page(void *ctx, const http_request *rq, http_reply *reply) {
    const plan_page *page = ctx;
    (void)rq;
    http_reply_header(reply, "Content-Security-Policy", POLICY);
    http_reply_header(reply, "X-Content-Type-Options", "nosniff");
    http_reply_header(reply, "Referrer-Policy", "no-referrer");
    http_reply_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
    http_reply_header(reply, "Cache-Control", "no-cache");
    http_reply_send(reply, 200, "text/html; charset=utf-8", page->data, page->len);
}

/* Where the page lies; false: nowhere. */
static bool find_beside(char *path, size_t bytes) {
    static const char *const places[] = {"plan.html", "web/plan.html"};
    char *self = realpath("/proc/self/exe", NULL), *slash = self ? strrchr(self, '/') : NULL;
    bool found = false;
    for (int i = 0; slash && !found && i < ARRAY_LEN(places); i++) {
        snprintf(path, bytes, "%.*s/%s", (int)(slash - self), self, places[i]);
        found = file_exists(path);
    }
    free(self);
    return found;
}

static status read_page(const cli_args *args, plan_page *page, err *e) {
    char beside[PATH_MAX + 32];
    const char *path = cli_value(args, "plan-page");
    if (!path && find_beside(beside, sizeof beside)) path = beside;
    if (path) return file_read_input(path, PAGE_MAX_BYTES, &page->data, &page->len, e);
    err_set(e, ST_USAGE, "the planner's page is not beside the program");
    return err_hint(e, "`make web` builds it as build/web/plan.html; --plan-page FILE names it");
}

static status answer(const cli_args *args, const http_options *o, plan_page *page,
                     http_server **http, stopper *signals, err *e) {
    const http_route routes[] = {{"GET", "/", get_page, page, true, 0}, {0}};
    TRY(http_server_open(http, o, routes, e));
    if (args->json)
        cli_print_json(
            json_pack("{s:s, s:s}", "event", "listening", "url", http_server_url(*http)));
    else
        printf("%s is the planner; Ctrl-C ends it\n", http_server_url(*http));
    fflush(stdout);
    stopper_serve(signals, *http);
    return http_server_run(*http, e);
}

status serve_plan(const cli_args *args, const http_options *o, err *e) {
    plan_page page = {0};
    http_server *http = NULL;
    stopper signals;
    if (args->n_inputs) {
        err_set(e, ST_USAGE, "--plan serves the planner and no model (%s)", args->inputs[0]);
        return err_hint(e, "start a server for each: athanor serve MODEL, athanor serve --plan");
    }
    status st = read_page(args, &page, e);
    if (st == ST_OK) st = stopper_begin(&signals, e);
    if (st == ST_OK) {
        st = answer(args, o, &page, &http, &signals, e);
        stopper_end(&signals);
    }
    http_server_close(http);
    free(page.data);
    return st;
}
