/* athanor serve --plan: the planner for browsers, one page that asks nothing more of its server (web/). */
#ifndef APP_SERVE_PLAN_H
#define APP_SERVE_PLAN_H

#include "app/frame/cli.h"
#include "serve/http/http.h"

/* The page is --plan-page FILE, or plan.html beside the program or in a folder `web` there, where `make web` puts it. */
status serve_plan(const cli_args *args, const http_options *o, err *e) ATH_MUST_USE;

#endif
