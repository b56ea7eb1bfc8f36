/* libFuzzer target: a vocab.txt from outside bytes. */
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_load(data, size, NULL, bert_load);
    return 0;
}
