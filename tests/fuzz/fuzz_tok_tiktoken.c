/* libFuzzer target: a file of tiktoken ranks from outside bytes. */
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tiktoken_looks((const char *)data, size);
    fuzz_load(data, size, "llama3", tiktoken_load);
    return 0;
}
