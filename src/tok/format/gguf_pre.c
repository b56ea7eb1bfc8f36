/* Names of pre-tokenizers in llama.cpp, as of its src/llama-vocab.cpp in 2026. Patterns stand in
 * tok/pretok/patterns.c. */
#include <string.h>

#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"

bool gguf_pre_ignores_merges(const char *pre) {
    return tok_words_have("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 "
                          "jina-v5-nano minicpm5 youtu tekken granite-embed-multi-97m",
                          pre);
}

bool gguf_pre_adds_bos(const char *pre) {
    return tok_words_have("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 "
                          "jina-v5-nano tekken chameleon",
                          pre);
}

const char *gguf_pre_of(const char *ours) {
    static const char *const NAMES[][2] = {
        {"gpt2", "gpt-2"},
        {"llama3", "llama-bpe"},
        {"qwen2", "qwen2"},
        {"bailingmoe", "bailingmoe"},
        {"qwen35", "qwen35"},
        {"ufakzeka", "ufakzeka"},
        {"minicpm5", "minicpm5"},
        {"laguna", "laguna"},
        {"seed-coder", "seed-coder"},
        {"jais-2", "jais-2"},
        {"exaone-moe", "exaone-moe"},
        {"o200k", "gpt-4o"},
        {"tiny_aya", "tiny_aya"},
        {"youtu", "youtu"},
        {"tekken", "tekken"},
        {"kimi-k2", "kimi-k2"},
        {"smollm", "smollm"},
        {"deepseek-v3", "deepseek-v3"},
        {"deepseek-coder", "deepseek-coder"},
        {"deepseek-llm", "deepseek-llm"},
        {"falcon", "falcon"},
        {"bloom", "bloom"},
        {"viking", "viking"},
        {"superbpe", "superbpe"},
    };
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        if (strcmp(NAMES[i][0], ours) == 0) return NAMES[i][1];
    }
    return NULL;
}

gguf_tokenizer gguf_tokenizer_empty(void) {
    return (gguf_tokenizer){.bos = -1,
                            .eos = -1,
                            .unk = -1,
                            .sep = -1,
                            .pad = -1,
                            .cls = -1,
                            .mask = -1,
                            .eot = -1,
                            .add_bos = GGUF_ABSENT,
                            .add_eos = GGUF_ABSENT,
                            .add_sep = GGUF_ABSENT,
                            .add_space_prefix = GGUF_ABSENT,
                            .remove_extra_whitespaces = GGUF_ABSENT,
                            .lowercase = GGUF_ABSENT,
                            .strip_accents = GGUF_ABSENT};
}
