/* The prompt: its terminal (a line from the user, the answer as it comes, and Ctrl-C), messages and
 * commands. A mistake is told and the conversation goes on. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "app/chat/chat.h"
#include "app/frame/progress.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

/* ---- the terminal ---- */

typedef struct screen {
    bool colours;
    bool thinking; /* inside <think> ... </think>, shown dim */
    bool fresh;    /* nothing of this answer is shown yet, or only blanks */
    char last;     /* byte shown */
} screen;

static const char RESET[] = "\x1b[0m", DIM[] = "\x1b[2m", PROMPT[] = "\x1b[1;32m";

static const char *style(const screen *s, const char *code) {
    return s->colours ? code : "";
}

static void screen_init(screen *s) {
    *s = (screen){.colours = progress_has_colours(stdout)};
}

/* ---- Ctrl-C ---- */

/* Process-wide by nature. The flag ends an answer; the event ends the wait at the prompt, whichever
 * thread the signal came to. */
static volatile sig_atomic_t interrupted;
static int interrupt_event = -1;

static void on_interrupt(int signal_number) {
    int saved = errno;
    if (interrupted) _exit(128 + signal_number);
    interrupted = 1;
    eventfd_write(interrupt_event, 1);
    errno = saved;
}

/* Ctrl-C sets the flag from now on; a second one while it is set ends the program. */
static void catch_interrupt(void) {
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    interrupt_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (interrupt_event >= 0) sigaction(SIGINT, &sa, NULL);
}

/* What was pressed before now is forgotten. */
static void forget_interrupt(void) {
    eventfd_t presses = 0;
    eventfd_read(interrupt_event, &presses);
    interrupted = 0;
}

/* ---- input ---- */

typedef enum screen_input { INPUT_TEXT, INPUT_QUOTED, INPUT_INTERRUPT, INPUT_END } screen_input;

/* False when Ctrl-C came before a line. */
static bool wait_for_line(void) {
    struct pollfd in[] = {{.fd = interrupt_event, .events = POLLIN},
                          {.fd = STDIN_FILENO, .events = POLLIN}};
    while (poll(in, ARRAY_LEN(in), -1) < 0 && errno == EINTR) continue;
    bool pressed = (in[0].revents & POLLIN) != 0;
    if (pressed) forget_interrupt();
    return !pressed;
}

/* One line without its end. A terminal gives a line at a time, so none waits in stdio's buffer. */
static screen_input take_line(strbuf *line) {
    char *data = NULL;
    size_t cap = 0;
    ssize_t n = getline(&data, &cap, stdin);
    if (n > 0) strbuf_append(line, data, (size_t)(data[n - 1] == '\n' ? n - 1 : n));
    free(data);
    clearerr(stdin);
    return n < 0 ? INPUT_END : INPUT_TEXT;
}

static screen_input read_line(const screen *s, const char *prompt, strbuf *line) {
    forget_interrupt();
    printf("%s%s%s", style(s, PROMPT), prompt, style(s, RESET));
    fflush(stdout);
    strbuf_clear(line);
    screen_input in = wait_for_line() ? take_line(line) : INPUT_INTERRUPT;
    if (in != INPUT_TEXT) printf("\n");
    return in;
}

static bool is_quotes(const strbuf *line) {
    return line->len == 3 && memcmp(line->data, "\"\"\"", 3) == 0;
}

static screen_input read_quoted(const screen *s, strbuf *line, strbuf *text) {
    for (;;) {
        screen_input in = read_line(s, "... ", line);
        if (in != INPUT_TEXT) return in;
        if (is_quotes(line)) break;
        strbuf_append(text, line->data, line->len);
        strbuf_putc(text, '\n');
    }
    if (text->len > 0) strbuf_truncate(text, text->len - 1);
    return INPUT_QUOTED;
}

/* A message: one line, or several where a line ends with a backslash; or (INPUT_QUOTED) between
 * lines of three quotes. */
static screen_input screen_read(const screen *s, strbuf *text) {
    strbuf line = {0};
    strbuf_clear(text);
    screen_input in = read_line(s, "> ", &line);
    if (in == INPUT_TEXT && is_quotes(&line)) {
        in = read_quoted(s, &line, text);
    } else if (in == INPUT_TEXT) {
        while (in == INPUT_TEXT && line.len > 0 && line.data[line.len - 1] == '\\') {
            strbuf_append(text, line.data, line.len - 1);
            strbuf_putc(text, '\n');
            in = read_line(s, "... ", &line);
        }
        if (in == INPUT_TEXT && line.len > 0) strbuf_append(text, line.data, line.len);
    }
    strbuf_free(&line);
    return in;
}

/* ---- output ---- */

/* Blanks at the beginning are left out. */
static void put_text(screen *s, const char *text, size_t len) {
    while (s->fresh && len > 0 && (*text == ' ' || *text == '\n')) {
        text++;
        len--;
    }
    if (len == 0) return;
    s->fresh = false;
    s->last = text[len - 1];
    cli_print_text(stdout, text, len);
}

/* For generate_request.on_text; ctx is the screen. Control characters of the model's text are made
 * visible: a terminal would obey them. */
static void screen_text(void *ctx, const char *text, size_t len) {
    screen *s = ctx;
    while (len > 0) {
        const char *mark = s->thinking ? "</think>" : "<think>";
        const char *at = memmem(text, len, mark, strlen(mark));
        size_t n = at ? (size_t)(at - text) + (s->thinking ? strlen(mark) : 0) : len;
        put_text(s, text, n);
        text += n;
        len -= n;
        if (!at) break;
        s->thinking = !s->thinking;
        printf("%s", style(s, s->thinking ? DIM : RESET));
    }
    fflush(stdout);
}

static void begin_answer(screen *s) {
    s->thinking = false;
    s->fresh = true;
    s->last = '\n';
}

static void end_answer(screen *s) {
    printf("%s%s", style(s, s->thinking ? RESET : ""), s->last == '\n' ? "" : "\n");
    fflush(stdout);
}

/* A remark of the program, dim and on its own line. */
ATH_PRINTF(2, 3) static void note(const screen *s, const char *fmt, ...) {
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    printf("%s", style(s, DIM));
    if (n > 0) cli_print_text(stdout, text, (size_t)n);
    printf("%s\n", style(s, RESET));
    fflush(stdout);
    free(text);
}

/* ---- the prompt ---- */

typedef struct repl {
    chat *c;
    screen screen; /* where it is shown */
    bool done;
} repl;

/* ---- answers ---- */

static void tell_error(const repl *r, const err *e) {
    note(&r->screen, "%s%s%s", e->message, e->hint[0] ? "; " : "", e->hint);
}

static void tell_end(const repl *r) {
    const conversation_answer *a = &r->c->last;
    if (a->result.finish == FINISH_INTERRUPT)
        note(&r->screen, a->ids.n ? "[interrupted]" : "[interrupted before an answer]");
    if (a->result.finish == FINISH_LENGTH)
        note(&r->screen, "[ended after max_new = %ld token%s; /set max_new=N]",
             (long)r->c->options.max_new, text_s(r->c->options.max_new));
    if (a->result.finish == FINISH_CONTEXT)
        note(&r->screen, "[the context of %d tokens is full; --ctx N gives more]", r->c->gen.Tmax);
    if (a->n_dropped > 0)
        note(&r->screen, "[the context of %d tokens was nearly full: the %s no longer seen]",
             r->c->gen.Tmax, a->n_dropped == 1 ? "oldest turn is" : "oldest turns are");
}

/* Answers the last message; takes it back when there is no answer. */
static void answer(repl *r) {
    err e = {0};
    interrupted = 0;
    begin_answer(&r->screen);
    status st = chat_answer(r->c, &e);
    end_answer(&r->screen);
    interrupted = 0;
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
        note(&r->screen, "the system message is %s", conversation_system(t) ? "set" : "gone");
    } else {
        const char *now = conversation_system(t);
        note(&r->screen, "%s", now ? now : "there is no system message");
    }
}

static void run_clear(repl *r, const char *argument) {
    (void)argument;
    conversation_clear(&r->c->talk);
    note(&r->screen, "the conversation begins anew");
}

static void run_retry(repl *r, const char *argument) {
    (void)argument;
    if (!conversation_drop_answer(&r->c->talk)) {
        note(&r->screen, "there is no answer to make again");
        return;
    }
    r->c->retries++;
    answer(r);
}

static void run_undo(repl *r, const char *argument) {
    (void)argument;
    bool had = conversation_undo(&r->c->talk);
    note(&r->screen,
         had ? "the last message and its answer are gone; %ld left"
             : "there is nothing to take back",
         (long)conversation_turns(&r->c->talk));
}

static void run_save(repl *r, const char *path) {
    err e = {0};
    strbuf text = {0};
    json_format(&text, r->c->talk.messages, 2);
    strbuf_putc(&text, '\n');
    if (!*path || strcmp(path, "-") == 0)
        note(&r->screen, "/save needs the name of a file");
    else if (file_write_atomic(path, text.data, text.len, &e) != ST_OK)
        tell_error(r, &e);
    else
        note(&r->screen, "%zu message%s in %s", json_array_size(r->c->talk.messages),
             text_s((int64_t)json_array_size(r->c->talk.messages)), path);
    strbuf_free(&text);
}

static void run_tokens(repl *r, const char *argument) {
    (void)argument;
    const conversation_answer *a = &r->c->last;
    int64_t used = r->c->engine ? a->n_prompt + a->ids.n : r->c->gen.cached.n;
    bool begun = a->n_prompt > 0 && conversation_turns(&r->c->talk) > 0;
    note(&r->screen, "%ld of %d tokens of context in use", begun ? (long)used : 0, r->c->talk.Tmax);
    if (!begun) return;
    note(&r->screen, "last prompt: %ld token%s, %ld of them new, %.1f tokens/s", (long)a->n_prompt,
         text_s(a->n_prompt), (long)(a->n_prompt - a->result.n_reused), a->result.prefill_rate);
    note(&r->screen, "last answer: %ld token%s, %.1f tokens/s", (long)a->ids.n, text_s(a->ids.n),
         a->result.decode_rate);
    if (a->result.n_tried > 0)
        note(&r->screen, "%ld of %ld tokens that were tried in advance were right",
             (long)a->result.n_right, (long)a->result.n_tried);
}

static void run_set(repl *r, const char *text) {
    err e = {0};
    strbuf now = {0};
    if (*text && chat_set(r->c, text, &e) != ST_OK) {
        tell_error(r, &e);
    } else {
        chat_describe_options(r->c, &now);
        note(&r->screen, "%s", strbuf_cstr(&now));
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
     "temperature, top_k, top_p, min_p, repetition_penalty,\n"
     "                   no_repeat_ngram, seed, max_new, think",
     run_set},
    {"/exit", "", "ends, as Ctrl-D does", run_exit},
};

static void run_help(repl *r, const char *argument) {
    (void)argument;
    for (int i = 0; i < ARRAY_LEN(commands); i++) {
        char head[40];
        snprintf(head, sizeof head, "%s %s", commands[i].name, commands[i].argument);
        note(&r->screen, "  %-16s %s", head, commands[i].help);
    }
    note(&r->screen,
         "A line that ends with \\ goes on in the next; \"\"\" alone on a line begins and\n"
         "ends a text of several lines, or one that begins with /.");
    note(&r->screen, "Ctrl-C stops an answer; twice, or Ctrl-D, ends the program.");
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
    note(&r->screen, "there is no command %s; %s%s%s", name,
         near < 0 ? "/help lists them" : "did you mean ", near < 0 ? "" : names[near],
         near < 0 ? "" : "?");
}

/* ---- the loop ---- */

static void greet(const repl *r) {
    const char *name = path_base(r->c->name);
    note(&r->screen, "%s, context of %d tokens; /help lists commands, Ctrl-D ends",
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
    screen_init(&r.screen);
    catch_interrupt();
    c->options.interrupt = &interrupted;
    c->options.on_text = screen_text;
    c->options.ctx = &r.screen;
    greet(&r);
    while (!r.done) {
        screen_input in = screen_read(&r.screen, &text);
        interrupts = in == INPUT_INTERRUPT ? interrupts + 1 : 0;
        if (in == INPUT_END || interrupts == 2) break;
        if (in == INPUT_INTERRUPT) {
            note(&r.screen, "Ctrl-C again, or Ctrl-D, ends");
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
