/* athanor bench data: what building shards costs beside encoding the same documents, which it
 * cannot do without. The two take turns; processor time is what counts, since it is the same on a
 * machine that does other work, too. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "app/bench/bench_row.h"
#include "app/frame/cli.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "data/build/build.h"

enum { MAX_REPEAT = 101 };

typedef struct cost {
    double cpu_s, wall_s;
} cost;

typedef struct data_bench {
    const tok *tok;
    const char *const *files;
    int n_files, threads, repeat;
    const char *out; /* the shards are written and removed there */
    tok_string *text;
    int64_t n_texts, cap_texts;
    uint64_t bytes, tokens;
    arena *mem;
    cost encode[MAX_REPEAT], build[MAX_REPEAT];
} data_bench;

static double cpu_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static cost since(double cpu_s, int64_t began_ns) {
    return (cost){.cpu_s = cpu_now_s() - cpu_s, .wall_s = clock_since_s(began_ns)};
}

static status read_documents(data_bench *b, err *e) {
    reader *r;
    document doc;
    bool more;
    TRY(reader_open(&r, b->files, b->n_files, NULL, e));
    status st = reader_next(r, &doc, &more, e);
    while (st == ST_OK && more) {
        tok_string s = {arena_memdup(b->mem, doc.text, doc.len), doc.len};
        VEC_PUSH(b->text, b->n_texts, b->cap_texts, s);
        b->bytes += doc.len;
        st = reader_next(r, &doc, &more, e);
    }
    reader_close(r);
    return st;
}

static status time_encode(data_bench *b, cost *c, err *e) {
    tok_ids *ids = xcalloc((size_t)b->n_texts, sizeof *ids);
    double cpu_s = cpu_now_s();
    int64_t began = clock_now_ns();
    status st = tok_encode_batch(b->tok, b->text, b->n_texts, 0, ids, NULL, e);
    *c = since(cpu_s, began);
    b->tokens = 0;
    for (int64_t i = 0; i < b->n_texts; i++) {
        b->tokens += (uint64_t)ids[i].n;
        tok_ids_free(&ids[i]);
    }
    free(ids);
    return st;
}

static status time_build(data_bench *b, cost *c, err *e) {
    data_build_options opt = {.reader = {.max_bad = -1}, .threads = b->threads};
    data_build_result r;
    double cpu_s = cpu_now_s();
    int64_t began = clock_now_ns();
    TRY(data_build(b->files, b->n_files, b->out, b->tok, &opt, &r, e));
    *c = since(cpu_s, began);
    return file_remove_tree(b->out, e);
}

static status run_rounds(data_bench *b, err *e) {
    cost unmeasured;
    TRY(read_documents(b, e));
    TRY(time_encode(b, &unmeasured, e));
    for (int i = 0; i < b->repeat; i++) {
        TRY(time_build(b, &b->build[i], e));
        TRY(time_encode(b, &b->encode[i], e));
    }
    return ST_OK;
}

/* ---- results ---- */

/* The round with the least processor time: what other work on the machine adds is never negative.
 */
static cost best(const cost *c, int n) {
    cost least = c[0];
    for (int i = 1; i < n; i++)
        if (c[i].cpu_s < least.cpu_s) least = c[i];
    return least;
}

static void report(const cli_args *args, const data_bench *b) {
    cost encode = best(b->encode, b->repeat), build = best(b->build, b->repeat);
    double mb = (double)b->bytes * 1e-6, ratio = encode.cpu_s / build.cpu_s;
    double mtok = (double)b->tokens * 1e-6;
    if (args->json) {
        json_t *rows = json_array();
        bench_put_row(rows, "encode", mb / encode.cpu_s, "MB per processor second");
        bench_put_row(rows, "data build", mb / build.cpu_s, "MB per processor second");
        bench_put_row(rows, "encode tokens", mtok / encode.wall_s, "M tokens/s");
        bench_put_row(rows, "data build tokens", mtok / build.wall_s, "M tokens/s");
        bench_put_row(rows, "ratio", ratio, "of the tokenizer's speed per core");
        cli_print_json(json_pack("{s:i,s:o}", "threads", b->threads, "rows", rows));
        return;
    }
    printf("%.1f MB in %lld document%s, %.2fM tokens; %d thread%s; best of %d\n\n", mb,
           (long long)b->n_texts, text_s(b->n_texts), mtok, b->threads, text_s(b->threads),
           b->repeat);
    printf("%-12s %22s %14s\n", "", "MB/processor second", "M tokens/s");
    printf("%-12s %22.2f %14.2f\n", "encode", mb / encode.cpu_s, mtok / encode.wall_s);
    printf("%-12s %22.2f %14.2f\n", "data build", mb / build.cpu_s, mtok / build.wall_s);
    printf("%-12s %22.3f %14.3f\n", "ratio", ratio, encode.wall_s / build.wall_s);
}

static status run_in(const cli_args *args, data_bench *b, err *e) {
    tok *t;
    TRY(tok_load(&t, args->inputs[0], e));
    b->tok = t;
    status st = run_rounds(b, e);
    if (st == ST_OK) report(args, b);
    tok_free(t);
    return st;
}

static status run_bench_data(const cli_args *args, err *e) {
    int64_t repeat, threads;
    TRY(cli_int(args, "repeat", 5, 1, MAX_REPEAT, &repeat, e));
    TRY(cli_int(args, "threads", omp_get_max_threads(), 1, 1024, &threads, e));
    omp_set_num_threads((int)threads);
    data_bench *b = xcalloc(1, sizeof *b);
    b->mem = arena_new("bench data");
    b->files = (const char *const *)args->inputs + 1;
    b->n_files = args->n_inputs - 1;
    b->threads = (int)threads;
    b->repeat = (int)repeat;
    const char *folder = args->output ? args->output : ".";
    b->out = path_join(b->mem, folder, arena_printf(b->mem, "bench-data-%ld", (long)getpid()));
    status st = run_in(args, b, e);
    if (st != ST_OK && file_remove_tree(b->out, NULL) != ST_OK) err_context(e, "in %s", b->out);
    arena_free(b->mem);
    free(b->text);
    free(b);
    return st;
}

static const cli_option BENCH_DATA_OPTIONS[] = {
    {"repeat", "N", "measured rounds after one unmeasured (default 5)"},
    {"threads", "N", "threads (default: all)"},
    {0},
};

const cli_command command_bench_data = {
    .name = "bench data",
    .summary = "how fast shards are built, beside encoding alone",
    .usage = "TOKENIZER FILE... [-o FOLDER] [--repeat N] [--threads N]",
    .run = run_bench_data,
    .options = BENCH_DATA_OPTIONS,
    .min_inputs = 2,
    .max_inputs = -1,
    .takes_output = true,
    .about = "Encodes the documents of all FILEs from memory, and builds shards from the files in\n"
             "a folder below -o (default: the current one), in turns.\n",
};
