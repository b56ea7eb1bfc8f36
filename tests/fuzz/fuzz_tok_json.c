/* libFuzzer target: tokenizer.json from outside bytes. The input is
 *   tokenizer.json | NUL | text
 * What loads encodes the text, decodes the ids and ids that stand in the text, and decodes them as
 * a stream; nothing may crash, read out of bounds or take long. */
#include <string.h>

#include "tok_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    err e = {0};
    tok *t;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    if (tok_parse(&t, (const char *)data, n, "fuzz", &e) != ST_OK) {
        CHECK(e.code == ST_FORMAT && e.message[0], "an error without words");
        return 0;
    }
    use_tok(t, end ? (const char *)end + 1 : "a text", end ? size - n - 1 : 6);
    tok_free(t);
    return 0;
}
