/* The tokenizer keys of a GGUF file. */
#ifndef IO_GGUF_TOK_WRITE_H
#define IO_GGUF_TOK_WRITE_H

#include "io/gguf/gguf_model.h"

/* One token for each row of the embedding: rows beyond the tokenizer's get unused ones. ST_USAGE:
 * what llama.cpp cannot express, or a tokenizer with more tokens than rows. */
status gguf_tok_write(arena *a, const gguf_model_source *src, gguf_pairs *p, err *e) ATH_MUST_USE;

#endif
