/* How a rank and rank 0 find out that they belong to one run, before either believes the other.
 *
 *     rank r                                              rank 0
 *     hello: magic, version, world, rank, nonce  ---->
 *                       <----  answer: magic, nonce, proof that rank 0 knows the token
 *     proof that rank r knows the token          ---->
 *
 * The token (ATHANOR_TOKEN) is a secret of the run and never travels: a proof is the HMAC-SHA256,
 * with the token as its key, of the side that proves, the hello and the nonce of the answer. Both
 * sides choose a nonce, so what was heard once proves nothing later. What comes after is neither
 * encrypted nor signed. Without a token ("") everybody can prove it: then only programs that are
 * no ranks at all are kept out.
 *
 * These functions only turn bytes into bytes; who sends and waits is in rendezvous.c and
 * reception.c. Numbers are little-endian. */
#ifndef COMM_GREETING_H
#define COMM_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GREETING_NONCE_BYTES = 32,
    GREETING_PROOF_BYTES = 32,
    GREETING_VERSION_BYTES = 24,
    GREETING_HELLO_BYTES = 8 + GREETING_VERSION_BYTES + 4 + 4 + GREETING_NONCE_BYTES,
    GREETING_ANSWER_BYTES = 8 + GREETING_NONCE_BYTES + GREETING_PROOF_BYTES,
};

/* What a hello claims. */
typedef struct greeting_claim {
    char version[GREETING_VERSION_BYTES + 1]; /* a plain line */
    uint32_t size, rank;                      /* anything */
} greeting_claim;

/* A rank's hello, with a fresh nonce. */
void greeting_hello(unsigned char hello[GREETING_HELLO_BYTES], const char *version, int size,
                    int rank);
/* Whether the first n bytes that came may be those of a hello, or of an answer. */
bool greeting_begins(const unsigned char *bytes, size_t n);
greeting_claim greeting_read(const unsigned char hello[GREETING_HELLO_BYTES]);

/* Rank 0's answer to a hello, and whether an answer shows that its sender knows the token. */
void greeting_answer(unsigned char answer[GREETING_ANSWER_BYTES],
                     const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
bool greeting_is_answer(const unsigned char answer[GREETING_ANSWER_BYTES],
                        const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
/* The rank's proof, and whether it is one. Compared in a time that tells nothing. */
void greeting_prove(unsigned char proof[GREETING_PROOF_BYTES],
                    const unsigned char answer[GREETING_ANSWER_BYTES],
                    const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
bool greeting_is_proof(const unsigned char proof[GREETING_PROOF_BYTES],
                       const unsigned char answer[GREETING_ANSWER_BYTES],
                       const unsigned char hello[GREETING_HELLO_BYTES], const char *token);

#endif
