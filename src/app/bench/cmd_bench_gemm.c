/* athanor bench gemm: every implementation of the matrix product beside the arithmetic limit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "dev/cuda.h"
#include "op/machine.h"
#include "train/bench/bench_gemm.h"

typedef struct gemm_job {
    const cli_args *args;
    arena *a;
    dev *dev;
    dtype dt;      /* of --dtype, else what the machine multiplies */
    bool dt_given; /* then it also holds for models */
    int64_t threads;
    bench_gemm *list;
    int32_t n, cap;
    dev_kind kind;         /* by `device`, and the CPU where nothing says it */
    bool takes_keys;       /* a model is among the inputs */
    gemm_choices *choices; /* NULL: not to be remembered */
} gemm_job;

/* ---- what to measure ---- */

static bench_gemm *add(gemm_job *j) {
    j->list = arena_grow(j->a, j->list, j->n, &j->cap, sizeof *j->list);
    return &j->list[j->n++];
}

/* MxNxK. */
static status parse_shape(const char *word, gemm_case *c, err *e) {
    char rest;
    int n = sscanf(word, "%6" SCNd64 "x%6" SCNd64 "x%6" SCNd64 "%c", &c->m, &c->n, &c->k, &rest);
    if (n == 3 && c->m > 0 && c->n > 0 && c->k > 0) return ST_OK;
    err_set(e, ST_USAGE, "'%s' is no shape of a matrix product", word);
    return err_hint(e, "write MxNxK, such as 2048x2048x2048, each below a million");
}

static void add_shape(gemm_job *j, const gemm_case *shape) {
    for (int i = 0; i < GEMM_LAYOUTS; i++) {
        bench_gemm *g = add(j);
        snprintf(g->name, sizeof g->name, "product");
        g->c = *shape;
        g->c.layout = (gemm_layout)i;
        g->c.dt = j->dt;
    }
}

static status add_config(gemm_job *j, const char *model, config *c, err *e) {
    bench_gemm *list;
    int n;
    if (c->train.threads > 0 && !cli_has(j->args, "threads")) j->threads = c->train.threads;
    TRY(bench_gemm_list(c, j->a, &list, &n, e));
    for (int i = 0; i < n; i++) {
        bench_gemm *g = add(j);
        g->c = list[i].c;
        if (j->dt_given) g->c.dt = j->dt;
        snprintf(g->name, sizeof g->name, "%.30s %.60s", model, list[i].name);
    }
    return ST_OK;
}

static status add_input(gemm_job *j, const char *word, err *e) {
    gemm_case shape = {0};
    config *c;
    if (strspn(word, "0123456789x") == strlen(word) && !file_exists(word)) {
        TRY(parse_shape(word, &shape, e));
        add_shape(j, &shape);
        return ST_OK;
    }
    j->takes_keys = true;
    TRY(model_arg_load(word, j->args, &c, e));
    status st = add_config(j, word, c, e);
    config_free(c);
    return st;
}

/* A cube, and two models at the shapes at which they are compared. */
static status add_defaults(gemm_job *j, err *e) {
    static const struct {
        const char *name, *keys[3];
    } models[] = {
        {"gpt2", {"model.preset=gpt2", "train.seq_len=1024", "train.global_batch_size=4"}},
        {"smollm2-135m",
         {"model.preset=smollm2-135m", "train.seq_len=2048", "train.global_batch_size=2"}}};
    add_shape(j, &(gemm_case){.m = 2048, .n = 2048, .k = 2048});
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        config *c;
        TRY(config_load(&c, NULL, models[i].keys, ARRAY_LEN(models[i].keys), e));
        status st = add_config(j, models[i].name, c, e);
        config_free(c);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

/* ---- results ---- */

static double flops_of(const gemm_case *c) {
    return 2.0 * (double)c->m * (double)c->n * (double)c->k;
}

static int impls_of(const gemm_job *j) {
    return j->kind == DEV_CUDA ? 1 : GEMM_IMPLS;
}

static const char *impl_name(const gemm_job *j, int i) {
    return j->kind == DEV_CUDA ? "cublaslt" : gemm_impl_name((gemm_impl)i);
}

static json_t *row_json(const gemm_job *j, const bench_gemm *g, const gemm_timing *t, int impl) {
    const gemm_case *c = &g->c;
    char name[256];
    double rate = t->best_s[impl] > 0 ? flops_of(c) / t->best_s[impl] : 0;
    snprintf(name, sizeof name, "%s, %s, %ldx%ldx%ld, %s", g->name, gemm_layout_name(c->layout),
             (long)c->m, (long)c->n, (long)c->k, impl_name(j, impl));
    return json_pack("{s:s,s:o,s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:o,s:o}", "name", name, "value",
                     json_f64(rate / 1e9), "unit", "GFLOP/s", "m", (json_int_t)c->m, "n",
                     (json_int_t)c->n, "k", (json_int_t)c->k, "layout", gemm_layout_name(c->layout),
                     "dtype", dtype_name(c->dt), "impl", impl_name(j, impl), "peak_gflops",
                     json_f64(t->peak_flops / 1e9), "of_limit", json_f64(rate / t->peak_flops));
}

/* The times of the emulated GPU mean nothing, so it has none. */
static void print_gpu(const gemm_job *j) {
    char name[DEV_NAME_MAX];
    cuda_name(j->dev, name);
    printf("%s; GFLOP/s and share of the limit%s\n", name,
           cuda_is_emulated(j->dev) ? ", of which it has none: products only run" : "");
}

static void print_head(const gemm_job *j) {
    if (j->kind == DEV_CUDA)
        print_gpu(j);
    else
        printf("%s, %d thread%s; GFLOP/s and share of the limit\n", cpu_isa_name(dev_isa(j->dev)),
               dev_threads(j->dev), text_s(dev_threads(j->dev)));
    printf("\n%-34s %-15s %-4s %18s %8s", "layer", "pass", "", "m x n x k", "limit");
    for (int i = 0; i < impls_of(j); i++) printf(" %15s", impl_name(j, i));
    printf("\n");
}

static void print_row(const gemm_job *j, const bench_gemm *g, const gemm_timing *t) {
    const gemm_case *c = &g->c;
    char size[64];
    snprintf(size, sizeof size, "%ldx%ldx%ld", (long)c->m, (long)c->n, (long)c->k);
    printf("%-34s %-15s %-4s %18s %8.1f", g->name, gemm_layout_name(c->layout), dtype_name(c->dt),
           size, t->peak_flops / 1e9);
    for (int i = 0; i < impls_of(j); i++) {
        double rate = t->best_s[i] > 0 ? flops_of(c) / t->best_s[i] : 0;
        if (rate > 0)
            printf(" %8.1f %4.0f %%", rate / 1e9, 100 * rate / t->peak_flops);
        else
            printf(" %15s", "-");
    }
    printf("\n");
    fflush(stdout);
}

static void remember(gemm_job *j, const gemm_case *c, const gemm_timing *t) {
    gemm_args g = gemm_args_of(c->layout, c->m, c->n, c->k, c->dt);
    gemm_choice item = {.m = g.m, .n = g.n, .k = g.k, .a_trans = g.a_trans, .b_trans = g.b_trans};
    item.ab_dt = g.ab_dt, item.c_dt = g.c_dt;
    for (int i = 0; i < GEMM_IMPLS; i++)
        if (t->best_s[i] > 0) item.gflops[i] = flops_of(c) / t->best_s[i] / 1e9;
    item.impl = gemm_choice_faster(item.gflops);
    gemm_choices_put(j->choices, &item);
}

static status run_list(gemm_job *j, err *e) {
    bool json = j->args->json;
    json_t *rows = json_array();
    status st = ST_OK;
    if (!json) print_head(j);
    for (int i = 0; i < j->n && st == ST_OK; i++) {
        gemm_timing t;
        st = gemm_bench_run(j->dev, &j->list[i].c, &t, e);
        if (st != ST_OK) break;
        if (!json) print_row(j, &j->list[i], &t);
        if (j->choices) remember(j, &j->list[i].c, &t);
        for (int k = 0; k < impls_of(j); k++)
            if (t.best_s[k] > 0 || j->kind == DEV_CUDA)
                json_array_append_new(rows, row_json(j, &j->list[i], &t, k));
    }
    if (st == ST_OK && json)
        cli_print_json(json_pack("{s:s,s:s,s:i,s:O}", "device", dev_kind_name(j->kind), "isa",
                                 cpu_isa_name(dev_isa(j->dev)), "threads", dev_threads(j->dev),
                                 "rows", rows));
    json_decref(rows);
    return st;
}

/* ---- the command ---- */

static status read_dtype(gemm_job *j, err *e) {
    const char *word = cli_value(j->args, "dtype");
    dev *meta;
    j->dt_given = word != NULL;
    bool known = word && dtype_parse(word, &j->dt);
    if (known && (j->dt == DT_F32 || j->dt == DT_BF16 || j->dt == DT_F16)) return ST_OK;
    if (word) {
        err_at(e, ST_USAGE, "command line (--dtype)", "there are no matrix products in '%s'", word);
        return err_hint(e, "write --dtype f32, --dtype bf16 or --dtype f16");
    }
    TRY(dev_open_meta(&meta, DEV_CPU, 0, e));
    j->dt = dev_isa(meta) >= ISA_AVX512_BF16 ? DT_BF16 : DT_F32;
    dev_close(meta);
    return ST_OK;
}

/* Adds what is measured to what this machine's file holds. */
static status run_and_remember(gemm_job *j, err *e) {
    char path[4096];
    machine_facts f;
    if (!machine_path(path, sizeof path)) return machine_no_place(e);
    if (dev_isa(j->dev) < dev_machine_isa()) {
        err_at(e, ST_USAGE, "ATHANOR_ISA",
               "oneDNN does not obey ATHANOR_ISA, so what is faster here is not remembered for %s",
               cpu_isa_name(dev_isa(j->dev)));
        return err_hint(e, "unset ATHANOR_ISA, or leave --remember out");
    }
    TRY(machine_read(&f, j->dev, e));
    j->choices = &f.products;
    status st = run_list(j, e);
    if (st == ST_OK) st = machine_write(&f, e);
    if (st == ST_OK && !j->args->json) printf("\nremembered in %s\n", path);
    machine_free(&f);
    return st;
}

/* device=cuda, with or without a model; other keys are of models. */
static status read_device(gemm_job *j, err *e) {
    static const char *const known[] = {"device", NULL};
    const char *word = cli_override(j->args, "device");
    if (!j->takes_keys) TRY(cli_check_overrides(j->args, known, e));
    j->kind = DEV_CPU;
    if (word) TRY(dev_find_kind(word, &j->kind, e));
    if (j->kind != DEV_CUDA || !cli_has(j->args, "remember")) return ST_OK;
    err_set(e, ST_USAGE, "--remember is for the CPU's implementations");
    return err_hint(e, "products on a GPU are remembered when a run first meets them");
}

static status run_job(gemm_job *j, err *e) {
    TRY(cli_int(j->args, "threads", 0, 0, 4096, &j->threads, e));
    TRY(read_dtype(j, e));
    for (int i = 0; i < j->args->n_inputs; i++) TRY(add_input(j, j->args->inputs[i], e));
    TRY(read_device(j, e));
    if (j->args->n_inputs == 0) TRY(add_defaults(j, e));
    TRY(dev_open(&j->dev, j->kind, (int)j->threads, e));
    return cli_has(j->args, "remember") ? run_and_remember(j, e) : run_list(j, e);
}

static status cmd_bench_gemm(const cli_args *args, err *e) {
    gemm_job j = {.args = args, .a = arena_new("bench")};
    status st = run_job(&j, e);
    dev_close(j.dev);
    arena_free(j.a);
    return st;
}

static const cli_option options[] = {
    {"dtype", "f32|bf16|f16",
     "format of the operands (the model's; else what the machine multiplies)"},
    {"threads", "N", "CPU threads (the model's train.threads; 0 = all cores)"},
    {"remember", NULL, "let runs on this machine take the faster implementation for these shapes"},
    {0}};

const cli_command command_bench_gemm = {
    .name = "bench gemm",
    .summary = "measure matrix products beside the limit of the machine",
    .usage = "[MxNxK...] [MODEL|CONFIG...] [device=cuda] [key=value...] [--dtype f32|bf16|f16] "
             "[--threads N] "
             "[--remember]",
    .run = cmd_bench_gemm,
    .options = options,
    .max_inputs = -1,
    .takes_keys = true};
