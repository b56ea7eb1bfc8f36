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
/* Makes the tokenizer, with the begin and end tokens of the old one; gives up the tree. */
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

/* bpe_parts.c: the merge that makes each token of a BPE model, when its own text is encoded. */
enum { PARTS_UNKNOWN = -2 };
typedef struct bpe_parts {
    /* [n_token]; -1: a first symbol, or no merges lead there; left PARTS_UNKNOWN: too long */
    int32_t *left, *right;
} bpe_parts;
void bpe_parts_find(bpe_parts *p, const edit *d);
void bpe_parts_free(bpe_parts *p);
/* A merge is "a b" or ["a", "b"]. */
bool edit_split_merge(const json_t *merge, const char **a, size_t *n_a, const char **b,
                      size_t *n_b);
/* Its two sides and its result; false when it names what is not there. */
bool edit_merge_ids(const edit *d, const json_t *merge, int32_t *left, int32_t *right,
                    int32_t *result);

/* coverage.c: the characters a token is made of, as symbols that the model begins with. */
typedef struct edit_symbols {
    int32_t *id; /* -1: not in the vocabulary */
    int32_t n, cap;
} edit_symbols;
void edit_symbols_of(const edit *d, const tok_token *k, edit_symbols *out);
/* Marks what must stay for any text to stay representable. */
void edit_mark_required(const edit *d, const int64_t *count, bool *keep);

/* renumber.c: calls `fn` on the ids in post-processor and padding, and writes what it returns. */
typedef int32_t edit_id_fn(void *ctx, int32_t id);
void edit_map_other_ids(edit *d, edit_id_fn *fn, void *ctx);
/* Drops what is not kept: new_id[old] is -1, else the new id. */
void edit_renumber(edit *d, const int32_t *new_id);

#endif
