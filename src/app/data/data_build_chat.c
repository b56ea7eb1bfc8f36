/* athanor data build, of conversations. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli_ids.h"
#include "app/frame/progress.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "data/chat/chat.h"

static const char *const CHAT_KEYS[] = {"tokenizer",    "valid",   "seed",
                                        "shard_tokens", "threads", "train_on",
                                        "variables",    "allow",   NULL};
/* Keys that only one of the two has. */
static const char *const OF_CHAT[] = {"train_on", "variables", "allow"};

/* ---- is it? ---- */

static status bad_form(const char *name, err *e) {
    err_at(e, ST_USAGE, "--chat", "--chat %s is not a form of conversations", name);
    return err_hint(e, "it is auto, no, %s", chat_form_names());
}

/* What asks for text: the keys that say where it is in a record. */
static bool asks_for_text(const cli_args *args) {
    static const char *const KEYS[] = {"field", "template", "format", "append"};
    for (int i = 0; i < ARRAY_LEN(KEYS); i++)
        if (cli_override(args, KEYS[i])) return true;
    return false;
}

status data_build_is_chat(const cli_args *args, bool *out, err *e) {
    const char *form = cli_value(args, "chat");
    bool named = form && strcmp(form, "auto") != 0 && strcmp(form, "no") != 0;
    if (named && !chat_form_find(form)) return bad_form(form, e);
    *out = named;
    if (named || (form && strcmp(form, "no") == 0)) return ST_OK;
    *out = !asks_for_text(args) && chat_is(args->inputs, args->n_inputs);
    if (*out) return ST_OK;
    const char *key = cli_has(args, "template") ? "--template" : NULL;
    for (int i = 0; i < ARRAY_LEN(OF_CHAT); i++)
        if (cli_override(args, OF_CHAT[i])) key = OF_CHAT[i];
    if (!key) return ST_OK;
    err_at(e, ST_USAGE, key, "%s does nothing: %s is text, not conversations", key,
           args->inputs[0]);
    return err_hint(e, "if it holds conversations, name their form: --chat FORM");
}

/* ---- options ---- */

static status read_variables(const cli_args *args, json_t **out, err *e) {
    const char *text = cli_override(args, "variables");
    *out = text ? json_loads(text, 0, NULL) : NULL;
    if (!text || json_is_object(*out)) return ST_OK;
    err_at(e, ST_USAGE, "variables", "variables=%s is not an object of JSON", text);
    return err_hint(e, "such as variables='{\"enable_thinking\": false}'");
}

static status read_allowed(const cli_args *args, uint32_t *bits, err *e) {
    const char *names = cli_override(args, "allow");
    char *copy = names ? xstrdup(names) : NULL, *rest = copy, *name;
    status st = ST_OK;
    while (st == ST_OK && rest && (name = strsep(&rest, ",")))
        if (*name) st = chat_checks_parse((const char *const *)&name, 1, bits, e);
    free(copy);
    return st;
}

status data_chat_options(const cli_args *args, chat_build_options *opt, json_t **variables,
                         err *e) {
    static const char *const TRAINS[] = {CHAT_TRAINS(LIST_WORD)};
    const char *form = cli_value(args, "chat");
    uint64_t threads = 0;
    int train = CHAT_TRAIN_ALL;
    TRY(cli_check_overrides(args, CHAT_KEYS, e));
    TRY(data_get_share(args, "valid", false, &opt->valid_fraction, e));
    TRY(data_get_count(args, "seed", INT64_MAX, &opt->seed, e));
    TRY(data_get_count(args, "shard_tokens", INT64_MAX, &opt->shard_tokens, e));
    TRY(data_get_count(args, "threads", 1024, &threads, e));
    TRY(data_get_word(args, "train_on", TRAINS, ARRAY_LEN(TRAINS), &train, e));
    TRY(read_allowed(args, &opt->allowed, e));
    TRY(read_variables(args, variables, e));
    opt->form = form && strcmp(form, "auto") != 0 ? form : NULL;
    opt->template_file = cli_value(args, "template");
    opt->variables = *variables;
    opt->train = (chat_train)train;
    opt->threads = (int)threads;
    return ST_OK;
}

/* ---- what came of it ---- */

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static const char *plural(const json_t *o, const char *key) {
    return text_s((int64_t)number(o, key));
}

static void print_sources(const json_t *report) {
    const json_t *list = json_object_get(report, "sources"), *s;
    size_t i;
    json_array_foreach((json_t *)list, i, s) printf(
        "  %-32s %8.0f sample%-1s (%.1f%%)  %10.0f tokens (%.1f%%)  %.1f%% trained\n",
        json_string_value(json_object_get(s, "path")), number(s, "samples"), plural(s, "samples"),
        100 * number(s, "samples_share"), number(s, "tokens"), 100 * number(s, "tokens_share"),
        100 * number(s, "trained_tokens") / fmax(1, number(s, "tokens")));
}

static void print_roles(const json_t *report) {
    const char *name;
    json_t *r;
    json_object_foreach(json_object_get(report, "roles"), name, r)
        printf("  %-12s %10.0f tokens (%.1f%%)  %.0f trained\n", name, number(r, "tokens"),
               100 * number(r, "tokens_share"), number(r, "trained_tokens"));
}

static void print_notes(const json_t *report) {
    const json_t *thinking = json_object_get(report, "thinking"), *checks, *c;
    size_t i;
    if (number(report, "no_system") > 0)
        printf("  %.0f sample%s no system prompt\n", number(report, "no_system"),
               number(report, "no_system") == 1 ? " has" : "s have");
    if (number(thinking, "think") > 0 || number(thinking, "no_think") > 0)
        printf("  %.0f samples reason, %.0f say that they do not; %.0f prompts have both\n",
               number(thinking, "think"), number(thinking, "no_think"),
               number(thinking, "paired_prompts"));
    if (number(report, "left_out") > 0)
        printf("  %.0f sample%s left out\n", number(report, "left_out"),
               number(report, "left_out") == 1 ? " was" : "s were");
    checks = json_object_get(report, "checks");
    json_array_foreach((json_t *)checks, i, c) printf(
        "  accepted: %s, %.0f time%s, first at %s\n", json_string_value(json_object_get(c, "name")),
        number(c, "count"), plural(c, "count"), json_string_value(json_object_get(c, "first")));
}

void data_print_chat(const json_t *report) {
    const json_t *n = json_object_get(report, "lengths");
    double tokens = number(report, "tokens");
    printf("%s: %.0f sample%s, %.0f of %.0f tokens are trained (%.1f%%)\n",
           json_string_value(json_object_get(report, "kind")), number(report, "samples"),
           plural(report, "samples"), number(report, "trained_tokens"), tokens,
           100 * number(report, "trained_tokens") / fmax(1, tokens));
    printf(
        "  tokens of a conversation: half have up to %.0f, 90%% up to %.0f, 99%% up to %.0f, the "
        "longest has %.0f\n",
        number(n, "p50"), number(n, "p90"), number(n, "p99"), number(n, "max"));
    print_sources(report);
    print_roles(report);
    print_notes(report);
}

static void print_json(const char *out, const chat_build_result *r) {
    bool split = r->valid.tokens > 0;
    shard_totals all = {r->train.tokens + r->valid.tokens, r->train.documents + r->valid.documents,
                        r->train.text_bytes + r->valid.text_bytes};
    json_t *o = data_totals_json(&all);
    json_object_set_new(o, "path", json_cstr(out));
    json_object_set(o, "chat", r->report);
    if (split) {
        json_object_set_new(o, "train", data_totals_json(&r->train));
        json_object_set_new(o, "valid", data_totals_json(&r->valid));
    }
    json_object_set_new(o, "seconds", json_f64(r->seconds));
    cli_print_json(o);
}

static void print_result(const char *out, const chat_build_result *r) {
    bool split = r->valid.tokens > 0;
    data_print_totals(out, split ? "/train" : "", &r->train);
    if (split) data_print_totals(out, "/valid", &r->valid);
    data_print_chat(r->report);
}

static void show_progress(uint64_t samples, uint64_t tokens, double seconds) {
    strbuf line = {0};
    strbuf_printf(&line, "%" PRIu64 " samples  %.2fM tokens  %.0f samples/s", samples,
                  (double)tokens * 1e-6, seconds > 0 ? (double)samples / seconds : 0);
    progress_show(stderr, line.data);
    strbuf_free(&line);
}

static status build(const cli_args *args, const char *tokenizer, const chat_build_options *opt,
                    err *e) {
    chat_build_result r;
    tok *t;
    TRY(tok_load(&t, tokenizer, e));
    status st = chat_build(args->inputs, args->n_inputs, args->output, tokenizer, t, opt, &r, e);
    if (opt->progress) progress_clear(stderr);
    cli_warn_of_lost_bytes(t);
    tok_free(t);
    TRY(st);
    if (args->json)
        print_json(args->output, &r);
    else
        print_result(args->output, &r);
    json_decref(r.report);
    return ST_OK;
}

status data_build_chat(const cli_args *args, err *e) {
    const char *tokenizer = NULL;
    chat_build_options opt = {0};
    json_t *variables = NULL;
    status st = data_chat_options(args, &opt, &variables, e);
    if (st == ST_OK) st = data_get_tokenizer(args, &tokenizer, e);
    if (args->json) log_set_quiet(true);
    if (!args->json && progress_is_live(stderr)) opt.progress = show_progress;
    if (st == ST_OK) st = build(args, tokenizer, &opt, e);
    json_decref(variables);
    return st;
}
