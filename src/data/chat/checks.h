/* The hard stops of chat data: a table with a row for each mistake that trains a model on something else than was meant.
 * A stop ends the build with a sentence that names the first conversation; data.allow (allow=) accepts it by name, and
 * then it is counted in the set's chat.json. */
#ifndef DATA_CHAT_CHECKS_H
#define DATA_CHAT_CHECKS_H

#include "data/chat/encode.h"

typedef enum chat_check {
    CHECK_NOTHING_TRAINED,
    CHECK_EVERYTHING_TRAINED,
    CHECK_TWO_BOS,
    CHECK_PREFIX_CHANGES,
    CHECK_SYSTEM_DROPPED,
    CHECK_TOOLS_DROPPED,
    CHECK_TEMPLATE_FAILS,
    /* of the whole set */
    CHECK_STOP_UNTRAINED,
    CHECK_EMPTY_COLUMN,
    CHECK_TRUNCATED, /* by who knows how long a sequence is: train/course */
    CHAT_CHECKS
} chat_check;

typedef struct chat_check_row {
    const char *name; /* "two_bos" */
    const char *what; /* a sentence about a conversation, or about the set */
    const char *hint;
    const char *allowed; /* what happens where it is allowed */
} chat_check_row;
extern const chat_check_row chat_checks[CHAT_CHECKS];

/* "nothing_trained,..." to bits. ST_USAGE: no such name. */
status chat_checks_parse(const char *const *names, int n, uint32_t *bits, err *e) ATH_MUST_USE;
/* The error of a check; detail may be NULL. */
status chat_check_error(chat_check c, const char *detail, err *e) ATH_MUST_USE;

/* What the checks of one conversation look at. */
typedef struct chat_view {
    const chat_encoder *k;
    const json_t *messages;
    size_t n;
    const json_t *tools; /* may be NULL */
    const char *text;    /* as rendered */
    size_t text_bytes;
    const chat_document *doc;
    bool stable;      /* no turn was written in another way before the ones behind it came */
    bool system_kept; /* true also without a system prompt */
    bool tools_kept;  /* false: the text is the same without tools, or without calls */
} chat_view;
/* Runs them: the first that fires and is not allowed is the error; others go to `found`. */
status chat_checks_run(const chat_view *v, uint32_t *found, err *e) ATH_MUST_USE;

#endif
