/* The terminal of a conversation: a line from the user, the answer as it comes, and Ctrl-C. */
#ifndef APP_CHAT_SCREEN_H
#define APP_CHAT_SCREEN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

typedef struct chat_screen {
    bool colours;
    bool thinking; /* inside <think> ... </think>, shown dim */
    bool fresh;    /* nothing of this answer is shown yet, or only blanks */
    char last;     /* byte shown */
} chat_screen;

void chat_screen_init(chat_screen *s);
/* Ctrl-C sets the flag from now on; a second one while it is set ends the program. */
void chat_catch_interrupt(void);
volatile sig_atomic_t *chat_interrupt_flag(void);

typedef enum chat_input { INPUT_TEXT, INPUT_QUOTED, INPUT_INTERRUPT, INPUT_END } chat_input;
/* A message: one line, or several where a line ends with a backslash; or (INPUT_QUOTED) between
 * lines of three quotes. */
chat_input chat_screen_read(const chat_screen *s, strbuf *text);

/* For generate_request.on_text; ctx is the screen. Control characters of the model's text are made
 * visible: a terminal would obey them. */
void chat_screen_text(void *ctx, const char *text, size_t len);
void chat_screen_begin_answer(chat_screen *s);
void chat_screen_end_answer(chat_screen *s);
/* A remark of the program, dim and on its own line. */
void chat_screen_note(const chat_screen *s, const char *fmt, ...) ATH_PRINTF(2, 3);

#endif
