/* Texts are of random tokens and end by their length alone, so each round does the same work. No tokens are tried in
 * advance: how often these are right depends on the text. */
#include "app/bench/bench_streams.h"

#include <stdio.h>
#include <stdlib.h>

#include "app/bench/bench_row.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/sort.h"
#include "base/text.h"

enum { FIGURES = 4 };
static const char *const NAMES[FIGURES] = {"first token, cold", "first token, prefix in the cache",
                                           "decode, one stream", "decode, all streams"};

typedef struct streams {
    engine *en;
    const engine_size *size;
    int32_t n_ids;
    uint64_t draws;
    int64_t n_tok;        /* made so far */
    int n_begun, n_ended; /* texts with a token; without a next one */
} streams;

/* A text of a round. */
typedef struct stream {
    streams *all;
    int32_t *prompt;
    bool has_begun;
} stream;

static void count_token(void *ctx, const engine_token *t) {
    stream *s = ctx;
    (void)t;
    s->all->n_tok++;
    if (!s->has_begun) s->all->n_begun++;
    s->has_begun = true;
}

static void count_end(void *ctx, status st, const generate_result *result, const err *e) {
    const stream *s = ctx;
    (void)result;
    CHECK(st == ST_OK, "%s", e->message);
    s->all->n_ended++;
}

static void draw_prompt(streams *s, int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(mix64(s->draws++) % (uint64_t)s->n_ids);
}

static status begin(streams *s, stream *t, int64_t n_prompt, int64_t n_new, err *e) {
    uint64_t id;
    t->all = s;
    t->has_begun = false;
    engine_request rq = {.rq = {.prompt = t->prompt,
                                .n_prompt = n_prompt,
                                .max_new = n_new,
                                .sample = {.top_p = 1, .repetition_penalty = 1},
                                .on_token = count_token,
                                .n_top = -1,
                                .ctx = t},
                         .on_end = count_end};
    return engine_submit(s->en, &rq, &id, e);
}

/* Seconds until one text has its first token. */
static status time_first(streams *s, stream *t, int64_t n_prompt, double *seconds, err *e) {
    TRY(begin(s, t, n_prompt, 1, e));
    int64_t start = clock_now_ns();
    while (engine_step(s->en)) {
    }
    *seconds = clock_since_s(start);
    return ST_OK;
}

/* Tokens that the first of n texts may have written before the last one begins: one for each pass that reads prompts. */
static int64_t head_start(const engine_size *size, int n, int64_t n_prompt) {
    int64_t passes = 0;
    for (int i = 0; i < n; i++) passes += n_prompt / engine_prompt_rows(size, i) + 2;
    return passes;
}

/* Tokens per second of n texts, from when all have begun until the first has ended: they are of
 * one length. */
static status time_decode(streams *s, stream *t, int n, const bench_streams_wish *w, double *rate,
                          err *e) {
    s->n_begun = s->n_ended = 0;
    for (int i = 0; i < n; i++) {
        draw_prompt(s, t[i].prompt, w->prompt);
        TRY(begin(s, &t[i], w->prompt, w->new_tok + head_start(s->size, n, w->prompt), e));
    }
    while (s->n_begun < n && engine_step(s->en)) {
    }
    int64_t start = clock_now_ns(), before = s->n_tok;
    while (s->n_ended == 0 && engine_step(s->en)) {
    }
    *rate = (double)(s->n_tok - before) / clock_since_s(start);
    while (engine_step(s->en)) {
    }
    return ST_OK;
}

/* The figures of a round, by NAMES. */
static status time_round(streams *s, stream *t, const bench_streams_wish *w, double *figure,
                         err *e) {
    draw_prompt(s, t[0].prompt, w->prompt);
    TRY(time_first(s, &t[0], w->prompt, &figure[0], e));
    draw_prompt(s, t[0].prompt + w->prompt - 1, 1);
    TRY(time_first(s, &t[0], w->prompt, &figure[1], e));
    TRY(time_decode(s, t, 1, w, &figure[2], e));
    return time_decode(s, t, w->streams, w, &figure[3], e);
}

/* Medians of all rounds but the first. */
static status time_rounds(streams *s, stream *t, const bench_streams_wish *w, double *figure,
                          err *e) {
    double *all = xcalloc((size_t)(w->repeat * FIGURES), sizeof *all), round[FIGURES];
    status st = time_round(s, t, w, round, e);
    for (int64_t i = 0; i < w->repeat && st == ST_OK; i++) {
        st = time_round(s, t, w, round, e);
        for (int k = 0; k < FIGURES; k++) all[k * w->repeat + i] = round[k];
    }
    for (int k = 0; k < FIGURES; k++) figure[k] = sort_median(all + k * w->repeat, (int)w->repeat);
    free(all);
    return st;
}

static status measure(engine *en, const open_model *m, const bench_streams_wish *w, double *figure,
                      err *e) {
    streams s = {.en = en, .size = &m->serve, .n_ids = (int32_t)m->config.vocab_size, .draws = 1};
    stream *t = xcalloc((size_t)w->streams, sizeof *t);
    for (int i = 0; i < w->streams; i++)
        t[i].prompt = xcalloc((size_t)w->prompt, sizeof *t[i].prompt);
    status st = time_rounds(&s, t, w, figure, e);
    for (int i = 0; i < w->streams; i++) free(t[i].prompt);
    free(t);
    return st;
}

static void report(const cli_args *args, const open_model *m, const bench_streams_wish *w,
                   const double *figure) {
    int threads = dev_threads(m->dev);
    json_t *rows = json_array();
    if (!args->json)
        printf("%s, %d thread%s; %d stream%s; medians of %ld\n\n", cpu_isa_name(dev_isa(m->dev)),
               threads, text_s(threads), w->streams, text_s(w->streams), (long)w->repeat);
    for (int k = 0; k < FIGURES; k++) {
        bool is_time = k < 2;
        if (!args->json)
            printf("%-34s %10.*f %s\n", NAMES[k], is_time ? 4 : 1, figure[k],
                   is_time ? "s" : "tok/s");
        bench_put_row(rows, NAMES[k], figure[k], is_time ? "s" : "tok/s");
    }
    if (args->json)
        cli_print_json(json_pack("{s:s,s:i,s:i,s:I,s:I,s:O}", "isa", cpu_isa_name(dev_isa(m->dev)),
                                 "threads", threads, "streams", w->streams, "prompt_tokens",
                                 (json_int_t)w->prompt, "new_tokens", (json_int_t)w->new_tok,
                                 "rows", rows));
    json_decref(rows);
}

status bench_streams(const cli_args *args, open_model *m, const bench_streams_wish *w, err *e) {
    double figure[FIGURES];
    int64_t longest = w->prompt + w->new_tok;
    open_model_set_engine(m, (int)longest, w->streams, INT64_MAX); /* for what a pass holds */
    longest += head_start(&m->serve, w->streams, w->prompt);
    open_model_set_engine(m, (int)longest, w->streams, INT64_MAX);
    m->serve.draft = 0;
    TRY(open_model_load(m, 0, 0, e));
    engine *en = open_model_engine(m);
    status st = measure(en, m, w, figure, e);
    if (st == ST_OK) report(args, m, w, figure);
    engine_free(en);
    return st;
}
