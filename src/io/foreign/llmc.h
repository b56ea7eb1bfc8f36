/* Checkpoints of llm.c, the GPT-2 of train_gpt2.c and train_gpt2.cu:
 *   i32[256]  magic 20240326, version (3: fp32, 5: bf16), longest sequence, vocabulary, layers,
 *             heads, width, rows of the embedding (the vocabulary, rounded up)
 *   tensors   wte, wpe, then one kind after the other for all layers, [out,in]; final norm
 * The rows that only round up the vocabulary are left out. */
#ifndef IO_LLMC_H
#define IO_LLMC_H

#include "io/foreign/foreign.h"

bool llmc_looks_weights(const void *bytes, size_t len);
/* ST_FORMAT: not such a file, or damaged. */
status llmc_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                  err *e) ATH_MUST_USE;

#endif
