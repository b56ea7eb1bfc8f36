/* athanor plan infer: what a model needs where it only generates, and how fast it is there. */
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/model_arg.h"
#include "app/frame/progress.h"
#include "app/plan/on_cluster.h"
#include "base/json.h"
#include "interchange/open_model.h"
#include "model/layer.h"
#include "plan/clock/inference.h"
#include "run/config/config_device.h"

static const double GIB = 1 << 30;

/* Rotary positions can be stretched beyond those of the training (YaRN, Peng et al. 2023: by 4 as it is used); others cannot. */
enum { STRETCH = 4 };

static status check_context(const model_config *m, int64_t context, err *e) {
    int64_t has = model_max_tokens(m),
            most = m->positions == POSITIONS_ROTARY ? STRETCH * has : has;
    if (context <= most) return ST_OK;
    err_at(e, ST_USAGE, "--context", "%ld tokens are too many: the model has positions for %ld",
           (long)context, (long)has);
    return err_hint(e, "--context %ld%s", (long)has,
                    most > has ? ", or up to four times as many, as stretched positions reach"
                               : "");
}

static status read_wish(const cli_args *args, const model_config *m, inference_wish *w, err *e) {
    int64_t longest = model_max_tokens(m), context, prompt, texts;
    const char *store = cli_value(args, "store");
    int64_t usual = longest < 4096 ? longest : 4096;
    TRY(cli_int(args, "context", usual, 2, 1 << 30, &context, e));
    TRY(check_context(m, context, e));
    TRY(cli_int(args, "prompt", context / 2, 1, context - 1, &prompt, e));
    TRY(cli_int(args, "texts", 1, 1, 1 << 16, &texts, e));
    *w = (inference_wish){.model = m,
                          .context = (int)context,
                          .prompt = (int)prompt,
                          .texts = (int)texts,
                          .store = quant_by_name(store ? store : "BF16")};
    if (w->store && w->store->read) return ST_OK;
    err_at(e, ST_USAGE, "--store", "'%s' is no format in which weights are stored", store);
    return err_hint(e, "BF16, Q8_0 and Q4_K are, for example");
}

/* Beyond the positions that the model was trained with. */
static bool is_stretched(const inference_wish *w) {
    return w->context > model_max_tokens(w->model);
}

static double room_of(const cluster *c) {
    return cluster_usable_bytes(c);
}

static void print_json(const inference_wish *w, const inference_sum *s, const cluster *c) {
    cli_print_json(json_pack(
        "{s:o,s:s,s:i,s:I,s:b,s:i,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:f,s:f,s:f,s:i}", "device",
        json_cstr(c->device_name), "cluster", c->name, "context", w->context, "positions",
        (json_int_t)model_max_tokens(w->model), "stretched", (int)is_stretched(w), "texts",
        w->texts, "store", w->store->name, "params", json_f64(s->params), "weight_bytes",
        json_f64(s->weight_bytes), "cache_bytes", json_f64(s->cache_bytes), "cache_bytes_per_token",
        json_f64(s->cache_of_token), "windowed_cache_bytes", json_f64(s->windows_bytes), "bytes",
        json_f64(s->all_bytes), "fits", (int)(s->all_bytes <= room_of(c)), "first_token_ms",
        s->prompt_s * 1e3, "token_ms", s->token_s * 1e3, "tok_per_s", w->texts / s->token_s,
        "devices", 1));
}

static void print_text(const inference_wish *w, const inference_sum *s, const cluster *c) {
    strbuf out = {0};
    strbuf_printf(&out, "%s (%s%s): %.4g parameters, matrices in %s, %d text%s of %d tokens\n",
                  c->device_name, cluster_devices(c) > 1 ? "one device of " : "", c->name,
                  s->params, w->store->name, w->texts, w->texts > 1 ? "s" : "", w->context);
    if (is_stretched(w))
        strbuf_printf(
            &out,
            "  warning: the model has positions for %ld tokens, so %d need them stretched (YaRN), "
            "and what it was not trained for it may not do well\n",
            (long)model_max_tokens(w->model), w->context);
    strbuf_printf(&out, "  %-22s %10.2f GiB\n", "weights", s->weight_bytes / GIB);
    strbuf_printf(&out, "  %-22s %10.2f GiB, %.0f bytes a token\n", "keys and values",
                  s->cache_bytes / GIB, s->cache_of_token);
    if (s->windows_bytes < s->cache_bytes)
        strbuf_printf(
            &out,
            "  %-22s %10.2f GiB in runtimes that keep of a layer no more than its window; this "
            "program keeps all\n",
            "", s->windows_bytes / GIB);
    strbuf_printf(&out, "  %-22s %10.2f GiB\n", "activations", s->work_bytes / GIB);
    strbuf_printf(&out, "  %-22s %10.2f GiB of %.2f: %s\n", "together", s->all_bytes / GIB,
                  room_of(c) / GIB, s->all_bytes <= room_of(c) ? "it fits" : "it does not fit");
    strbuf_printf(&out, "  %-22s %10.1f ms after a prompt of %d tokens (predicted)\n",
                  "first token", s->prompt_s * 1e3, w->prompt);
    strbuf_printf(&out, "  %-22s %10.1f a second at the end of the context%s (predicted)\n",
                  "tokens", w->texts / s->token_s, w->texts > 1 ? ", of all texts" : "");
    progress_put_rows(stdout, strbuf_cstr(&out));
    strbuf_free(&out);
}

static bool is_of(const char *override, const char *group) {
    size_t n = strlen(group);
    return strncmp(override, group, n) == 0 && (override[n] == '.' || override[n] == '=');
}

/* Only the model and the cluster count: one device generates, so a layout would do nothing, and nothing is trained. */
static status check_keys(const cli_args *args, err *e) {
    for (int i = 0; i < args->n_overrides; i++) {
        const char *key = args->overrides[i];
        if (is_of(key, "model") || is_of(key, "cluster")) continue;
        bool layout = is_of(key, "parallel");
        err_at(e, ST_USAGE, key, "%s: '%s' does nothing",
               layout ? "one device generates" : "nothing is trained", key);
        return err_hint(e, "take it out; %s",
                        layout ? "--texts says how many texts the device has at a time"
                               : "--context says how many tokens a text has");
    }
    return ST_OK;
}

static status infer(const cli_args *args, config *c, arena *a, err *e) {
    model_config m;
    cluster on;
    inference_wish w;
    inference_sum s;
    dev *meta;
    if (!c->cluster) {
        err_at(e, ST_USAGE, "cluster", "on which device? The config names no cluster");
        return err_hint(e, "add cluster=l4, cluster=laptop or cluster=phone, for example");
    }
    TRY(on_cluster_find(c, &on, e));
    TRY(model_config_read(a, c->model, 0, &m, e));
    if (m.num_encoder_layers) {
        config_error(c, e, "model",
                     "num_encoder_layers: generating is reckoned without an encoder");
        return err_hint(e, "athanor plan MODEL plans its training");
    }
    TRY(read_wish(args, &m, &w, e));
    c->device = CONFIG_DEVICE_CPU; /* its programs are clocked as those of any device */
    TRY(config_open_meta(c, &meta, e));
    status st = inference_reckon(&w, meta, &on, &s, e);
    dev_close(meta);
    if (st != ST_OK) return st;
    if (args->json)
        print_json(&w, &s, &on);
    else
        print_text(&w, &s, &on);
    return ST_OK;
}

static status cmd_plan_infer(const cli_args *args, err *e) {
    config *c;
    if (open_model_is_gguf(args->inputs[0])) {
        err_at(e, ST_USAGE, args->inputs[0],
               "%s: a GGUF file is no model of a preset, a folder or a config", args->inputs[0]);
        return err_hint(e, "athanor plan %s says what it needs on this machine", args->inputs[0]);
    }
    TRY(check_keys(args, e));
    arena *a = arena_new("infer");
    status st = model_arg_load(args->inputs[0], args, &c, e);
    if (st == ST_OK) {
        st = infer(args, c, a, e);
        config_free(c);
    }
    arena_free(a);
    return st;
}

static const cli_option options[] = {
    {"context", "N", "tokens of a text, its prompt included (4096, or what the model has)"},
    {"prompt", "N", "tokens of the prompt (half of them)"},
    {"texts", "N", "texts at a time (1)"},
    {"store", "FORMAT", "in which matrices are stored: BF16, Q8_0, Q4_K, ... (BF16)"},
    {0}};

const cli_command command_plan_infer = {
    .name = "plan infer",
    .summary = "memory and speed of a model that only generates, on a device",
    .usage = "MODEL|CONFIG cluster=NAME [--context N] [--prompt N] [--texts N] [--store FORMAT]",
    .run = cmd_plan_infer,
    .options = options,
    .takes_keys = true};
