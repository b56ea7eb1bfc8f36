#include "app/chat/chat_screen.h"

#include "app/frame/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char RESET[] = "\x1b[0m", DIM[] = "\x1b[2m", PROMPT[] = "\x1b[1;32m";

static const char *style(const chat_screen *s, const char *code) {
    return s->colours ? code : "";
}

void chat_screen_init(chat_screen *s) {
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    bool plain = !term || strcmp(term, "dumb") == 0 || (no && *no);
    *s = (chat_screen){.colours = isatty(STDOUT_FILENO) && !plain};
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

void chat_catch_interrupt(void) {
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    interrupt_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (interrupt_event >= 0) sigaction(SIGINT, &sa, NULL);
}

volatile sig_atomic_t *chat_interrupt_flag(void) {
    return &interrupted;
}

/* What was pressed before now is forgotten. */
static void forget_interrupt(void) {
    eventfd_t presses = 0;
    eventfd_read(interrupt_event, &presses);
    interrupted = 0;
}

/* ---- input ---- */

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
static chat_input take_line(strbuf *line) {
    char *data = NULL;
    size_t cap = 0;
    ssize_t n = getline(&data, &cap, stdin);
    if (n > 0) strbuf_append(line, data, (size_t)(data[n - 1] == '\n' ? n - 1 : n));
    free(data);
    clearerr(stdin);
    return n < 0 ? INPUT_END : INPUT_TEXT;
}

static chat_input read_line(const chat_screen *s, const char *prompt, strbuf *line) {
    forget_interrupt();
    printf("%s%s%s", style(s, PROMPT), prompt, style(s, RESET));
    fflush(stdout);
    strbuf_clear(line);
    chat_input in = wait_for_line() ? take_line(line) : INPUT_INTERRUPT;
    if (in != INPUT_TEXT) printf("\n");
    return in;
}

static bool is_quotes(const strbuf *line) {
    return line->len == 3 && memcmp(line->data, "\"\"\"", 3) == 0;
}

static chat_input read_quoted(const chat_screen *s, strbuf *line, strbuf *text) {
    for (;;) {
        chat_input in = read_line(s, "... ", line);
        if (in != INPUT_TEXT) return in;
        if (is_quotes(line)) break;
        strbuf_append(text, line->data, line->len);
        strbuf_putc(text, '\n');
    }
    if (text->len > 0) strbuf_truncate(text, text->len - 1);
    return INPUT_QUOTED;
}

chat_input chat_screen_read(const chat_screen *s, strbuf *text) {
    strbuf line = {0};
    strbuf_clear(text);
    chat_input in = read_line(s, "> ", &line);
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
static void put_text(chat_screen *s, const char *text, size_t len) {
    while (s->fresh && len > 0 && (*text == ' ' || *text == '\n')) {
        text++;
        len--;
    }
    if (len == 0) return;
    s->fresh = false;
    s->last = text[len - 1];
    cli_print_text(stdout, text, len);
}

void chat_screen_text(void *ctx, const char *text, size_t len) {
    chat_screen *s = ctx;
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

void chat_screen_begin_answer(chat_screen *s) {
    s->thinking = false;
    s->fresh = true;
    s->last = '\n';
}

void chat_screen_end_answer(chat_screen *s) {
    printf("%s%s", style(s, s->thinking ? RESET : ""), s->last == '\n' ? "" : "\n");
    fflush(stdout);
}

void chat_screen_note(const chat_screen *s, const char *fmt, ...) {
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
