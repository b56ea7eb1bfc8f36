/* athanor bench kernels --list: which op is computed by what, forward and backward, in each storage
 * format, on the CPU of this machine and on CUDA. athanor bench kernels MODEL: the time of each op of a
 * model's training step, each alone. */
#include <stdio.h>
#include <string.h>

#include "app/bench/bench_row.h"
#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "base/json.h"
#include "base/log.h"
#include "op/op.h"

enum { STORAGES = 3 };
static const dtype storage[STORAGES] = {DT_F32, DT_BF16, DT_F16};

/* Meta devices: what is listed needs no GPU. */
typedef struct listing {
    dev *cpu, *cuda;
    const cli_args *args;
    json_t *rows; /* NULL: a table is printed */
} listing;

static bool has_pass(const op_impl *impl, bool backward) {
    return impl && (backward ? impl->bwd_input || impl->bwd_weight : impl->fwd != NULL);
}

static const char *maker(const dev *d, op_kind kind, dtype dt, bool backward) {
    return has_pass(op_find_of_kind(d, kind, dt), backward) ? op_made_by(d, kind, dt) : NULL;
}

static void put_one(json_t *rows, op_kind kind, dtype dt, bool backward, const char *cpu,
                    const char *cuda) {
    char name[96];
    const char *pass = backward ? "backward" : "forward";
    snprintf(name, sizeof name, "%s, %s, %s", op_classes[kind].name, pass, dtype_name(dt));
    bench_put_row(rows, name, (cpu != NULL) + (cuda != NULL), "devices");
    json_t *o = json_array_get(rows, json_array_size(rows) - 1);
    json_object_update_new(o,
                           json_pack("{s:s,s:s,s:s,s:s?,s:s?}", "op", op_classes[kind].name, "pass",
                                     pass, "storage", dtype_name(dt), "cpu", cpu, "cuda", cuda));
}

/* Whether its name begins with one that was given. */
static bool is_wanted(const cli_args *args, op_kind kind) {
    const char *name = op_classes[kind].name;
    for (int i = 0; i < args->n_inputs; i++)
        if (strncmp(name, args->inputs[i], strlen(args->inputs[i])) == 0) return true;
    return args->n_inputs == 0;
}

static void list_one(const listing *l, op_kind kind, bool backward) {
    if (!is_wanted(l->args, kind)) return;
    if (!has_pass(op_find_reference(kind, DT_F32), backward)) return;
    if (!l->rows) printf("%-16s %-9s", op_classes[kind].name, backward ? "backward" : "forward");
    for (int i = 0; i < STORAGES; i++) {
        const char *cpu = maker(l->cpu, kind, storage[i], backward);
        const char *cuda = maker(l->cuda, kind, storage[i], backward);
        if (l->rows)
            put_one(l->rows, kind, storage[i], backward, cpu, cuda);
        else
            printf(" %-12s %-9s", cpu ? cpu : "none", cuda ? cuda : "none");
    }
    if (!l->rows) printf("\n");
}

static void list_all(const listing *l) {
    if (!l->rows) {
        printf("%-26s", "");
        for (int i = 0; i < STORAGES; i++) printf(" %-22s", dtype_name(storage[i]));
        printf("\n%-26s", "");
        for (int i = 0; i < STORAGES; i++) printf(" %-12s %-9s", "cpu", "cuda");
        printf("\n");
    }
    for (int k = 0; k < OP_COUNT; k++)
        for (int backward = 0; backward < 2; backward++) list_one(l, (op_kind)k, backward);
    if (l->rows)
        cli_print_json(
            json_pack("{s:s,s:O}", "isa", cpu_isa_name(dev_isa(l->cpu)), "rows", l->rows));
}

static void report(const cli_args *args, const bench_facts *f, const bench_profile *p) {
    char facts[256];
    bench_describe_facts(f, facts);
    if (!args->json) {
        printf("%s; each op alone\n", facts);
        bench_print_profile(p);
        return;
    }
    json_t *o = json_object();
    bench_put_facts(o, f);
    json_object_set_new(o, "rows", bench_profile_json(p));
    cli_print_json(o);
}

static status time_ops(const cli_args *args, err *e) {
    config *c;
    bench *b = NULL;
    bench_step step;
    bench_profile p;
    if (args->n_inputs != 1) {
        err_set(e, ST_USAGE, "bench kernels wants one model, or --list");
        return err_hint(e, "write athanor bench kernels gpt2, or athanor bench kernels --list");
    }
    if (args->json) log_set_quiet(true);
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    status st = bench_open(&b, c, NULL, e);
    if (st == ST_OK) st = bench_run_step(b, &step, e); /* arrays hold numbers of a step */
    if (st == ST_OK) bench_time_ops(b);
    if (st == ST_OK) st = bench_get_profile(b, &p, e);
    if (st == ST_OK) report(args, bench_get_facts(b), &p);
    bench_close(b);
    config_free(c);
    return st;
}

static status cmd_bench_kernels(const cli_args *args, err *e) {
    listing l = {.args = args};
    if (!cli_has(args, "list")) return time_ops(args, e);
    TRY(cli_refuse_overrides(args, "a list is of all devices and formats", e));
    status st = dev_open_meta(&l.cpu, DEV_CPU, 0, e);
    if (st == ST_OK) st = dev_open_meta(&l.cuda, DEV_CUDA, 0, e);
    if (st == ST_OK) {
        l.rows = args->json ? json_array() : NULL;
        list_all(&l);
        json_decref(l.rows);
    }
    dev_close(l.cuda);
    dev_close(l.cpu);
    return st;
}

static const cli_option options[] = {{"list", NULL, "every op, and what computes it"}, {0}};

const cli_command command_bench_kernels = {
    .name = "bench kernels",
    .summary = "time each op of a model alone, or list what computes it",
    .usage = "MODEL|CONFIG [device=cuda] [key=value...] | [OP...] --list",
    .run = cmd_bench_kernels,
    .options = options,
    .max_inputs = -1,
    .takes_keys = true,
    .about =
        "In the table: the CPU's instruction set, or reference (portable kernels); on CUDA own\n"
        "(kernels of this program), cublaslt (products by it), host (collectives, which only\n"
        "the emulated GPU has), or none.\n"};
