/* Vocabulary surgery. Each operation makes a new tokenizer and leaves the old one as it is; what
 * cannot be done without changing the meaning of ids that exist is refused by name.
 *
 * The result is a tokenizer.json that Hugging Face readers number in the same way. Its hash differs
 * from the old one's, so shards and checkpoints do not take one for the other.
 *
 * Reading order: edit/edit.h, add.c, prune.c, extend.c. */
#ifndef TOK_TOK_EDIT_H
#define TOK_TOK_EDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "tok/tok.h"

/* Beginning, end and padding of texts, chat template and tokenizer_config.json are those of `from`, as in all results
 * here, unless t was read with a config of its own. */
void tok_edit_follow(tok *t, const tok *from);

/* ---- adding tokens ---- */

/* A token that is found in the text as a whole. The flags are those of tokenizer.json. */
typedef struct tok_new_token {
    const char *content;
    bool special, lstrip, rstrip, single_word, normalized;
} tok_new_token;

typedef struct tok_add_options {
    const tok_new_token *token;
    int n;
    int32_t multiple; /* the vocabulary grows to one with tokens <|reserved_N|>; 0: it does not */
    /* Also what changes how tokens that exist are found: a token of the model becomes an added one
     * with the same id, or a new token hides an added one. */
    bool allow;
} tok_add_options;

/* New ids follow the highest. ST_USAGE: a token that exists, or that hides one (see `allow`). */
status tok_edit_add(const tok *t, const tok_add_options *o, tok **out, err *e) ATH_MUST_USE;

/* ---- pruning ---- */

typedef struct tok_prune_options {
    const int64_t *count; /* [tok_vocab_size]: how often the corpus has each id */
    int64_t min_count;    /* rarer tokens go; 0 is 1 */
    int32_t keep;         /* at most so many tokens stay; 0: no bound */
} tok_prune_options;

typedef struct tok_prune_result {
    int32_t *row; /* [n]: the old id of each new id, for embedding matrices; free() it */
    int32_t n;
    int32_t n_required; /* special and added tokens, and what covers any text */
    int32_t n_used;     /* chosen for their count */
    int32_t n_parts;    /* that their merges need */
} tok_prune_result;

/* Keeps what stays able to represent every text that the tokenizer can: added tokens, the unknown
 * token, bytes, characters (without byte fallback all, with it those used). Of the others the most
 * frequent, with the parts of their merges. Texts whose tokens all stay have the same tokens as
 * before. New ids are dense, in the order of the old. BPE, Unigram and WordPiece. ST_USAGE: `keep`
 * is less than what must stay. */
status tok_edit_prune(const tok *t, const tok_prune_options *o, tok **out, tok_prune_result *r,
                      err *e) ATH_MUST_USE;

/* ---- extending ---- */

typedef struct tok_extend_result {
    int32_t n_tokens; /* new ids, added tokens included */
    int32_t n_added;
    int32_t n_merges;
    int32_t n_known; /* tokens of b that a has */
    int32_t n_left;  /* added tokens of b that are ordinary ones of a, and stay so */
} tok_extend_result;

/* a with the tokens of b that it lacks. Merges of b come after those of a, so that old ones keep
 * their priority; pieces of Unigram keep their scores. ST_USAGE: kinds, normalizers or
 * pre-tokenizers that do not go together; `allow` takes those of a where normalizer, pre-tokenizer
 * or decoder differ. */
status tok_edit_extend(const tok *a, const tok *b, bool allow, tok **out, tok_extend_result *r,
                       err *e) ATH_MUST_USE;

#endif
