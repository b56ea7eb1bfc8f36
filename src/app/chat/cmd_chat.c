/* athanor chat: a conversation with a model, at a prompt, line by line, or one message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/chat/chat.h"
#include "app/frame/cli_ids.h"
#include "base/json.h"
#include "base/log.h"

enum { DEFAULT_CTX = 8192 };

/* Where the tokenizer's own files are. */
static const char *source_of(const chat *c) {
    const char *dir = open_model_text_dir(&c->model);
    return dir ? dir : c->name;
}

static status check_tokenizer(const chat *c, err *e) {
    if (c->model.tok) return ST_OK;
    err_set(e, ST_USAGE, "%s has no tokenizer, so it cannot talk", source_of(c));
    return err_hint(e, "put its tokenizer.json into the folder");
}

static status load(chat *c, const cli_args *args, err *e) {
    int64_t most = model_max_tokens(&c->model.config), ctx;
    TRY(cli_int(args, "ctx", most < DEFAULT_CTX ? most : DEFAULT_CTX, 16, INT32_MAX, &ctx, e));
    if (ctx > most) {
        err_at(e, ST_USAGE, "command line (--ctx)",
               "--ctx %ld is more than the %ld tokens that the model was made for", (long)ctx,
               (long)most);
        return err_hint(e, "leave it out, or give at most %ld", (long)most);
    }
    c->talk.Tmax = (int)ctx;
    const char *draft = cli_value(args, "draft");
    if (!draft) {
        TRY(open_model_load(&c->model, (int)ctx, 0, e));
        c->gen = open_model_generator(&c->model);
        return ST_OK;
    }
    open_model_set_engine(&c->model, (int)ctx, 1, 0);
    TRY(drafting_open(&c->draft, &c->model, draft, dev_threads(c->model.dev), e));
    TRY(open_model_load(&c->model, 0, 0, e));
    c->talk.engine = c->engine = open_model_engine(&c->model);
    drafting_begin(&c->draft, c->engine);
    return ST_OK;
}

/* temperature=0 is a variable of the template, too, as nobody else takes it: it would be passed over. */
static void warn_of_unused(const chat *c) {
    const char *name;
    json_t *value;
    json_object_foreach(c->talk.variables, name,
                        value) if (!chat_template_mentions(c->template, name))
        log_warn("the chat template of %s has no variable '%s': it changes nothing", c->name, name);
}

/* All that can be wrong with options and files is found before the weights are read. */
static status open_chat(chat *c, const cli_args *args, err *e) {
    generation_settings settings = {0};
    int threads;
    c->name = args->inputs[0];
    c->json = args->json;
    TRY(cli_threads(args, &threads, e));
    TRY(open_model_read_on(&c->model, c->name, cli_value(args, "base"), cli_value(args, "device"),
                           threads, e));
    TRY(open_model_set_formats(&c->model, cli_value(args, "cache"), cli_value(args, "precision"),
                               e));
    TRY(check_tokenizer(c, e));
    const tok *open = c->model.gguf ? c->model.tok : NULL;
    TRY(chat_template_load_open(&c->template, source_of(c), open, cli_value(args, "template"), e));
    TRY(chat_template_check(cli_value(args, "template"), c->model.tok, c->name, e));
    TRY(open_model_settings(&c->model, &settings, e));
    conversation_init(&c->talk, &c->gen, c->model.tok, c->template, &settings);
    cli_put_overrides(args, c->talk.variables);
    conversation_set_system(&c->talk, cli_value(args, "system"));
    status st = chat_read_options(c, args, &settings, e);
    if (st == ST_OK) warn_of_unused(c);
    generation_settings_free(&settings);
    return st == ST_OK ? load(c, args, e) : st;
}

status chat_answer(chat *c, err *e) {
    generate_request options = c->options;
    options.sample.seed += c->retries;
    conversation_answer a;
    status st = conversation_answer_last(&c->talk, &options, &a, e);
    conversation_answer_free(st == ST_OK ? &c->last : &a);
    if (st == ST_OK) c->last = a;
    return st;
}

static json_t *answer_json(const chat *c, const conversation_answer *a) {
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "role", "assistant", "content",
        json_text(strbuf_cstr(&a->text), a->text.len), "ids", cli_id_list(a->ids.id, a->ids.n),
        "finish", generate_finish_name(a->result.finish), "prompt_tokens", (json_int_t)a->n_prompt,
        "reused_tokens", (json_int_t)a->result.n_reused, "new_tokens", (json_int_t)a->ids.n,
        "dropped_turns", (json_int_t)a->n_dropped, "prefill_tok_per_s",
        json_f64(a->result.prefill_rate), "decode_tok_per_s", json_f64(a->result.decode_rate));
    if (c->engine) json_object_set_new(o, "drafts", drafting_json(c->engine, &a->result));
    return o;
}

/* One message and its answer. */
static status answer_one(chat *c, const char *text, size_t len, err *e) {
    conversation_add_user(&c->talk, text, len);
    c->options.on_text = c->json ? NULL : cli_print_piece;
    TRY(chat_answer(c, e));
    if (c->json)
        cli_print_json(answer_json(c, &c->last));
    else
        putchar('\n');
    fflush(stdout);
    return ST_OK;
}

/* Each line of standard input is a message, each answer goes to standard output. */
static status answer_lines(chat *c, err *e) {
    char *line = NULL;
    size_t cap = 0;
    status st = ST_OK;
    for (long n = 1; st == ST_OK; n++) {
        ssize_t len = getline(&line, &cap, stdin);
        if (len < 0) break;
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r')) len--;
        if (len > (ssize_t)strspn(line, " \t")) st = answer_one(c, line, (size_t)len, e);
        if (st != ST_OK) err_where(e, "line %ld", n);
    }
    if (st == ST_OK && ferror(stdin)) st = err_unreadable(e, "read", "standard input");
    free(line);
    return st;
}

static status talk(chat *c, const cli_args *args, err *e) {
    const char *prompt = cli_value(args, "prompt");
    if (prompt) return answer_one(c, prompt, strlen(prompt), e);
    if (c->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return answer_lines(c, e);
    chat_converse(c);
    return ST_OK;
}

static void close_chat(chat *c) {
    conversation_answer_free(&c->last);
    conversation_free(&c->talk);
    engine_free(c->engine);
    generator_free(&c->gen);
    drafting_close(&c->draft);
    chat_template_free(c->template);
    open_model_close(&c->model);
}

static status cmd_chat(const cli_args *args, err *e) {
    chat c = {0};
    status st = open_chat(&c, args, e);
    if (st == ST_OK) st = talk(&c, args, e);
    close_chat(&c);
    return st;
}

static const cli_option options[] = {
    {"prompt", "TEXT", "one message, its answer, and out"},
    {"system", "TEXT", "the system message"},
    {"max-new", "N", "at most this many tokens in an answer (2048)"},
    {"temperature", "X", "0 takes the most likely token (the model's, else 0.6)"},
    {"top-k", "K", "keep the K most likely tokens; 0 = all (the model's, else 0)"},
    {"top-p", "P",
     "keep the most likely tokens of mass P; 1 = all, 0 = the first (the model's, else 0.9)"},
    {"min-p", "P", "drop tokens below P times the most likely (the model's, else 0.05)"},
    {"repetition-penalty", "R", "weaken tokens already seen (the model's, else 1 = off)"},
    {"no-repeat-ngram", "N", "no N tokens in a row come twice (the model's, else 0 = off)"},
    {"seed", "N", "of the draws (0)"},
    {"stop", "TEXT", "end an answer before this text"},
    {"ctx", "N", "tokens that a conversation may have (the model's, at most 8192)"},
    {"base", "FOLDER", "an adapter's base model (where the adapter says)"},
    {"cache", "auto|f32|f16", "what keys and values are kept in (auto: f16 for quantised weights)"},
    {"precision", "FORMAT", "auto, fp32, bf16 or fp16: what the model computes in (auto)"},
    CLI_OPTION_DEVICE,
    CLI_OPTION_THREADS,
    {"draft", "WORD|MODEL",
     "try tokens in advance by auto, mtp, ngram or a smaller model; answers are those of none "
     "(without --draft)"},
    {"think", NULL, "let the model reason first (enable_thinking=true)"},
    {"no-think", NULL, "let it answer at once (enable_thinking=false)"},
    {"template", "FILE", "another chat template than the model's"},
    {0}};

static const cli_rule rules[] = {
    {"think", CLI_EXCLUDES, "no-think", "give one of them, or neither: then the template decides"},
    {0}};

const cli_command command_chat = {
    .name = "chat",
    .summary = "talk with a model",
    .usage = "MODEL [--prompt TEXT] [--system TEXT] [--option value] [variable=value...]",
    .run = cmd_chat,
    .options = options,
    .rules = rules,
    .takes_keys = true};
