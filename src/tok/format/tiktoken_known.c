/* Published rank files; see tiktoken.h. */
#include <string.h>

#include "tok/format/tiktoken.h"

#define ONE(content, id)                                                                           \
    { content, id, 0, 1 }

static const known_ranks KNOWN[] = {
    {"r50k_base", 0, "gpt2", {ONE("<|endoftext|>", 50256)}},
    {"p50k_base", 0, "gpt2", {ONE("<|endoftext|>", 50256)}},
    {"p50k_edit",
     0,
     "gpt2",
     {ONE("<|endoftext|>", 50256), ONE("<|fim_prefix|>", 50281), ONE("<|fim_middle|>", 50282),
      ONE("<|fim_suffix|>", 50283)}},
    {"cl100k_base",
     0,
     "cl100k",
     {ONE("<|endoftext|>", 100257), ONE("<|fim_prefix|>", 100258), ONE("<|fim_middle|>", 100259),
      ONE("<|fim_suffix|>", 100260), ONE("<|endofprompt|>", 100276)}},
    {"o200k_base", 0, "o200k", {ONE("<|endoftext|>", 199999), ONE("<|endofprompt|>", 200018)}},
    {"qwen.tiktoken",
     151643,
     "qwen2",
     {ONE("<|endoftext|>", 151643),
      ONE("<|im_start|>", 151644),
      ONE("<|im_end|>", 151645),
      {"<|extra_%d|>", 151646, 0, 205}}},
    /* Kimi K2, Moonlight; the names of some of the reserved tokens stand in the config. */
    {"tiktoken.model", 163584, "kimi-k2", {ONE("[BOS]", 163584), ONE("[EOS]", 163585)}},
    /* Llama 3; 3.1 and later give names to some of the reserved ones, in the config. */
    {"tokenizer.model",
     128000,
     "llama3",
     {ONE("<|begin_of_text|>", 128000), ONE("<|end_of_text|>", 128001)}},
};

const known_ranks *known_ranks_find(const char *base, int32_t n_ranks) {
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strncmp(base, KNOWN[i].file, strlen(KNOWN[i].file)) != 0) continue;
        if (KNOWN[i].n_ranks == 0 || KNOWN[i].n_ranks == n_ranks) return &KNOWN[i];
    }
    return NULL;
}
