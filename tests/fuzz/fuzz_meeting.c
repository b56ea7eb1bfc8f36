/* libFuzzer target: what strangers say where ranks meet: greetings, and frames of a failure. Whatever
 * comes is read within its bounds, proves nothing, and becomes plain lines of text. */
#include <string.h>

#include "base/utf8.h"
#include "comm/meet/frame.h"
#include "comm/meet/greeting.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* An err may have cut the last character. */
static void check_plain(const char *text) {
    size_t n = strlen(text);
    n -= (size_t)utf8_open_tail(text, n);
    CHECK(utf8_valid_prefix(text, n) == n, "bytes that are not UTF-8");
    for (size_t i = 0; i < n; i++)
        CHECK((uint8_t)text[i] >= 0x20 && text[i] != 0x7f, "a control character");
}

static void take_greeting(const uint8_t *data, size_t len) {
    unsigned char hello[GREETING_HELLO_BYTES] = {0}, answer[GREETING_ANSWER_BYTES] = {0},
                  proof[GREETING_PROOF_BYTES] = {0};
    if (!greeting_begins(data, len)) return;
    memcpy(hello, data, len < sizeof hello ? len : sizeof hello);
    greeting_claim claim = greeting_read(hello);
    check_plain(claim.version);
    if (len > sizeof hello) {
        data += sizeof hello;
        len -= sizeof hello;
        memcpy(answer, data, len < sizeof answer ? len : sizeof answer);
        memcpy(proof, data, len < sizeof proof ? len : sizeof proof);
    }
    CHECK(!greeting_is_answer(answer, hello, "a secret"), "an answer without the token");
    CHECK(!greeting_is_proof(proof, answer, hello, "a secret"), "a proof without the token");
}

static void take_failure(const uint8_t *data, size_t len) {
    char words[FRAME_MOST_WORDS + 3];
    err e = {0};
    if (len < FRAME_HEAD_BYTES) return;
    frame_head head = frame_read_head(data);
    if (!head.good) return;
    data += FRAME_HEAD_BYTES;
    len -= FRAME_HEAD_BYTES;
    if (len > FRAME_MOST_WORDS) len = FRAME_MOST_WORDS;
    if (len > 0) memcpy(words, data, len);
    status st = frame_read_failure(head.status, words, len, &e);
    CHECK(st == ST_USAGE || st == ST_STOPPED || st == ST_RANK, "status %d", (int)st);
    check_plain(e.hint);
    check_plain(e.where);
    CHECK(e.message[0], "no message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    take_greeting(data, len);
    take_failure(data, len);
    return 0;
}
