/* What the files of athanor chat share: a model that talks, and how it is asked.
 *
 * Reading order: cmd_chat.c (opening, one answer, lines from a pipe), chat_repl.c (the prompt),
 * chat_set.c (sampling keys). */
#ifndef APP_CHAT_H
#define APP_CHAT_H

#include "app/frame/cli.h"
#include "infer/conversation.h"
#include "interchange/drafting.h"

typedef struct chat {
    const char *name; /* of the model, as it was given */
    open_model model;
    generator gen;
    drafting draft; /* --draft: the engine writes in place of gen */
    engine *engine; /* NULL: gen does */
    chat_template *template;
    conversation talk;
    generate_request options;
    const char *stop;
    bool json;
    uint64_t retries; /* of the last message: each draws anew */
    /* of the last answer; n_prompt 0: none yet */
    conversation_answer last;
} chat;

/* chat_set.c: the keys of sampling, by their names on the command line and in /set. */
/* Reads the options of the command line over what the model's files say. */
status chat_read_options(chat *c, const cli_args *args, const generation_settings *settings,
                         err *e) ATH_MUST_USE;
/* "key=value" or "key value". */
status chat_set(chat *c, const char *text, err *e) ATH_MUST_USE;
/* "temperature 0.7, top_p 0.95, ..." */
void chat_describe_options(const chat *c, strbuf *out);

/* cmd_chat.c: answers the last message; the text is given to options.on_text as it comes. */
status chat_answer(chat *c, err *e) ATH_MUST_USE;
/* chat_repl.c: messages and commands at a prompt, to the end. */
void chat_converse(chat *c);

#endif
