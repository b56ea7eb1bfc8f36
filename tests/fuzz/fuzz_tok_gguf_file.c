/* libFuzzer target: the metadata of a GGUF file from outside bytes. */
#include "base/gguf.h"
#include "tok_load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (gguf_looks((const char *)data, size)) fuzz_load(data, size, NULL, gguf_load);
    return 0;
}
