/* athanor bench tok: how fast a tokenizer loads, encodes and decodes. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/bench/bench_row.h"
#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sort.h"
#include "base/text.h"
#include "tok/tok.h"

/* What one file took; seconds are medians. */
typedef struct tok_timing {
    const char *file;
    size_t bytes;
    int64_t n_tok, n_documents;
    double encode_s, documents_s, decode_s;
} tok_timing;

/* Documents of about the size of a paragraph: lines joined until there are 1,000 bytes. */
static tok_string *cut_documents(const char *text, size_t len, int64_t *n) {
    tok_string *list = NULL;
    int64_t cap = 0;
    *n = 0;
    for (size_t from = 0, at = 0; from < len; from = at) {
        at = len - from < 1000 ? len : from + 1000;
        const char *end = memchr(text + at, '\n', len - at);
        at = end ? (size_t)(end - text) + 1 : len;
        VEC_PUSH(list, *n, cap, ((tok_string){text + from, at - from}));
    }
    return list;
}

static status time_whole(const tok *t, const char *text, tok_timing *r, double *encode_s,
                         double *decode_s, err *e) {
    tok_ids ids = {0};
    strbuf back = {0};
    int64_t start = clock_now_ns();
    status st = tok_encode(t, text, r->bytes, 0, &ids, e);
    *encode_s = clock_since_s(start);
    r->n_tok = ids.n;
    start = clock_now_ns();
    if (st == ST_OK) st = tok_decode(t, ids.id, ids.n, false, &back, e);
    *decode_s = clock_since_s(start);
    tok_ids_free(&ids);
    strbuf_free(&back);
    return st;
}

static status time_documents(const tok *t, const char *text, tok_timing *r, double *seconds,
                             err *e) {
    tok_string *list = cut_documents(text, r->bytes, &r->n_documents);
    tok_ids *out = xcalloc((size_t)r->n_documents + 1, sizeof(*out));
    int64_t start = clock_now_ns();
    status st = tok_encode_batch(t, list, r->n_documents, 0, out, NULL, e);
    *seconds = clock_since_s(start);
    for (int64_t i = 0; i < r->n_documents; i++) tok_ids_free(&out[i]);
    free(out);
    free(list);
    return st;
}

enum { MAX_REPEAT = 101 };

static status time_file(const tok *t, const char *text, int repeat, tok_timing *r, err *e) {
    double encode_s[MAX_REPEAT], decode_s[MAX_REPEAT], documents_s[MAX_REPEAT];
    TRY(time_whole(t, text, r, &encode_s[0], &decode_s[0], e)); /* once unmeasured */
    for (int i = 0; i < repeat; i++) {
        TRY(time_whole(t, text, r, &encode_s[i], &decode_s[i], e));
        TRY(time_documents(t, text, r, &documents_s[i], e));
    }
    r->encode_s = sort_median(encode_s, repeat);
    r->decode_s = sort_median(decode_s, repeat);
    r->documents_s = sort_median(documents_s, repeat);
    return ST_OK;
}

/* ---- results ---- */

static void put_rate(json_t *rows, const tok_timing *r, const char *what, double seconds) {
    char name[512];
    snprintf(name, sizeof(name), "%s %.400s", what, r->file);
    bench_put_row(rows, name, (double)r->bytes / 1e6 / (seconds > 0 ? seconds : 1e-9), "MB/s");
}

static void print_file(const tok_timing *r) {
    double mb = (double)r->bytes / 1e6;
    printf("%-32s %8.2f %6.2f %10.1f %10.1f %10.1f\n", r->file, mb,
           (double)r->bytes / (double)(r->n_tok ? r->n_tok : 1), mb / r->encode_s,
           mb / r->documents_s, mb / r->decode_s);
}

static status run_files(const cli_args *args, const tok *t, double load_s, int repeat, err *e) {
    json_t *rows = json_array();
    bench_put_row(rows, "load", 1e3 * load_s, "ms");
    if (!args->json)
        printf(
            "loaded in %.0f ms; %d thread%s; MB/s, medians of %d\n\n%-32s %8s %6s %10s %10s %10s\n",
            1e3 * load_s, omp_get_max_threads(), text_s(omp_get_max_threads()), repeat, "file",
            "MB", "B/tok", "encode", "documents", "decode");
    status st = ST_OK;
    for (int i = 1; i < args->n_inputs && st == ST_OK; i++) {
        tok_timing r = {.file = args->inputs[i]};
        char *text;
        st = file_read_all(r.file, &text, &r.bytes, e);
        if (st != ST_OK) break;
        st = time_file(t, text, repeat, &r, e);
        free(text);
        if (st != ST_OK) break;
        put_rate(rows, &r, "encode", r.encode_s);
        put_rate(rows, &r, "encode documents", r.documents_s);
        put_rate(rows, &r, "decode", r.decode_s);
        if (!args->json) print_file(&r);
    }
    if (st == ST_OK && args->json)
        cli_print_json(json_pack("{s:i,s:O}", "threads", omp_get_max_threads(), "rows", rows));
    json_decref(rows);
    return st;
}

static status run_bench_tok(const cli_args *args, err *e) {
    int64_t repeat, threads;
    tok *t;
    TRY(cli_int(args, "repeat", 5, 1, MAX_REPEAT, &repeat, e));
    TRY(cli_int(args, "threads", 1, 1, 1024, &threads, e));
    omp_set_num_threads((int)threads);
    int64_t start = clock_now_ns();
    TRY(tok_load(&t, args->inputs[0], e));
    status st = run_files(args, t, clock_since_s(start), (int)repeat, e);
    tok_free(t);
    return st;
}

static const cli_option bench_tok_options[] = {
    {"repeat", "N", "measured rounds after one unmeasured (default 5)"},
    {"threads", "N", "threads (default 1)"},
    {NULL, NULL, NULL},
};

const cli_command command_bench_tok = {
    .name = "bench tok",
    .summary = "how fast a tokenizer loads, encodes and decodes",
    .usage = "TOKENIZER FILE... [--repeat N] [--threads N]",
    .run = run_bench_tok,
    .options = bench_tok_options,
    .min_inputs = 2,
    .max_inputs = -1,
    .about = "encode: each FILE as one text; documents: in parts of about 1,000 bytes, a call "
             "each.\nbench/tok_encode.py runs this beside tiktoken and Hugging Face "
             "tokenizers.\n",
};
