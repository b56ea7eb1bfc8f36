/* athanor bench serve: how fast a server answers, how soon, and whether rightly, under a load.
 *
 * A load is so many clients at a time, or requests at a rate; each is measured in rounds, and in every round the
 * peer, if there is one, gets the same requests, first and second in turns. A round has requests of its own, so that no
 * server knows its prompts from the round before. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/bench/bench_row.h"
#include "app/bench/serve_load.h"
#include "app/frame/child.h"
#include "app/frame/progress.h"
#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sort.h"
#include "base/text.h"

enum { MOST_LOADS = 16, MOST_ROUNDS = 101, WARM_UP = 2 };

/* ---- what is measured ---- */

enum {
    M_TOK,
    M_REQ,
    M_FIRST,
    M_TOKEN = M_FIRST + 3,
    M_GAP = M_TOKEN + 3,
    M_WHOLE = M_GAP + 3,
    M_PROMPT = M_WHOLE + 3,
    METRICS
};

static const struct {
    const char *name, *unit;
} metrics[METRICS] = {
    {"tok_per_s", "tok/s"}, {"req_per_s", "1/s"}, {"first_p50", "ms"},   {"first_p90", "ms"},
    {"first_p99", "ms"},    {"token_p50", "ms"},  {"token_p90", "ms"},   {"token_p99", "ms"},
    {"gap_p50", "ms"},      {"gap_p90", "ms"},    {"gap_p99", "ms"},     {"whole_p50", "ms"},
    {"whole_p90", "ms"},    {"whole_p99", "ms"},  {"prompt_tok", "tok"},
};

static const char *const end_names[LOAD_ENDS] = {
    "not_asked", "answered", "given_up", "turned_away", "unreachable", "cut", "wrong"};

static void put_quantiles(double *out, load_times *t) {
    static const double q[] = {0.5, 0.9, 0.99};
    for (int i = 0; i < ARRAY_LEN(q); i++) out[i] = 1e3 * load_quantile(t, q[i]);
}

static void summarize(load_result *r, double out[METRICS]) {
    double streams = (double)(r->whole.n ? r->whole.n : 1);
    out[M_TOK] = (double)r->new_tok / r->seconds;
    out[M_REQ] = (double)r->whole.n / r->seconds;
    put_quantiles(out + M_FIRST, &r->first);
    put_quantiles(out + M_TOKEN, &r->token);
    put_quantiles(out + M_GAP, &r->gap);
    put_quantiles(out + M_WHOLE, &r->whole);
    out[M_PROMPT] = (double)r->prompt_tok / streams;
}

/* One load on one server. */
typedef struct measured {
    double rounds[METRICS][MOST_ROUNDS];
    int64_t ends[LOAD_ENDS];
} measured;

typedef struct serve_bench {
    const cli_args *args;
    arena *a;
    load_wish wish;
    load_server server[2]; /* the second is the peer */
    int n_servers;
    child *own; /* that this command has started; NULL: there was one */
    double loads[MOST_LOADS];
    int n_loads;
    bool by_rate; /* loads are requests a second, else clients */
    int64_t requests, n_rounds;
    measured *m[2]; /* [n_loads] */
    int64_t next, differ;
    char why[256]; /* the first failure */
} serve_bench;

/* ---- rounds ---- */

/* Asks the same one at a time: what an answer is alone. An answer that was given up is its beginning. */
static void check_alone(serve_bench *b, const load_round *round, const load_result *r) {
    load_wish calm = b->wish;
    load_round alone = {.first = round->first, .n = round->n, .clients = 1};
    load_result want;
    calm.cancel = calm.malformed = 0;
    load_run(&calm, &b->server[0], &alone, &want);
    for (int64_t i = 0; i < round->n; i++) {
        const load_answer *got = &r->answers[i], *should = &want.answers[i];
        bool given_up = got->end == LOAD_GIVEN_UP;
        if (load_kind_of(&b->wish, round->first + i) == LOAD_MALFORMED) continue;
        if (!given_up && got->end != LOAD_DONE) continue;
        bool same = should->end == LOAD_DONE && got->text.len <= should->text.len &&
                    (given_up || got->text.len == should->text.len) &&
                    memcmp(strbuf_cstr(&got->text), strbuf_cstr(&should->text), got->text.len) == 0;
        if (same) continue;
        b->differ++;
        if (!*b->why)
            snprintf(b->why, sizeof b->why, "request %ld has another answer alone",
                     (long)(round->first + i));
    }
    load_result_free(&want, round->n);
}

static int64_t requests_of(const serve_bench *b, double load) {
    if (b->requests) return b->requests;
    return b->by_rate ? 64 : load < 4 ? 16 : 4 * (int64_t)load;
}

static load_round round_of(serve_bench *b, double load) {
    load_round round = {.first = b->next, .n = requests_of(b, load)};
    if (b->by_rate)
        round.rate = load;
    else
        round.clients = (int64_t)load;
    b->next += round.n;
    return round;
}

static void run_round(serve_bench *b, int load, int number) {
    load_round round = round_of(b, b->loads[load]);
    for (int k = 0; k < b->n_servers; k++) {
        int i = b->n_servers == 2 ? (k + number) % 2 : 0;
        measured *m = &b->m[i][load];
        double values[METRICS];
        load_result r;
        load_run(&b->wish, &b->server[i], &round, &r);
        summarize(&r, values);
        for (int j = 0; j < METRICS; j++) m->rounds[j][number] = values[j];
        for (int j = 0; j < LOAD_ENDS; j++) m->ends[j] += r.ends[j];
        if (*r.why && !*b->why) snprintf(b->why, sizeof b->why, "%s", r.why);
        if (i == 0 && cli_has(b->args, "check")) check_alone(b, &round, &r);
        load_result_free(&r, round.n);
    }
}

static void warm_up(serve_bench *b) {
    load_wish calm = b->wish;
    load_round few = {.first = b->next, .n = WARM_UP, .clients = 1};
    load_result r;
    calm.cancel = calm.malformed = 0;
    for (int i = 0; i < b->n_servers; i++) {
        load_run(&calm, &b->server[i], &few, &r);
        load_result_free(&r, few.n);
    }
    b->next += few.n;
}

static void run_rounds(serve_bench *b) {
    bool live = progress_is_live(stderr);
    warm_up(b);
    for (int load = 0; load < b->n_loads; load++)
        for (int i = 0; i < b->n_rounds; i++) {
            if (live) {
                fprintf(stderr, "%g %s, round %d of %ld\r", b->loads[load],
                        b->by_rate ? "requests a second" : "clients", i + 1, (long)b->n_rounds);
                fflush(stderr);
            }
            run_round(b, load, i);
        }
    if (live) fprintf(stderr, "%60s\r", "");
}

/* ---- the report ---- */

static double median_of(const serve_bench *b, int server, int load, int metric) {
    double v[MOST_ROUNDS];
    memcpy(v, b->m[server][load].rounds[metric], sizeof v);
    return sort_median(v, (int)b->n_rounds);
}

/* Of the rounds' ratios, since each round has its own machine noise. NaN: one of the two measured nothing. */
static double ratio_of(const serve_bench *b, int load, int metric) {
    double v[MOST_ROUNDS];
    for (int i = 0; i < b->n_rounds; i++) {
        double peer = b->m[1][load].rounds[metric][i];
        if (peer <= 0) return NAN;
        v[i] = b->m[0][load].rounds[metric][i] / peer;
    }
    return sort_median(v, (int)b->n_rounds);
}

static void name_load(const serve_bench *b, int load, char out[64]) {
    double n = b->loads[load];
    snprintf(out, 64, b->by_rate ? "%g/s" : n == 1 ? "%g client" : "%g clients", n);
}

static void print_line(const char *who, const char *load, const double v[METRICS]) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", who, load);
    printf("%-18s %9.1f %8.2f", name, v[M_TOK], v[M_REQ]);
    for (int i = M_FIRST; i < M_GAP; i++) printf(" %8.1f", v[i]);
    printf(" %9.0f %9.0f\n", v[M_GAP + 2], v[M_WHOLE]);
}

static void print_ratio(const char *load, const double v[METRICS]) {
    char name[96];
    snprintf(name, sizeof name, "ratio, %s", load);
    printf("%-18s %9.2f %8.2f", name, v[M_TOK], v[M_REQ]);
    for (int i = M_FIRST; i < M_GAP; i++) printf(" %8.2f", v[i]);
    printf(" %9.2f %9.2f\n", v[M_GAP + 2], v[M_WHOLE]);
}

static void print_ends(const serve_bench *b) {
    for (int i = 0; i < b->n_servers; i++)
        for (int load = 0; load < b->n_loads; load++) {
            const int64_t *n = b->m[i][load].ends;
            char name[64];
            name_load(b, load, name);
            printf("%s%s:", i ? "peer, " : "", name);
            for (int j = LOAD_DONE; j < LOAD_ENDS; j++)
                if (n[j] || j == LOAD_DONE) printf(" %ld %s", (long)n[j], end_names[j]);
            printf("\n");
        }
    if (cli_has(b->args, "check"))
        printf("%ld answer%s from those given alone\n", (long)b->differ,
               b->differ == 1 ? " differs" : "s differ");
}

static void print_range(load_range r, const char *unit) {
    if (r.lo == r.hi)
        printf("%ld %s%s", (long)r.lo, unit, text_s(r.lo));
    else
        printf("%ld to %ld %ss", (long)r.lo, (long)r.hi, unit);
}

static void print_head(const serve_bench *b) {
    for (int i = 0; i < b->n_servers; i++)
        printf("%s%s%s%s\n", i ? "peer: " : "", b->server[i].place.host,
               b->server[i].model ? ", model " : "", b->server[i].model ? b->server[i].model : "");
    printf("prompts of ");
    if (b->wish.prompts)
        printf("%zu text%s", json_array_size(b->wish.prompts),
               text_s((int64_t)json_array_size(b->wish.prompts)));
    else
        print_range(b->wish.words, "word");
    printf(" (%.0f tokens), answers of ", median_of(b, 0, 0, M_PROMPT));
    print_range(b->wish.news, "token");
    printf("%s; medians of %ld round%s\n\n", b->wish.until_end ? " at most" : "", (long)b->n_rounds,
           text_s(b->n_rounds));
    printf("%-18s %9s %8s %26s %26s %9s %9s\n", "", "", "", "first token, ms", "a token, ms",
           "gap, ms", "whole, ms");
    printf("%-18s %9s %8s %8s %8s %8s %8s %8s %8s %9s %9s\n", "", "tok/s", "req/s", "p50", "p90",
           "p99", "p50", "p90", "p99", "p99", "p50");
}

static void print_table(const serve_bench *b) {
    double v[METRICS];
    char name[64];
    print_head(b);
    for (int i = 0; i < b->n_servers; i++)
        for (int load = 0; load < b->n_loads; load++) {
            for (int j = 0; j < METRICS; j++) v[j] = median_of(b, i, load, j);
            name_load(b, load, name);
            print_line(i ? "peer, " : "", name, v);
        }
    for (int load = 0; b->n_servers == 2 && load < b->n_loads; load++) {
        for (int j = 0; j < METRICS; j++) v[j] = ratio_of(b, load, j);
        name_load(b, load, name);
        print_ratio(name, v);
    }
    printf("\n");
    print_ends(b);
    if (*b->why) printf("%s\n", b->why);
}

static void put_load(const serve_bench *b, json_t *rows, int load) {
    char name[64], row[160];
    name_load(b, load, name);
    for (int i = 0; i < b->n_servers; i++) {
        for (int j = 0; j < METRICS; j++) {
            snprintf(row, sizeof row, "%s%s: %s", i ? "peer, " : "", name, metrics[j].name);
            bench_put_row(rows, row, median_of(b, i, load, j), metrics[j].unit);
        }
        for (int j = LOAD_DONE; j < LOAD_ENDS; j++) {
            snprintf(row, sizeof row, "%s%s: %s", i ? "peer, " : "", name, end_names[j]);
            bench_put_row(rows, row, (double)b->m[i][load].ends[j], "requests");
        }
    }
    for (int j = 0; b->n_servers == 2 && j < METRICS; j++) {
        snprintf(row, sizeof row, "ratio, %s: %s", name, metrics[j].name);
        bench_put_row(rows, row, ratio_of(b, load, j), "1");
    }
}

static void print_json(const serve_bench *b) {
    json_t *o = json_object(), *rows = json_array();
    json_object_set_new(o, "server", json_cstr(b->server[0].place.host));
    json_object_set_new(o, "model", json_cstr(b->server[0].model));
    if (b->n_servers == 2) json_object_set_new(o, "peer", json_cstr(b->server[1].place.host));
    json_object_set_new(o, "rounds", json_integer(b->n_rounds));
    for (int load = 0; load < b->n_loads; load++) put_load(b, rows, load);
    if (cli_has(b->args, "check")) bench_put_row(rows, "differ", (double)b->differ, "answers");
    if (*b->why) json_object_set_new(o, "failure", json_cstr(b->why));
    json_object_set_new(o, "rows", rows);
    cli_print_json(o);
}

/* Failures were shown with the results: the status says that there are some. Those of the peer are its own. */
static status report(const serve_bench *b, err *e) {
    int64_t failed = b->differ;
    if (b->args->json)
        print_json(b);
    else
        print_table(b);
    for (int load = 0; load < b->n_loads; load++)
        for (int j = LOAD_UNREACHABLE; j < LOAD_ENDS; j++) failed += b->m[0][load].ends[j];
    return failed ? err_set(e, ST_FAILED, "%s", "") : ST_OK;
}

/* ---- options ---- */

static status read_range(const cli_args *args, const char *name, int64_t fallback, int64_t least,
                         load_range *out, err *e) {
    const char *text = cli_value(args, name);
    *out = (load_range){fallback, fallback};
    if (!text) return ST_OK;
    char low[64];
    const char *colon = strchr(text, ':');
    snprintf(low, sizeof low, "%.*s", colon ? (int)(colon - text) : 60, text);
    bool fine = text_parse_int(low, &out->lo);
    out->hi = out->lo;
    if (fine && colon) fine = text_parse_int(colon + 1, &out->hi);
    if (fine && out->lo >= least && out->lo <= out->hi && out->hi <= 1 << 24) return ST_OK;
    err_set(e, ST_USAGE, "--%s is a number from %ld on, or LEAST:MOST; got '%s'", name, (long)least,
            text);
    return err_where(e, "command line (--%s)", name);
}

static status read_loads(serve_bench *b, err *e) {
    const char *option = cli_has(b->args, "rate") ? "rate" : "clients";
    const char *text = cli_value(b->args, option);
    b->by_rate = *option == 'r';
    char *words = arena_strdup(b->a, text ? text : "1,16"), *rest;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        double v;
        bool fine = b->n_loads < MOST_LOADS && text_parse_number(word, &v) && v > 0 &&
                    (b->by_rate ? v <= 1e6 : v <= 4096 && v == floor(v));
        if (fine) {
            b->loads[b->n_loads++] = v;
            continue;
        }
        err_set(e, ST_USAGE, "'%s' is no %s, or one too many", word,
                b->by_rate ? "number of requests a second" : "number of clients up to 4096");
        return err_where(e, "command line (--%s)", option);
    }
    return b->n_loads ? ST_OK : err_set(e, ST_USAGE, "--%s names no load", option);
}

static status read_prompt(json_t *out, char *line, bool chat, const char *path, int number,
                          err *e) {
    json_t *o = *line == '{' ? json_loads(line, 0, NULL) : NULL;
    json_t *p = json_object_get(o, "messages");
    if (!p) p = json_object_get(o, "prompt");
    bool fine = *line != '{' || json_is_string(p) || (chat && json_is_array(p));
    json_array_append_new(out, o ? json_incref(p) : json_cstr(line));
    json_decref(o);
    if (fine) return ST_OK;
    err_set(e, ST_FORMAT, "the line has no \"prompt\"%s", chat ? ", and no \"messages\"" : "");
    return err_where(e, "%s:%d", path, number);
}

/* A prompt a line: a text as it is, or an object with "prompt" or "messages". */
static status read_prompts(serve_bench *b, err *e) {
    const char *path = cli_value(b->args, "prompts");
    char *text, *rest;
    size_t len;
    int number = 0;
    status st = ST_OK;
    if (!path) return ST_OK;
    TRY(file_read_all(path, &text, &len, e));
    b->wish.prompts = json_array();
    for (char *line = strtok_r(text, "\r\n", &rest); line && st == ST_OK;
         line = strtok_r(NULL, "\r\n", &rest))
        st = read_prompt(b->wish.prompts, line, b->wish.chat, path, ++number, e);
    free(text);
    if (st != ST_OK || json_array_size(b->wish.prompts)) return st;
    return err_at(e, ST_FORMAT, path, "there is no prompt in %s", path);
}

static status read_shares(serve_bench *b, err *e) {
    load_wish *w = &b->wish;
    TRY(cli_num(b->args, "cancel", 0, 0, 1, &w->cancel, e));
    TRY(cli_num(b->args, "malformed", 0, 0, 1, &w->malformed, e));
    if (w->cancel + w->malformed <= 1) return ST_OK;
    return err_set(e, ST_USAGE, "--cancel and --malformed are more than all requests");
}

static status read_options(serve_bench *b, err *e) {
    const cli_args *args = b->args;
    load_wish *w = &b->wish;
    int64_t seed;
    w->chat = cli_has(args, "chat");
    w->until_end = cli_has(args, "until-end");
    w->key = cli_has(args, "api-key") ? cli_value(args, "api-key") : getenv("ATHANOR_API_KEY");
    TRY(read_loads(b, e));
    TRY(read_range(args, "prompt-words", 128, 1, &w->words, e));
    TRY(read_range(args, "new", 64, 1, &w->news, e));
    TRY(read_shares(b, e));
    TRY(cli_int(args, "shared-words", 0, 0, 1 << 24, &w->shared_words, e));
    TRY(cli_int(args, "requests", 0, 1, 1 << 24, &b->requests, e));
    TRY(cli_int(args, "rounds", cli_has(args, "peer") ? 3 : 1, 1, MOST_ROUNDS, &b->n_rounds, e));
    TRY(cli_int(args, "seed", 1, 0, INT64_MAX, &seed, e));
    TRY(cli_num(args, "temperature", 0, 0, 100, &w->temperature, e));
    TRY(cli_num(args, "timeout", 600, 0.001, 1e6, &w->timeout_s, e));
    w->seed = (uint64_t)seed;
    return read_prompts(b, e);
}

/* ---- the command ---- */

/* The first line of a server that begins: where it listens, or why it does not. */
static status hear_url(serve_bench *b, char **url, err *e) {
    json_t *line, *failure;
    TRY(child_read(b->own, &line, e));
    const char *at = json_string_value(json_object_get(line, "url"));
    *url = at ? arena_strdup(b->a, at) : NULL;
    failure = json_object_get(line, "error");
    if (!at) {
        const char *why = json_string_value(json_object_get(failure, "message"));
        err_set(e, ST_FAILED, "athanor serve did not begin: %s", why ? why : "it said nothing");
    }
    json_decref(line);
    return at ? ST_OK : ST_FAILED;
}

static status start_own(serve_bench *b, char **url, err *e) {
    const cli_args *args = b->args;
    const char **words = ARENA_ARRAY(b->a, const char *, args->n_inputs + 8);
    int n = 0;
    words[n++] = "athanor";
    words[n++] = "serve";
    words[n++] = args->inputs[0];
    words[n++] = "--port";
    words[n++] = "0";
    words[n++] = "--json";
    for (int i = 1; i < args->n_inputs; i++) words[n++] = args->inputs[i];
    TRY(child_start(&b->own, words, NULL, "/dev/null", e));
    return hear_url(b, url, e);
}

static status open_servers(serve_bench *b, err *e) {
    char *url = arena_strdup(b->a, b->args->inputs[0]);
    const char *peer = cli_value(b->args, "peer");
    if (!http_is_url(url)) {
        TRY(start_own(b, &url, e));
    } else if (b->args->n_inputs > 1) {
        err_set(e, ST_USAGE, "'%s' is for a server that is started here", b->args->inputs[1]);
        return err_hint(e, "give a MODEL, or leave it out");
    }
    TRY(load_server_open(&b->server[0], url, &b->wish, e));
    if (peer) TRY(load_server_open(&b->server[1], peer, &b->wish, e));
    b->n_servers = peer ? 2 : 1;
    for (int i = 0; i < b->n_servers; i++) b->m[i] = ARENA_ARRAY(b->a, measured, b->n_loads);
    return ST_OK;
}

static status end_own(serve_bench *b, status st, err *e) {
    if (!b->own) return st;
    child_signal(b->own, SIGTERM);
    int code = child_end(b->own);
    b->own = NULL;
    if (st != ST_OK || code == 0) return st;
    return err_set(e, ST_FAILED, "athanor serve ended with status %d", code);
}

static status cmd_bench_serve(const cli_args *args, err *e) {
    serve_bench b = {.args = args, .a = arena_new("bench serve")};
    status st = read_options(&b, e);
    if (st == ST_OK) st = open_servers(&b, e);
    if (st == ST_OK) {
        run_rounds(&b);
        st = report(&b, e);
    }
    st = end_own(&b, st, e);
    for (int i = 0; i < 2; i++) load_server_close(&b.server[i]);
    json_decref(b.wish.prompts);
    arena_free(b.a);
    return st;
}

static const cli_option options[] = {
    {"clients", "N,N",
     "loads: so many clients, each of which asks when its answer has ended (1,16)"},
    {"rate", "R,R", "loads: so many requests a second, at random times"},
    {"requests", "N", "requests of a round (4 a client, 16 at least; 64 at a rate)"},
    {"rounds", "N", "rounds of each load, of which the medians are shown (1; 3 with a peer)"},
    {"peer", "URL", "another server, which gets the same requests in turns"},
    {"prompt-words", "N|A:B", "random words of a prompt, about as many tokens (128)"},
    {"shared-words", "N", "so many of them begin all prompts alike (0)"},
    {"prompts", "FILE", "prompts instead: texts, one a line, or JSONL with prompt or messages"},
    {"new", "N|A:B", "tokens of an answer (64)"},
    {"until-end", NULL, "answers may end before that"},
    {"chat", NULL, "ask /v1/chat/completions (/v1/completions)"},
    {"temperature", "X", "of the answers (0: greedy)"},
    {"cancel", "SHARE", "requests that are given up within the answer (0)"},
    {"malformed", "SHARE", "requests that are wrong on purpose, to be refused (0)"},
    {"check", NULL, "asks each again alone: the answer must be the same"},
    {"seed", "N", "of words, lengths, times and shares (1)"},
    {"timeout", "S", "seconds that an answer may take (600)"},
    {"api-key", "KEY", "for the servers (ATHANOR_API_KEY, if set)"},
    {NULL, NULL, NULL},
};

static const cli_rule rules[] = {
    {"rate", CLI_EXCLUDES, "clients", NULL},
    {"prompts", CLI_EXCLUDES, "prompt-words|shared-words", NULL},
    {NULL, 0, NULL, NULL},
};

const cli_command command_bench_serve = {
    .name = "bench serve",
    .summary = "how fast and how soon a server answers under a load",
    .usage = "URL|MODEL [--clients N,N | --rate R,R] [--peer URL] [--check] [-- SERVE OPTIONS...]",
    .run = cmd_bench_serve,
    .options = options,
    .rules = rules,
    .min_inputs = 1,
    .max_inputs = -1,
    .about = "A URL (http://HOST:PORT) is any server of OpenAI's API. A MODEL is served by athanor "
             "serve meanwhile, with the\n"
             "options after --. The first token is timed from when a request is due. The exit "
             "status is 1 when an answer was\n"
             "cut, wrong, or other than alone.\n"
             "A token's time is that of an answer after its first token, by its tokens; a gap is "
             "between two pieces of text, and\n"
             "several tokens may come at once where a server tries tokens in advance.\n",
};
