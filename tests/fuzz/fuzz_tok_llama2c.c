/* libFuzzer target: llama2.c's tokenizer.bin from outside bytes. */
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    llama2c_looks((const char *)data, size);
    fuzz_load(data, size, NULL, llama2c_load);
    return 0;
}
