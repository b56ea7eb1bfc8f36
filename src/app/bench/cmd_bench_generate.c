/* athanor bench generate: how fast a model reads a prompt and makes tokens after it.
 *
 * The tokens are given, not sampled: the work of a token does not depend on which one it is, so two
 * programs that are compared do the same. */
#include <stdio.h>
#include <stdlib.h>

#include "app/bench/bench_row.h"
#include "app/bench/bench_streams.h"
#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/sort.h"
#include "base/text.h"
#include "interchange/open_model.h"

enum { MAX_REPEAT = 101, MAX_STREAMS = 256 };

typedef struct wish {
    int64_t prompt, new_tok, repeat, threads, streams;
} wish;

/* Medians, in seconds. */
typedef struct timing {
    double load_s, prefill_s, decode_s;
} timing;

static int32_t *draw_tokens(int64_t n, int32_t n_ids) {
    int32_t *ids = xmalloc(sizeof(*ids) * (size_t)n);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(mix64((uint64_t)i) % (uint64_t)n_ids);
    return ids;
}

static void time_round(generator *g, const int32_t *ids, const wish *w, double *prefill_s,
                       double *decode_s) {
    generator_reset(g);
    int64_t start = clock_now_ns();
    generator_continue(g, ids, w->prompt, NULL, NULL);
    *prefill_s = clock_since_s(start);
    start = clock_now_ns();
    for (int64_t n = w->prompt + 1; n <= w->prompt + w->new_tok; n++)
        generator_continue(g, ids, n, NULL, NULL);
    *decode_s = clock_since_s(start);
}

static void time_rounds(const open_model *m, const wish *w, timing *t) {
    double prefill_s[MAX_REPEAT], decode_s[MAX_REPEAT];
    generator g = open_model_generator(m);
    int32_t *ids = draw_tokens(w->prompt + w->new_tok, g.n_ids);
    time_round(&g, ids, w, &prefill_s[0], &decode_s[0]); /* once unmeasured */
    for (int64_t i = 0; i < w->repeat; i++) time_round(&g, ids, w, &prefill_s[i], &decode_s[i]);
    t->prefill_s = sort_median(prefill_s, (int)w->repeat);
    t->decode_s = sort_median(decode_s, (int)w->repeat);
    free(ids);
    generator_free(&g);
}

/* ---- results ---- */

static void report(const cli_args *args, const open_model *m, const wish *w, const timing *t) {
    double prefill = (double)w->prompt / t->prefill_s, decode = (double)w->new_tok / t->decode_s;
    double peak = (double)dev_process_peak_bytes();
    int threads = dev_threads(m->dev);
    if (!args->json) {
        printf("%s, %d thread%s, %s; medians of %ld\n\n", cpu_isa_name(dev_isa(m->dev)), threads,
               text_s(threads), open_model_precision(m->compute), (long)w->repeat);
        printf("load    %10.3f s\n", t->load_s);
        printf("prefill %10.1f tok/s  (%ld token%s)\n", prefill, (long)w->prompt,
               text_s(w->prompt));
        printf("decode  %10.1f tok/s  (%ld token%s after them)\n", decode, (long)w->new_tok,
               text_s(w->new_tok));
        printf("memory  %10.1f MiB at most\n", peak / (1 << 20));
        return;
    }
    json_t *rows = json_array();
    bench_put_row(rows, "load", t->load_s, "s");
    bench_put_row(rows, "prefill", prefill, "tok/s");
    bench_put_row(rows, "decode", decode, "tok/s");
    bench_put_row(rows, "peak memory", peak, "bytes");
    cli_print_json(json_pack("{s:s,s:i,s:s,s:I,s:I,s:o}", "isa", cpu_isa_name(dev_isa(m->dev)),
                             "threads", threads, "precision", open_model_precision(m->compute),
                             "prompt_tokens", (json_int_t)w->prompt, "new_tokens",
                             (json_int_t)w->new_tok, "rows", rows));
}

/* ---- the command ---- */

/* What nobody asked for is as long as the model's context allows. */
static status fit(const cli_args *args, const open_model *m, wish *w, err *e) {
    int64_t most = model_max_tokens(&m->config);
    if (!cli_has(args, "new") && w->new_tok > most / 4) w->new_tok = most / 4;
    int64_t left = most - w->new_tok - w->streams;
    if (!cli_has(args, "prompt-tokens") && w->prompt > left && left > 0) w->prompt = left;
    if (w->prompt + w->new_tok + w->streams <= most) return ST_OK;
    err_set(e, ST_USAGE, "%ld + %ld tokens are more than the model's context of %ld",
            (long)w->prompt, (long)w->new_tok, (long)most);
    return err_hint(e, "lower --prompt-tokens or --new");
}

static status measure(const cli_args *args, open_model *m, wish *w, err *e) {
    timing t;
    int64_t start = clock_now_ns();
    TRY(open_model_read_on(m, args->inputs[0], NULL, cli_value(args, "device"), (int)w->threads,
                           e));
    TRY(open_model_set_formats(m, cli_value(args, "cache"), cli_value(args, "precision"), e));
    TRY(fit(args, m, w, e));
    if (w->streams)
        return bench_streams(args, m,
                             &(bench_streams_wish){.prompt = w->prompt,
                                                   .new_tok = w->new_tok,
                                                   .repeat = w->repeat,
                                                   .streams = (int)w->streams},
                             e);
    TRY(open_model_load(m, (int)(w->prompt + w->new_tok), 0, e));
    t.load_s = clock_since_s(start);
    time_rounds(m, w, &t);
    report(args, m, w, &t);
    return ST_OK;
}

static status cmd_bench_generate(const cli_args *args, err *e) {
    wish w;
    open_model m = {0};
    TRY(cli_int(args, "prompt-tokens", 1024, 1, 1 << 24, &w.prompt, e));
    TRY(cli_int(args, "new", 128, 1, 1 << 24, &w.new_tok, e));
    TRY(cli_int(args, "repeat", 3, 1, MAX_REPEAT, &w.repeat, e));
    TRY(cli_int(args, "threads", 0, 0, 1024, &w.threads, e));
    TRY(cli_int(args, "streams", 0, 0, MAX_STREAMS, &w.streams, e));
    status st = measure(args, &m, &w, e);
    open_model_close(&m);
    return st;
}

static const cli_option options[] = {
    {"prompt-tokens", "N", "tokens of the prompt (1024, or what the context has)"},
    {"new", "N", "tokens made after it, one at a time (128, or a quarter of the context)"},
    {"repeat", "N", "measured rounds after one unmeasured (3)"},
    CLI_OPTION_DEVICE,
    {"threads", "N", "threads (all cores)"},
    {"streams", "N", "instead: the engine of a server, with one text and with N at a time"},
    {"cache", "auto|f32|f16", "what keys and values are kept in (auto: f16 for quantised weights)"},
    {"precision", "FORMAT", "auto, fp32, bf16 or fp16: what the model computes in (auto)"},
    {NULL, NULL, NULL},
};

const cli_command command_bench_generate = {
    .name = "bench generate",
    .summary = "how fast a model reads a prompt and makes tokens",
    .usage = "MODEL [--prompt-tokens N] [--new N] [--repeat N] [--threads N] [--streams N] "
             "[--cache FORMAT] [--precision FORMAT]",
    .run = cmd_bench_generate,
    .options = options,
    .about = "bench/vs_inference.py runs this beside llama.cpp or transformers, in turns.\n",
};
