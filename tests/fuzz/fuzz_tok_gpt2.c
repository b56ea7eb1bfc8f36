/* libFuzzer target: vocab.json and merges.txt from outside bytes. The input is
 *   vocab.json | NUL | merges.txt */
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static status load(tok_input *in, tok **out) {
    const char *end = memchr(in->bytes, 0, in->len + 1);
    size_t n = (size_t)(end - in->bytes);
    gpt2_texts f = {in->bytes, n, n < in->len ? end + 1 : end, n < in->len ? in->len - n - 1 : 0};
    return gpt2_from_texts(in, &f, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_load(data, size, NULL, load);
    return 0;
}
