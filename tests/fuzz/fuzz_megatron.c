/* libFuzzer target: Megatron's data sets. The input is u16 length of the .bin | .bin | .idx. */
#include "token_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    token_file bin = token_file_take(&data, &size), idx = {data, size};
    token_file_put(".bin", bin);
    token_file_put(".idx", idx);
    token_set_try("", SHARDS_MEGATRON, 0);
    token_set_try(".bin", SHARDS_AUTO, 0);
    return 0;
}
