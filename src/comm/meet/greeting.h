/* How a rank and rank 0 prove to each other that they belong to one run.
 *
 *     rank r                                              rank 0
 *     hello: magic, version, world, rank, nonce  ---->
 *                       <----  answer: magic, nonce, proof that rank 0 knows the token
 *     proof that rank r knows the token          ---->
 *
 * The token (ATHANOR_TOKEN) is a secret of the run and never travels: a proof is the HMAC-SHA256,
 * with the token as its key, of the side that proves, the hello and the nonce of the answer. Both
 * sides choose a nonce, so a proof that somebody overheard is of no use later. What comes after the
 * greeting is neither encrypted nor signed. Without a token ("") everybody can give a proof: then
 * the greeting keeps out only programs that are no ranks at all.
 *
 * These functions only make and check bytes; rendezvous.c and reception.c send them and wait for
 * them. Numbers are little-endian. */
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

/* What a hello says. It may be false. */
typedef struct greeting_claim {
    char version[GREETING_VERSION_BYTES + 1]; /* a plain line */
    uint32_t size, rank;                      /* not checked */
} greeting_claim;

/* A rank's hello, with a fresh nonce. */
void greeting_hello(unsigned char hello[GREETING_HELLO_BYTES], const char *version, int size,
                    int rank);
/* Whether the first n bytes that were received may begin a hello, or an answer. */
bool greeting_begins(const unsigned char *bytes, size_t n);
greeting_claim greeting_read(const unsigned char hello[GREETING_HELLO_BYTES]);

/* Rank 0's answer to a hello, and whether an answer shows that its sender knows the token. */
void greeting_answer(unsigned char answer[GREETING_ANSWER_BYTES],
                     const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
bool greeting_is_answer(const unsigned char answer[GREETING_ANSWER_BYTES],
                        const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
/* Makes and checks the proof of a rank. The comparison takes the same time for any bytes. */
void greeting_prove(unsigned char proof[GREETING_PROOF_BYTES],
                    const unsigned char answer[GREETING_ANSWER_BYTES],
                    const unsigned char hello[GREETING_HELLO_BYTES], const char *token);
bool greeting_is_proof(const unsigned char proof[GREETING_PROOF_BYTES],
                       const unsigned char answer[GREETING_ANSWER_BYTES],
                       const unsigned char hello[GREETING_HELLO_BYTES], const char *token);

#endif
