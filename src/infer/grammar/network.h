/* A recursive transition network over bytes (Woods 1970): what a text may be.
 *
 * A rule is a small automaton whose edges read a byte or call a rule and go on where that returns. So nesting
 * costs a stack at run time (acceptor.h) and no states here, and recursion is exact.
 *
 * Networks are built from the end: each function takes the state that follows and returns the
 * state before it. NET_DEAD accepts nothing, and whatever leads there only is left out. All rules end in
 * NET_END. A network has a limited number of states; beyond it `full` is set, and what is built is
 * of no use.
 *
 * net_finish finds the byte classes and, for each state, the fewest bytes to the end of its rule, with the
 * way there (Knuth 1977, "A generalization of Dijkstra's algorithm"): a state of which there is no
 * end is as dead. */
#ifndef INFER_GRAMMAR_NETWORK_H
#define INFER_GRAMMAR_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_DEAD, NET_END };
enum { NET_MAX_STATES = 1 << 20, NET_MAX_RULES = 1 << 14, NET_NO_RULE = -1, NET_NEAR = 128 };
#define NET_FAR UINT32_MAX

typedef enum net_kind {
    NET_BYTE,  /* a byte of lo..hi, then a */
    NET_SPLIT, /* a or b */
    NET_CALL,  /* rule a, then b */
    NET_RETURN /* of NET_END */
} net_kind;

typedef struct net_state {
    uint8_t kind, lo, hi;
    bool wrapper : 1; /* of text around JSON: added tokens may spell it */
    bool second : 1;  /* of a split: b is on the shortest way to the end */
    int32_t a, b;
    int32_t alike; /* another state that the next NET_NEAR bytes cannot tell from it; 0: none */
} net_state;

typedef struct network {
    net_state *state;
    int32_t n, cap;
    int32_t *rule; /* where each begins; NET_DEAD until net_set_rule */
    int32_t n_rules, cap_rules;
    bool full, wraps, likens; /* wraps: some state is `wrapper`; likens: some has one alike */
    uint32_t *dist; /* [n] bytes to the end of the rule at least; NET_FAR: it has no end */
    uint8_t class_of[256];
    int n_classes;
    uint8_t byte_of[256]; /* one of each class */
} network;

void net_init(network *n);
void net_free(network *n);

int32_t net_byte(network *n, uint8_t lo, uint8_t hi, int32_t next);
int32_t net_split(network *n, int32_t a, int32_t b);
int32_t net_call(network *n, int32_t rule, int32_t next);
/* A state that can be gone to before it is known what it does: net_set makes it a NET_SPLIT. */
int32_t net_reserve(network *n);
void net_set(network *n, int32_t state, int32_t a, int32_t b);
/* Says that a state is as another. */
void net_liken(network *n, int32_t state, int32_t alike);
int32_t net_new_rule(network *n);
void net_set_rule(network *n, int32_t rule, int32_t start);

int32_t net_text(network *n, const char *text, size_t len, bool wrapper, int32_t next);
/* min to max bytes of lo..hi. */
int32_t net_bytes(network *n, uint8_t lo, uint8_t hi, int min, int max, int32_t next);
/* A character of the code points lo..hi as UTF-8; surrogates are none. */
int32_t net_char(network *n, uint32_t lo, uint32_t hi, int32_t next);

/* False: too many sweeps over a network that refers to itself in too many places. */
bool net_finish(network *n);

#endif
