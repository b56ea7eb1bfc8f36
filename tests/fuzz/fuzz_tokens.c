/* libFuzzer target: token files without an index of Megatron. The input is
 *   u16 length of the index | index | the same for the metadata | tokens
 * which are read as nanotron's, llm.c's, NumPy's and headerless files. */
#include "token_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    token_file index = token_file_take(&data, &size), metadata = token_file_take(&data, &size);
    token_file tokens = {data, size};
    token_file_put(".ds.index", index);
    token_file_put(".ds.metadata", metadata);
    token_file_put(".ds", tokens);
    token_file_put(".npy", tokens);
    token_set_try(".ds", SHARDS_AUTO, 0);
    token_set_try(".npy", SHARDS_AUTO, 0);
    token_set_try(".npy", SHARDS_LLMC, 0);
    token_set_try(".npy", SHARDS_NANOGPT, 4);
    return 0;
}
