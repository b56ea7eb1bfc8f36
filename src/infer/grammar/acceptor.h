/* Runs a network: which states a text can have come to, as one number.
 *
 * A place is a state of the network and the stack of states to return to; a set of places is
 * numbered when it is first met, and what a byte makes of it is kept (a lazy DFA, as in RE2). So the inside of a string,
 * say, costs a look-up for each byte. What is kept is limited: acceptor_forget drops all but the
 * sets that texts stand at.
 *
 * Sets of more than ACCEPTOR_MOST places keep the first ones. That allows less and nothing wrong: from each
 * place there is a way to the end.
 *
 * One thread at a time. Reading order: acceptor_step, close_over. */
#ifndef INFER_GRAMMAR_ACCEPTOR_H
#define INFER_GRAMMAR_ACCEPTOR_H

#include "infer/grammar/network.h"

enum { ACCEPTOR_DEAD = 0, ACCEPTOR_MOST = 2048 };

typedef struct place {
    int32_t state, stack; /* stack 0: empty */
} place;

typedef struct place_stack {
    int32_t state, below; /* what is returned to */
    uint32_t dist;        /* bytes from there to the end of the text at least */
} place_stack;

typedef struct place_set {
    const place *place;
    int32_t n;
    bool final;    /* the text may end here */
    uint32_t dist; /* bytes to the end at least */
    int32_t *to;   /* [n_classes] what each byte leads to; -1: not known yet */
    int32_t next;  /* of the same hash */
    int64_t bound; /* tokens to the end (grammar.c); -1: not known yet */
} place_set;

typedef struct acceptor acceptor;
struct acceptor {
    const network *net;
    place_set *set; /* 0 is the dead one */
    int32_t n_sets, cap_sets;
    struct place_memory *memory;
    int32_t start;
    int64_t work; /* places looked at, ever */
};

acceptor *acceptor_new(const network *net); /* kept */
void acceptor_free(acceptor *m);            /* NULL is fine */
/* The set after a byte; ACCEPTOR_DEAD: it cannot come. */
int32_t acceptor_step(acceptor *m, int32_t set, uint8_t byte);
/* The same, by edges of wrappers alone. */
int32_t acceptor_step_wrapper(acceptor *m, int32_t set, uint8_t byte);
/* A set that the next NET_NEAR bytes cannot tell from it, the same for many. */
int32_t acceptor_alike(acceptor *m, int32_t set);
/* Appends the bytes of the shortest way from a place to the end, at most n; returns how many. */
size_t acceptor_shortest(const acceptor *m, place p, char *out, size_t n);
/* Whether so much is kept that it should be dropped. */
bool acceptor_is_large(const acceptor *m);
/* Drops all but the n sets of `keep`, which get new numbers. */
void acceptor_forget(acceptor *m, int32_t *const *keep, int n);

#endif
