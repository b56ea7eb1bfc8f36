/* A conversation: a list of messages, and answers to the last of them. `athanor chat` has one.
 *
 *   messages  --chat template-->  text  --tokenizer-->  ids  --generator, sampler-->  answer
 *
 * Every answer goes this way from the first message on, as transformers does; the generator computes only what its
 * cache does not hold. So undoing, retrying and forgetting are plain changes of the list, and the ids are the same
 * as in a fresh program that is given the same messages.
 *
 * When the context is nearly full, the model ceases to see the oldest turns, until half of the context is free:
 * what is left must be computed anew, so this should be rare. The messages stay in the list. */
#ifndef INFER_CONVERSATION_H
#define INFER_CONVERSATION_H

#include <time.h>

#include "infer/engine.h"
#include "infer/settings.h"
#include "tok/chat/template.h"

typedef struct conversation {
    generator *gen; /* these are the caller's; gen NULL: others write the answers */
    engine *engine; /* not NULL: it writes in place of gen */
    const tok *tok;
    const chat_template *template;
    json_t *messages;  /* a system message, if any, then user and assistant in turn */
    json_t *variables; /* of the template, such as enable_thinking, and "tools" */
    int Tmax;    /* tokens that the context holds; the caller says so before the first answer */
    tok_ids end; /* ids that end an answer */
    size_t first_seen; /* the model sees the system message and the messages from this one on */
    struct tm began;   /* what templates print as the date */
} conversation;

/* An answer ends at the ids of `settings`, and at the special token that the template writes after what an assistant
 * says: a trial conversation is rendered to find it. `settings` is read; the other pointers are kept. */
void conversation_init(conversation *c, generator *gen, const tok *t, const chat_template *template,
                       const generation_settings *settings);
void conversation_free(conversation *c);

/* NULL or empty: no system message. */
void conversation_set_system(conversation *c, const char *text);
const char *conversation_system(const conversation *c); /* NULL: none */
void conversation_add_user(conversation *c, const char *text, size_t len);
/* role: "user", "assistant", "tool", or what else the template knows. */
void conversation_add(conversation *c, const char *role, const char *text, size_t len);
/* Forgets all but the system message. */
void conversation_clear(conversation *c);
/* Takes the last answer away, so that the message before it can be answered again; false: none. */
bool conversation_drop_answer(conversation *c);
/* Takes away the last message of the user and what followed; false: none. */
bool conversation_undo(conversation *c);
/* How many messages of the user there are. */
int64_t conversation_turns(const conversation *c);

/* The text of the whole conversation, up to where the answer begins. */
status conversation_render(const conversation *c, strbuf *text, err *e) ATH_MUST_USE;
/* What the model would see for an answer of up to max_new tokens: ids, and their text (may be NULL).
 * Turns are left out as for conversation_answer_last, which does this first; *n_dropped says how
 * many. */
status conversation_prompt(conversation *c, int64_t max_new, tok_ids *ids, strbuf *text,
                           int64_t *n_dropped, err *e) ATH_MUST_USE;

typedef struct conversation_answer {
    strbuf text;
    tok_ids ids;
    generate_result result;
    int64_t n_prompt;  /* tokens before the answer that the model sees */
    int64_t n_dropped; /* turns that it sees no longer since this answer */
} conversation_answer;

/* Answers the last message of the user; the answer becomes a message, also when it was interrupted. Of `options` only
 * sample, max_new, stop, interrupt, on_text and ctx are read. On failure, and when it is interrupted before its
 * first token, the conversation stays as it was. ST_USAGE: the last message does not fit even alone; ST_FORMAT: the
 * template refuses the messages. Free the answer with conversation_answer_free. */
status conversation_answer_last(conversation *c, const generate_request *options,
                                conversation_answer *a, err *e) ATH_MUST_USE;
void conversation_answer_free(conversation_answer *a);

#endif
