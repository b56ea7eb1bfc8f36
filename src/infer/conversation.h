/* A conversation with a model: messages, the text that its chat template makes of them, and
 * answers.
 *
 * Each answer renders the whole conversation anew, as transformers does, and gives it to the
 * generator, which computes only what is new to its cache. So undoing, retrying and forgetting are
 * plain changes of the list of messages, and the ids are always those of a fresh run.
 *
 * When the context is nearly full, the oldest turns are left out of what the model sees until half
 * of it is free (so that this, which has the rest computed anew, is rare); the messages stay. */
#ifndef INFER_CONVERSATION_H
#define INFER_CONVERSATION_H

#include <time.h>

#include "infer/generate.h"
#include "infer/settings.h"
#include "tok/chat/template.h"

typedef struct conversation {
    generator *gen;
    const tok *tok;
    const chat_template *template;
    json_t *messages;  /* a system message, if any, then user and assistant in turn */
    json_t *variables; /* of the template, such as enable_thinking */
    tok_ids end;       /* ids that end an answer */
    size_t first_seen; /* messages from here on, and the system message, are seen */
    struct tm began;   /* for templates that print the date */
} conversation;

/* `settings` say which ids end an answer; added is the token that the template puts after what an
 * assistant says. The other pointers are kept. */
void conversation_init(conversation *c, generator *gen, const tok *t, const chat_template *template,
                       const generation_settings *settings);
void conversation_free(conversation *c);

/* NULL or empty: no system message. */
void conversation_set_system(conversation *c, const char *text);
const char *conversation_system(const conversation *c); /* NULL: none */
void conversation_add_user(conversation *c, const char *text, size_t len);
/* Forgets all but the system message. */
void conversation_clear(conversation *c);
/* Takes the last answer away, so that the message before it can be answered again; false: none. */
bool conversation_drop_answer(conversation *c);
/* Takes away the last message of the user and what followed; false: none. */
bool conversation_undo(conversation *c);
/* Messages of the user. */
int64_t conversation_turns(const conversation *c);

typedef struct conversation_answer {
    strbuf text;
    tok_ids ids;
    generate_result result;
    int64_t n_prompt;  /* tokens of the conversation up to the answer, as the model sees it */
    int64_t n_dropped; /* turns that it has ceased to see with this answer */
    double prefill_rate, decode_rate; /* tokens per second; 0: nothing was computed */
} conversation_answer;

/* Answers the last message of the user and keeps the answer, also one that was interrupted. Of the
 * request only sampling, max_new, stop, interrupt, on_text and ctx are read. On failure, and when
 * an answer is interrupted before its first token, the conversation is as before. ST_USAGE: the
 * last message alone does not fit. */
status conversation_answer_last(conversation *c, const generate_request *options,
                                conversation_answer *a, err *e) ATH_MUST_USE;
void conversation_answer_free(conversation_answer *a);

#endif
