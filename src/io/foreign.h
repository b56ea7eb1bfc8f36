/* Weights in the files of small training programs: a header of integers, then the tensors one
 * after the other. They lie as in memory here ([out,in], rotary pairs as the config says).
 *
 * llama2.c, as its export.py writes them in the version that run.c reads (version 0):
 *   i32 dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
 *   f32 the tensors: embedding, then one kind after the other for all layers (attention norm, wq,
 *   wk, wv, wo, feed-forward norm, w1, w2, w3), final norm, two tables of rotary positions that
 *   nothing reads any more, and the head where vocab_size was negative, which says "not tied".
 * A Llama whose rotary pairs are neighbours; its norms use epsilon 1e-5 and its rotary base is
 * 10,000.
 *
 * llm.c, the GPT-2 of train_gpt2.c and train_gpt2.cu:
 *   i32[256]  magic 20240326, version (3: fp32, 5: bf16), longest sequence, vocabulary, layers,
 *             heads, width, rows of the embedding (the vocabulary, rounded up)
 *   tensors   wte, wpe, then one kind after the other for all layers, [out,in]; final norm
 * The rows that only round up the vocabulary are left out. */
#ifndef IO_FOREIGN_H
#define IO_FOREIGN_H

#include <jansson.h>

#include "base/arena.h"
#include "io/safetensors/safetensors.h"

typedef struct foreign_model {
    json_t *config;     /* a config.json; the caller's reference */
    st_tensor *tensors; /* by the names of Hugging Face, data in the file's bytes */
    int64_t n;
} foreign_model;

bool llama2c_looks_weights(const void *bytes, size_t len); /* header and length fit together */
/* The tensors point into the bytes; the config has rope_interleaved. ST_FORMAT. */
status llama2c_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                     err *e) ATH_MUST_USE;
bool llmc_looks_weights(const void *bytes, size_t len);
status llmc_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                  err *e) ATH_MUST_USE;

#endif
