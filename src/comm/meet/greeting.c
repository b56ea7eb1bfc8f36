/* The bytes of a greeting (see greeting.h). */
#include "comm/meet/greeting.h"

#include <string.h>
#include <sys/random.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/meet/tcp.h"

static const char MAGIC[8] = "ATHRANK2"; /* no NUL; the digit is the format's version */
enum { VERSION_AT = 8, SIZE_AT = VERSION_AT + GREETING_VERSION_BYTES, RANK_AT = SIZE_AT + 4 };
enum { HELLO_NONCE_AT = RANK_AT + 4, NONCE_AT = 8, PROOF_AT = NONCE_AT + GREETING_NONCE_BYTES };
enum { SIDE_RANK_0 = 'A', SIDE_RANK = 'B' }; /* a proof of one side is none of the other */

static void put_nonce(unsigned char *to) {
    size_t got = 0;
    while (got < GREETING_NONCE_BYTES) {
        ssize_t n = getrandom(to + got, GREETING_NONCE_BYTES - got, 0);
        CHECK(n > 0, "the kernel gives no random numbers");
        got += (size_t)n;
    }
}

void greeting_hello(unsigned char hello[GREETING_HELLO_BYTES], const char *version, int size,
                    int rank) {
    memset(hello, 0, GREETING_HELLO_BYTES);
    memcpy(hello, MAGIC, sizeof MAGIC);
    memcpy(hello + VERSION_AT, version, strnlen(version, GREETING_VERSION_BYTES - 1));
    tcp_put_u32(hello + SIZE_AT, (uint32_t)size);
    tcp_put_u32(hello + RANK_AT, (uint32_t)rank);
    put_nonce(hello + HELLO_NONCE_AT);
}

bool greeting_begins(const unsigned char *bytes, size_t n) {
    return memcmp(bytes, MAGIC, n < sizeof MAGIC ? n : sizeof MAGIC) == 0;
}

greeting_claim greeting_read(const unsigned char hello[GREETING_HELLO_BYTES]) {
    greeting_claim c = {.size = tcp_get_u32(hello + SIZE_AT), .rank = tcp_get_u32(hello + RANK_AT)};
    memcpy(c.version, hello + VERSION_AT, GREETING_VERSION_BYTES);
    text_make_plain(c.version);
    return c;
}

/* HMAC (RFC 2104): H(key ^ 0x5c.. | H(key ^ 0x36.. | message)). */
static void prove(unsigned char out[GREETING_PROOF_BYTES], char side, const unsigned char *hello,
                  const unsigned char *nonce, const char *token) {
    uint8_t key[64] = {0}, inner[64], outer[64];
    sha256 s;
    sha256_init(&s);
    sha256_update(&s, token, strlen(token));
    sha256_final(&s, key); /* of any length, so hashed */
    for (size_t i = 0; i < sizeof key; i++) {
        inner[i] = key[i] ^ 0x36;
        outer[i] = key[i] ^ 0x5c;
    }
    sha256_init(&s);
    sha256_update(&s, inner, sizeof inner);
    sha256_update(&s, &side, 1);
    sha256_update(&s, hello, GREETING_HELLO_BYTES);
    sha256_update(&s, nonce, GREETING_NONCE_BYTES);
    sha256_final(&s, out);
    sha256_init(&s);
    sha256_update(&s, outer, sizeof outer);
    sha256_update(&s, out, GREETING_PROOF_BYTES);
    sha256_final(&s, out);
}

static bool is_same(const unsigned char *a, const unsigned char *b) {
    unsigned char differ = 0;
    for (int i = 0; i < GREETING_PROOF_BYTES; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

void greeting_answer(unsigned char answer[GREETING_ANSWER_BYTES],
                     const unsigned char hello[GREETING_HELLO_BYTES], const char *token) {
    memcpy(answer, MAGIC, sizeof MAGIC);
    put_nonce(answer + NONCE_AT);
    prove(answer + PROOF_AT, SIDE_RANK_0, hello, answer + NONCE_AT, token);
}

bool greeting_is_answer(const unsigned char answer[GREETING_ANSWER_BYTES],
                        const unsigned char hello[GREETING_HELLO_BYTES], const char *token) {
    unsigned char want[GREETING_PROOF_BYTES];
    prove(want, SIDE_RANK_0, hello, answer + NONCE_AT, token);
    return greeting_begins(answer, sizeof MAGIC) && is_same(want, answer + PROOF_AT);
}

void greeting_prove(unsigned char proof[GREETING_PROOF_BYTES],
                    const unsigned char answer[GREETING_ANSWER_BYTES],
                    const unsigned char hello[GREETING_HELLO_BYTES], const char *token) {
    prove(proof, SIDE_RANK, hello, answer + NONCE_AT, token);
}

bool greeting_is_proof(const unsigned char proof[GREETING_PROOF_BYTES],
                       const unsigned char answer[GREETING_ANSWER_BYTES],
                       const unsigned char hello[GREETING_HELLO_BYTES], const char *token) {
    unsigned char want[GREETING_PROOF_BYTES];
    greeting_prove(want, answer, hello, token);
    return is_same(want, proof);
}
