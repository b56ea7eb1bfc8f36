/* athanor import and export: a model in another form, verified. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "interchange/interchange.h"
#include "io/checkpoint/checkpoint.h"
#include "run/folder.h"
#include "run/metrics.h"

/* ---- output ---- */

static json_t *lines_json(const strbuf *notes) {
    json_t *list = json_array();
    for (const char *s = strbuf_cstr(notes); *s;) {
        size_t n = strcspn(s, "\n");
        json_array_append_new(list, json_text(s, n));
        s += n + (s[n] == '\n');
    }
    return list;
}

static json_t *report_json(const interchange_report *r, const char *path, bool gguf) {
    const model_comparison *c = &r->verified;
    bool asked = c->positions > 0;
    json_t *o = json_pack("{s:o,s:s,s:s,s:s,s:s,s:I,s:I,s:i}", "path", json_cstr(path), "form",
                          gguf ? "gguf" : "hf", "source", r->kind, "model_type", r->model_type,
                          "dtype", r->format, "params", (json_int_t)r->params, "bytes",
                          (json_int_t)r->bytes, "files", r->files);
    json_object_set_new(o, "verified", asked ? json_boolean(c->verified) : json_null());
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"max_abs_logit_diff", c->max_abs_diff},
                   {"max_rel_logit_diff", c->max_relative},
                   {"mean_kl", c->mean_kl},
                   {"top1", c->top1},
                   {"tolerance_rel", c->limits.relative},
                   {"tolerance_kl", c->limits.kl}};
    for (int i = 0; i < ARRAY_LEN(numbers); i++)
        json_object_set_new(o, numbers[i].name, asked ? json_f64(numbers[i].value) : json_null());
    json_object_set_new(o, "positions", json_integer(c->positions));
    json_object_set_new(o, "texts", json_integer(c->texts));
    json_object_set_new(o, "ids_equal", asked ? json_boolean(c->ids_equal) : json_null());
    json_object_set_new(o, "runs", where_runs_json(&r->where));
    json_object_set_new(o, "notes", lines_json(&r->notes));
    return o;
}

static void print_report(const interchange_report *r, const char *path) {
    const model_comparison *c = &r->verified;
    printf("%s: %s, %lld parameters, %s, %llu bytes in %d file%s\n", path, r->model_type,
           (long long)r->params, r->format, (unsigned long long)r->bytes, r->files,
           text_s(r->files));
    if (c->positions > 0)
        printf("%s: logits differ by at most %.3g (%.3g of the largest), KL %.3g, same first "
               "choice in %.2f %%%s\n",
               c->verified ? "verified" : "compared", c->max_abs_diff, c->max_relative, c->mean_kl,
               100 * c->top1, c->texts ? ", same ids" : "");
    else
        printf("not verified\n");
    fputs(strbuf_cstr(&r->notes), stdout);
    strbuf text = {0};
    where_runs_describe(&r->where, &text);
    printf("where it runs:\n%s", strbuf_cstr(&text));
    strbuf_free(&text);
}

/* ---- what is known of the source ---- */

typedef struct known {
    json_t *valid, *evals; /* the last validation up to the checkpoint; what tasks said of it */
    int64_t step;
} known;

static status look_at_event(void *ctx, const json_t *event, err *e) {
    known *k = ctx;
    int64_t step = metrics_int(event, "step", -1);
    (void)e;
    if (metrics_is(event, "valid") && step <= k->step) {
        json_decref(k->valid);
        k->valid = json_deep_copy(event);
    }
    if (metrics_is(event, "eval") && step == k->step)
        json_array_append_new(k->evals, json_deep_copy(event));
    return ST_OK;
}

/* Of a checkpoint in its run: how it was evaluated there. NULL: nothing is known. */
static json_t *find_evaluations(arena *a, const char *source) {
    known k = {.evals = json_array()};
    char *dir;
    if (checkpoint_resolve(a, source, &dir, NULL) == ST_OK &&
        sscanf(path_base(dir), "step-%" SCNd64, &k.step) == 1) {
        const char *run = arena_printf(a, "%s/../..", dir);
        if (!run_is_run(run) ||
            metrics_read(run, METRICS_LAST_STEP, look_at_event, &k, NULL) != ST_OK)
            json_array_clear(k.evals);
    }
    if (k.valid) json_array_insert_new(k.evals, 0, k.valid);
    return k.evals;
}

/* ---- commands ---- */

static status convert(const cli_args *args, interchange_options *opt, err *e) {
    interchange_report r;
    TRY(cli_shard_bytes(args, &opt->max_shard_bytes, e));
    opt->license = cli_value(args, "license");
    const char *ignored = cli_value(args, "ignore-key");
    arena *a = arena_new("keys");
    opt->verify = !cli_has(args, "no-verify");
    opt->force = cli_has(args, "force");
    opt->format = cli_value(args, "dtype");
    if (ignored) opt->ignore = cli_split_tokens(a, ignored, &opt->n_ignore);
    json_t *evaluations = find_evaluations(a, args->inputs[0]);
    opt->evaluations = evaluations;
    status st = interchange_run(args->inputs[0], args->output, opt, &r, e);
    json_decref(evaluations);
    bool judged = r.verified.positions > 0;
    if (args->json && (st == ST_OK || judged))
        cli_print_json(report_json(&r, args->output, opt->gguf));
    else if (st == ST_OK)
        print_report(&r, args->output);
    if (st == ST_FAILED && args->json && judged && !r.verified.verified)
        e->message[0] = '\0'; /* `verified: false` has said it */
    interchange_report_free(&r);
    arena_free(a);
    return st;
}

static status cmd_import(const cli_args *args, err *e) {
    return convert(args, &(interchange_options){.kind = "import"}, e);
}

static status cmd_export(const cli_args *args, err *e) {
    interchange_options opt = {.base = cli_value(args, "base")};
    const char *to = cli_value(args, "to");
    if (!to || (strcmp(to, "hf") != 0 && strcmp(to, "gguf") != 0)) {
        err_set(e, ST_USAGE, to ? "--to %s is no form of export" : "export needs --to", to);
        return err_hint(e, "use --to hf or --to gguf");
    }
    opt.gguf = strcmp(to, "gguf") == 0;
    return convert(args, &opt, e);
}

/* The copies stand in a folder; noise makes them another model, whose difference is told. */
static status cmd_upcycle(const cli_args *args, err *e) {
    upcycle_options up;
    int64_t seed;
    TRY(cli_int(args, "experts", 8, 2, 65536, &up.experts, e));
    TRY(cli_int(args, "per-token", 2, 1, 1024, &up.per_token, e));
    TRY(cli_num(args, "noise", 0, 0, 10, &up.noise, e));
    TRY(cli_int(args, "seed", 0, 0, INT64_MAX, &seed, e));
    up.seed = (uint64_t)seed;
    return convert(args, &(interchange_options){.kind = "upcycle", .upcycle = &up}, e);
}

static status cmd_inherit(const cli_args *args, err *e) {
    const char *list = cli_value(args, "layers");
    inherit_options in = {.map = cli_value(args, "map"), .tokenizer = cli_value(args, "tokenizer")};
    if (!list && !in.map) {
        err_set(e, ST_USAGE, "inherit needs --layers or --map: with neither it would be a copy");
        return err_hint(e, "such as --layers 0,2,4");
    }
    arena *a = arena_new("layers");
    tok_ids layers = {0};
    status st = list ? cli_parse_ids(list, &layers, e) : ST_OK;
    if (st != ST_OK) err_where(e, "--layers");
    int64_t *number = ARENA_ARRAY(a, int64_t, (int)layers.n + 1);
    for (int64_t i = 0; i < layers.n; i++) number[i] = layers.id[i];
    in.layers = list ? number : NULL;
    in.n_layers = (int)layers.n;
    if (st == ST_OK && list && layers.n == 0)
        st = err_at(e, ST_USAGE, "--layers", "a model needs a layer");
    if (st == ST_OK)
        st = convert(args, &(interchange_options){.kind = "inherit", .inherit = &in}, e);
    tok_ids_free(&layers);
    arena_free(a);
    return st;
}

#define COMMON_OPTIONS                                                                             \
    {"verify", NULL, "read the result back and compare logits and ids with the source (default)"}, \
        {"no-verify", NULL, "do not run the model"},                                               \
        {"max-shard-size", "SIZE", "bytes in one file of weights of a folder (5GB)"},              \
        {"license", "NAME", "for the model card (what the source's card says, else unknown)"},     \
        {"ignore-key", "A,B", "keys of config.json that may be there although they are unknown"},  \
    {                                                                                              \
        "force", NULL, "replace a model that stands there"                                         \
    }

static const cli_rule rules[] = {
    {"verify", CLI_EXCLUDES, "no-verify", "leave both out: the result is verified"}, {0}};

static const cli_option import_options[] = {
    {"dtype", "FORMAT", "F32, F16 or BF16 (as stored; F32 from quantised GGUF files)"},
    COMMON_OPTIONS,
    {0}};

static const cli_option export_options[] = {
    {"to", "FORM", "hf: a Hugging Face folder; gguf: a file of llama.cpp"},
    {"dtype", "FORMAT",
     "F32, F16 or BF16 (hf: as stored); into GGUF also Q8_0, Q4_0 and Q4_1 (F16)"},
    {"base", "FOLDER", "an adapter's base model (where the adapter says)"},
    COMMON_OPTIONS,
    {0}};

const cli_command command_import = {
    .name = "import",
    .summary = "a model of others as a folder to train from",
    .usage = "SRC -o DST [--dtype FORMAT] [--no-verify] [--option value]",
    .run = cmd_import,
    .options = import_options,
    .rules = rules,
    .needs_output = true};

const cli_command command_export = {
    .name = "export",
    .summary = "a model for other programs, checked against its source",
    .usage = "MODEL -o DST --to hf|gguf [--dtype FORMAT] [--no-verify] [--option value]",
    .run = cmd_export,
    .options = export_options,
    .rules = rules,
    .needs_output = true};

static const cli_option copy_options[] = {
    {"experts", "N", "copies of each feed-forward part (8)"},
    {"per-token", "K", "experts that a token goes through (2)"},
    {"noise", "X",
     "added to all copies but the first, as a share of a matrix's standard deviation (0)"},
    {"seed", "N", "of routers and noise (0)"},
    {"dtype", "FORMAT", "F32, F16 or BF16 (as stored)"},
    COMMON_OPTIONS,
    {0}};

const cli_command command_upcycle = {
    .name = "upcycle",
    .summary = "a dense model as one of experts, which begin as copies",
    .usage = "MODEL -o DST [--experts N] [--per-token K] [--noise X] [--option value]",
    .run = cmd_upcycle,
    .options = copy_options,
    .rules = rules,
    .needs_output = true,
    .about =
        "Llama and Mistral become Mixtral, Qwen 3 becomes Qwen3-MoE (Komatsuzaki et al. 2022). "
        "Without noise the result\n"
        "computes what the dense model computes, which is checked. Train it with model.from.\n"};

static const cli_option inherit_list[] = {
    {"layers", "0,2,4", "layers of the larger model, in this order (all)"},
    {"map", "FILE", "the tokens that stay, as athanor tok prune --map writes it"},
    {"tokenizer", "FILE", "of these tokens"},
    {"dtype", "FORMAT", "F32, F16 or BF16 (as stored)"},
    COMMON_OPTIONS,
    {0}};

static const cli_rule inherit_rules[] = {
    {"verify", CLI_EXCLUDES, "no-verify", "leave both out: the result is verified"},
    {"map", CLI_NEEDS, "tokenizer", NULL},
    {"tokenizer", CLI_NEEDS, "map", NULL},
    {0}};

const cli_command command_inherit = {
    .name = "inherit",
    .summary = "a smaller model out of layers and tokens of a larger one",
    .usage = "MODEL -o DST [--layers 0,2,4] [--map FILE --tokenizer FILE] [--option value]",
    .run = cmd_inherit,
    .options = inherit_list,
    .rules = inherit_rules,
    .needs_output = true,
    .about = "The result is a beginning to train from (model.from). Of a pruned vocabulary the "
             "logits of the tokens that stay\n"
             "are those of the larger model.\n"};
