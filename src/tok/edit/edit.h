/* The tree of a tokenizer.json that is being changed. */
#ifndef TOK_EDIT_EDIT_H
#define TOK_EDIT_EDIT_H

#include <jansson.h>

#include "tok/internal.h"
#include "tok/tok_edit.h"

typedef struct edit {
    const tok *t;
    json_t *root; /* owned; the others lie in it */
    json_t *model, *vocab, *merges, *added;
} edit;

status edit_open(edit *d, const tok *t, err *e) ATH_MUST_USE;
/* Makes the tokenizer, with the begin and end tokens, the config and the chat template of the old
 * one; gives up the tree. */
status edit_finish(edit *d, tok **out, err *e) ATH_MUST_USE;
void edit_drop(edit *d);

/* Appends to added_tokens; returns the new entry. */
json_t *edit_add_entry(edit *d, int32_t id, const char *content, bool special);
/* ST_USAGE when the ids leave gaps, so that readers would number a new added token otherwise. */
status edit_check_next_id(const edit *d, err *e) ATH_MUST_USE;
/* add.c: ST_USAGE when an added token with this content would hide another. */
status edit_check_hidden(const tok *t, const char *content, err *e) ATH_MUST_USE;
bool edit_is(const edit *d, const char *model_type);
/* model[key] as text; "" when absent. */
const char *edit_option(const edit *d, const char *key);
bool edit_flag(const edit *d, const char *key);

/* The two sides of a merge and its result; false when it names what is not there. */
bool edit_merge_ids(const edit *d, const json_t *merge, int32_t *left, int32_t *right,
                    int32_t *result);

#endif
