/* A conversation to ids and marks, by the chat template of a tokenizer.
 *
 * What is trained. Where the sample has a prompt (n_prompt), all behind it. Else each answer of the
 * assistant (or the last one): the stretch that the template marks with {% generation %}, or, without such
 * marks, what it writes behind the generation prompt: the text of messages 0..i less the text of messages
 * 0..i-1 with add_generation_prompt. So it holds what closes the turn, as in TRL. A token is trained
 * when any of its bytes is.
 *
 * Roles. In trained stretches the assistant's, with its reasoning apart (between <think> and </think>, or what
 * reasoning_content holds); elsewhere the text of each message has that of its role, found in order.
 * What is left is the template. */
#ifndef DATA_CHAT_ENCODE_H
#define DATA_CHAT_ENCODE_H

#include <time.h>

#include "data/chat/sample.h"
#include "data/shard/shards.h"
#include "tok/chat/template.h"

/* all: every answer of a conversation. last: the last one. each: every answer, as a sample of its own with what comes
 * before it as its prompt, for templates that write earlier turns in another way. */
#define CHAT_TRAINS(W)                                                                             \
    W(CHAT_TRAIN_ALL, "all") W(CHAT_TRAIN_LAST, "last") W(CHAT_TRAIN_EACH, "each")
typedef enum chat_train { CHAT_TRAINS(LIST_ENUMERATOR) } chat_train;

typedef struct chat_encoder {
    const tok *tok;
    const chat_template *template;
    const json_t *variables; /* of the template; a sample's own come before them; NULL: none */
    const struct tm *now;    /* for templates that ask for the date */
    chat_train train;        /* not each: chat_encode takes what is to be one sample */
    uint32_t allowed;        /* bits of checks (checks.h) that do not stop */
} chat_encoder;

typedef struct chat_document {
    tok_ids ids;
    uint8_t *marks;    /* [ids.n] */
    size_t text_bytes; /* of the rendered text */
    uint32_t found;    /* bits of checks that fired and are allowed */
    bool ends_by_stop; /* what is trained ends with a token that was added to the vocabulary */
    bool reasons;      /* some of it is reasoning */
} chat_document;
void chat_document_free(chat_document *d);

/* `messages` is s->messages, s->rejected, or others with the same prompt; only the first n are taken.
 * A conversation on which the template fails, where that is allowed, has no tokens. The error names
 * no place. Errors: the template's, and those of the checks (ST_USAGE). */
status chat_encode(const chat_encoder *k, const chat_sample *s, const json_t *messages, size_t n,
                   chat_document *out, err *e) ATH_MUST_USE;

#endif
