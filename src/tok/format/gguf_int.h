/* What reading and writing GGUF's tokenizer keys share. */
#ifndef TOK_FORMAT_GGUF_INT_H
#define TOK_FORMAT_GGUF_INT_H

#include <jansson.h>

#include "tok/format/format.h"
#include "tok/format/gguf_keys.h"

/* llama.cpp's names of pre-tokenizers that take a pre-token whole when it is a token, and those
 * that put a first token before a text unless told otherwise. */
bool gguf_pre_ignores_merges(const char *pre);
bool gguf_pre_adds_bos(const char *pre);
/* The name to write for one of pretok.h's; NULL: llama.cpp has none. */
const char *gguf_pre_of(const char *ours);

#endif
