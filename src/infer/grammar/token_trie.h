/* The texts of a vocabulary in one list, so that which tokens may follow is found in one walk over
 * it: the nodes of their trie in depth-first order, each with where to go on if its byte cannot come.
 *
 * Made once for a tokenizer, never changed: any number of threads may read it. */
#ifndef INFER_GRAMMAR_TOKEN_TRIE_H
#define INFER_GRAMMAR_TOKEN_TRIE_H

#include "tok/tok.h"

enum { TOKEN_TRIE_DEPTH = 128 /* bytes; longer tokens are left out */ };

typedef struct trie_node {
    uint8_t byte, depth; /* from 1 on */
    int32_t id;          /* a token that ends here; -1: none */
    int32_t skip;        /* the next node that is not below */
} trie_node;

typedef struct token_trie {
    const tok *tok;
    int32_t n_ids;
    trie_node *node;
    int32_t n, cap;
    int32_t *same;      /* [n_ids] another token of the same text; -1: none */
    int32_t first[257]; /* by byte: where the tokens begin that begin with it; the last: n */
    /* Added tokens that are text, such as <tool_call>; not in the list. */
    int32_t *added;
    int32_t n_added, cap_added;
} token_trie;

/* Tokens below n_ids. The tokenizer must outlive it. Added tokens are kept apart: they mark things
 * in a text and are none of its contents. */
token_trie *token_trie_new(const tok *t, int32_t n_ids);
void token_trie_free(token_trie *v); /* NULL is fine */
/* The longest token that text[0..n) begins with, and its length; -1: there is none. */
int32_t token_trie_longest(const token_trie *v, const char *text, size_t n, size_t *len);

#endif
