/* The prompt: messages and commands. A mistake is told and the conversation goes on. */
#include <stdio.h>
#include <string.h>

#include "app/chat/chat.h"
#include "app/chat/chat_screen.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

typedef struct repl {
    chat *c;
    chat_screen screen;
    bool done;
} repl;

/* ---- answers ---- */

static void tell_error(const repl *r, const err *e) {
    chat_screen_note(&r->screen, "%s%s%s", e->message, e->hint[0] ? "; " : "", e->hint);
}

static void tell_end(const repl *r) {
    const conversation_answer *a = &r->c->last;
    if (a->result.finish == FINISH_INTERRUPT)
        chat_screen_note(&r->screen, a->ids.n ? "[interrupted]" : "[interrupted before an answer]");
    if (a->result.finish == FINISH_LENGTH)
        chat_screen_note(&r->screen, "[ended after max_new = %ld tokens; /set max_new=N]",
                         (long)r->c->options.max_new);
    if (a->result.finish == FINISH_CONTEXT)
        chat_screen_note(&r->screen, "[the context of %d tokens is full; --ctx N gives more]",
                         r->c->gen.Tmax);
    if (a->n_dropped > 0)
        chat_screen_note(&r->screen,
                         "[the context of %d tokens was nearly full: the %s no longer seen]",
                         r->c->gen.Tmax, a->n_dropped == 1 ? "oldest turn is" : "oldest turns are");
}

/* Answers the last message; takes it back when there is no answer. */
static void answer(repl *r) {
    err e = {0};
    *chat_interrupt_flag() = 0;
    chat_screen_begin_answer(&r->screen);
    status st = chat_answer(r->c, &e);
    chat_screen_end_answer(&r->screen);
    *chat_interrupt_flag() = 0;
    if (st != ST_OK)
        tell_error(r, &e);
    else
        tell_end(r);
    bool none = st != ST_OK || (r->c->last.result.finish == FINISH_INTERRUPT && !r->c->last.ids.n);
    if (none) conversation_undo(&r->c->talk);
    putchar('\n');
}

/* ---- commands ---- */

typedef struct command {
    const char *name, *argument, *help;
    void (*run)(repl *r, const char *argument);
} command;

static void run_help(repl *r, const char *argument);

static void run_system(repl *r, const char *text) {
    conversation *t = &r->c->talk;
    if (*text) {
        conversation_set_system(t, strcmp(text, "none") == 0 ? NULL : text);
        chat_screen_note(&r->screen, "the system message is %s",
                         conversation_system(t) ? "set" : "gone");
    } else {
        const char *now = conversation_system(t);
        chat_screen_note(&r->screen, "%s", now ? now : "there is no system message");
    }
}

static void run_clear(repl *r, const char *argument) {
    (void)argument;
    conversation_clear(&r->c->talk);
    chat_screen_note(&r->screen, "the conversation begins anew");
}

static void run_retry(repl *r, const char *argument) {
    (void)argument;
    if (!conversation_drop_answer(&r->c->talk)) {
        chat_screen_note(&r->screen, "there is no answer to make again");
        return;
    }
    r->c->retries++;
    answer(r);
}

static void run_undo(repl *r, const char *argument) {
    (void)argument;
    bool had = conversation_undo(&r->c->talk);
    chat_screen_note(&r->screen,
                     had ? "the last message and its answer are gone; %ld left"
                         : "there is nothing to take back",
                     (long)conversation_turns(&r->c->talk));
}

static void run_save(repl *r, const char *path) {
    err e = {0};
    strbuf text = {0};
    json_format(&text, r->c->talk.messages, 2);
    strbuf_putc(&text, '\n');
    if (!*path)
        chat_screen_note(&r->screen, "/save needs the name of a file");
    else if (file_write_atomic(path, text.data, text.len, &e) != ST_OK)
        tell_error(r, &e);
    else
        chat_screen_note(&r->screen, "%zu messages in %s", json_array_size(r->c->talk.messages),
                         path);
    strbuf_free(&text);
}

static void run_tokens(repl *r, const char *argument) {
    (void)argument;
    const conversation_answer *a = &r->c->last;
    chat_screen_note(&r->screen, "%ld of %d tokens of context in use", (long)r->c->gen.cached.n,
                     r->c->gen.Tmax);
    if (a->n_prompt == 0) return;
    chat_screen_note(&r->screen, "last prompt: %ld tokens, %ld of them new, %.1f tokens/s",
                     (long)a->n_prompt, (long)(a->n_prompt - a->result.n_reused),
                     a->result.prefill_rate);
    chat_screen_note(&r->screen, "last answer: %ld tokens, %.1f tokens/s", (long)a->ids.n,
                     a->result.decode_rate);
}

static void run_set(repl *r, const char *text) {
    err e = {0};
    strbuf now = {0};
    if (*text && chat_set(r->c, text, &e) != ST_OK) {
        tell_error(r, &e);
    } else {
        chat_describe_options(r->c, &now);
        chat_screen_note(&r->screen, "%s", strbuf_cstr(&now));
    }
    strbuf_free(&now);
}

static void run_exit(repl *r, const char *argument) {
    (void)argument;
    r->done = true;
}

static const command commands[] = {
    {"/help", "", "this list", run_help},
    {"/system", "TEXT", "sets the system message (none: removes it; alone: shows it)", run_system},
    {"/clear", "", "forgets the conversation, except the system message", run_clear},
    {"/retry", "", "answers the last message again", run_retry},
    {"/undo", "", "takes back the last message and its answer", run_undo},
    {"/save", "FILE", "writes the messages as JSON", run_save},
    {"/tokens", "", "tokens in use, and speed", run_tokens},
    {"/set", "KEY=VALUE",
     "temperature, top_k, top_p, min_p, repetition_penalty, seed, max_new, think", run_set},
    {"/exit", "", "ends, as Ctrl-D does", run_exit},
};

static void run_help(repl *r, const char *argument) {
    (void)argument;
    for (int i = 0; i < ARRAY_LEN(commands); i++) {
        char head[40];
        snprintf(head, sizeof head, "%s %s", commands[i].name, commands[i].argument);
        chat_screen_note(&r->screen, "  %-16s %s", head, commands[i].help);
    }
    chat_screen_note(&r->screen,
                     "A line that ends with \\ goes on in the next; \"\"\" alone on a line "
                     "begins and ends a text of several lines, or one that begins with /.");
    chat_screen_note(&r->screen, "Ctrl-C stops an answer; twice, or Ctrl-D, ends the program.");
}

/* A line that begins with a slash. */
static void run_command(repl *r, const char *line) {
    char name[32];
    size_t n = strcspn(line, " ");
    const char *argument = line + n + strspn(line + n, " "), *names[ARRAY_LEN(commands)];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), line);
    for (int i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            commands[i].run(r, argument);
            return;
        }
        names[i] = commands[i].name;
    }
    int near = text_nearest(name, names, ARRAY_LEN(commands));
    chat_screen_note(&r->screen, "there is no command %s; %s%s%s", name,
                     near < 0 ? "/help lists them" : "did you mean ", near < 0 ? "" : names[near],
                     near < 0 ? "" : "?");
}

/* ---- the loop ---- */

static void greet(const repl *r) {
    const char *name = path_base(r->c->name);
    chat_screen_note(&r->screen, "%s, context of %d tokens; /help lists commands, Ctrl-D ends",
                     *name ? name : r->c->name, r->c->gen.Tmax);
}

static bool is_blank(const strbuf *text) {
    const char *s = strbuf_cstr(text);
    return s[strspn(s, " \t\n")] == '\0';
}

void chat_converse(chat *c) {
    repl r = {.c = c};
    strbuf text = {0};
    int interrupts = 0;
    chat_screen_init(&r.screen);
    chat_catch_interrupt();
    c->options.interrupt = chat_interrupt_flag();
    c->options.on_text = chat_screen_text;
    c->options.ctx = &r.screen;
    greet(&r);
    while (!r.done) {
        chat_input in = chat_screen_read(&r.screen, &text);
        interrupts = in == INPUT_INTERRUPT ? interrupts + 1 : 0;
        if (in == INPUT_END || interrupts == 2) break;
        if (in == INPUT_INTERRUPT) {
            chat_screen_note(&r.screen, "Ctrl-C again, or Ctrl-D, ends");
        } else if (in == INPUT_TEXT && text.len > 0 && text.data[0] == '/') {
            run_command(&r, text.data);
        } else if (!is_blank(&text)) {
            c->retries = 0;
            conversation_add_user(&c->talk, text.data, text.len);
            answer(&r);
        }
    }
    strbuf_free(&text);
}
