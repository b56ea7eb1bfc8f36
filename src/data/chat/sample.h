/* A conversation to learn from, and how records of each form become one. A form is a row of the table in
 * forms.c; messages.c brings the messages of all of them to the one form that templates read. */
#ifndef DATA_CHAT_SAMPLE_H
#define DATA_CHAT_SAMPLE_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* Of one conversation; where the template does not mark answers, each is rendered with all before it. */
enum { CHAT_MAX_MESSAGES = 2000 };

typedef enum chat_kind {
    CHAT_SINGLE, /* a conversation whose answers are learned */
    CHAT_PAIRS,  /* a chosen and a rejected one */
    CHAT_LABELS, /* an answer that is desirable or not */
} chat_kind;

typedef struct chat_sample {
    chat_kind kind;
    json_t *messages; /* objects with "role" and "content", and what else templates read */
    json_t *rejected; /* pairs: the whole rejected conversation; messages is the chosen one */
    size_t n_prompt;  /* messages that are only read; what follows is learned. 0: the answers */
    bool desirable;   /* labels */
    json_t *tools;    /* may be NULL, as those that follow */
    json_t *documents;
    json_t *variables; /* of the template, from chat_template_kwargs */
} chat_sample;
void chat_sample_free(chat_sample *s);

/* ---- forms of records (forms.c) ---- */

typedef struct chat_form chat_form;
/* By its name; NULL: there is none. */
const chat_form *chat_form_find(const char *name);
/* The form that a record has, by its keys; NULL: none. */
const chat_form *chat_form_of(const json_t *record);
const char *chat_form_name(const chat_form *f);
/* "messages, sharegpt, ..." */
const char *chat_form_names(void);
/* ST_USAGE: a column that is missing or of the wrong kind; the message continues "FILE:LINE". */
status chat_form_read(const chat_form *f, const json_t *record, chat_sample *out,
                      err *e) ATH_MUST_USE;
/* Whether a column is read at all; else its contents do not matter. */
bool chat_column_is_read(const char *name);

/* ---- messages (messages.c) ---- */

/* Appends to `out` what a column holds: a text (a message of `role`), one message, or a list of them,
 * with role/content or from/value. Tool calls become objects with "function", their arguments
 * objects. */
status chat_add_messages(json_t *out, const json_t *value, const char *role, const char *column,
                         err *e) ATH_MUST_USE;
json_t *chat_message(const char *role, json_t *content); /* takes content over */
bool chat_is_role(const json_t *message, const char *role);
/* An answer of the assistant whose "weight" is not 0. */
bool chat_is_learned(const json_t *message);
/* What a column holds: a list or an object, or its JSON as a text; the caller's. *out NULL for an empty one,
 * null, and an empty text. */
status chat_read_column(const json_t *value, const char *name, json_type type, json_t **out,
                        err *e) ATH_MUST_USE;
/* Tools as templates read them: a list, from a list or from its text; *out NULL where there are none. */
status chat_read_tools(const json_t *value, json_t **out, err *e) ATH_MUST_USE;

#endif
