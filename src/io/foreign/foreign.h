/* Weights in the files of small training programs: a header of integers, then the tensors one
 * after the other. They lie as in memory here ([out,in], rotary pairs as the config says). */
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

/* Takes tensors from a file in their order. Begins with the bytes after the header. */
typedef struct foreign_cursor {
    arena *a;
    const uint8_t *at;
    size_t left; /* bytes */
    dtype dt;
    st_tensor *tensors;
    int32_t n, cap;
} foreign_cursor;

/* The next rows x cols elements (cols 0: a vector) as a tensor of that name. False: the file ends
 * before, or the sizes overflow. */
bool foreign_take(foreign_cursor *c, const char *name, int64_t rows, int64_t cols);
/* The same for a tensor of every layer; `pattern` has a %d. */
bool foreign_take_layers(foreign_cursor *c, const char *pattern, int64_t layers, int64_t rows,
                         int64_t cols);
bool foreign_skip(foreign_cursor *c, int64_t elems);

/* Once all has been taken: ST_FORMAT where the file is shorter (whole is false) or longer than its
 * header says. */
status foreign_finish(const foreign_cursor *c, bool whole, size_t len, const char *label,
                      const char *hint, err *e) ATH_MUST_USE;

/* ---- the formats ---- */

/* Weights of llama2.c, as its export.py writes them in the version that run.c reads (version 0):
 *   i32 dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
 *   f32 the tensors: embedding, then one kind after the other for all layers (attention norm, wq,
 *   wk, wv, wo, feed-forward norm, w1, w2, w3), final norm, two tables of rotary positions that
 *   nothing reads any more, and the head where vocab_size was negative, which says "not tied".
 * A Llama whose rotary pairs are neighbours; its norms use epsilon 1e-5 and its rotary base is
 * 10,000. */
bool llama2c_looks_weights(const void *bytes, size_t len); /* header and length fit together */
/* The tensors point into the bytes; the config has rope_interleaved. ST_FORMAT. */
status llama2c_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                     err *e) ATH_MUST_USE;

/* Checkpoints of llm.c, the GPT-2 of train_gpt2.c and train_gpt2.cu:
 *   i32[256]  magic 20240326, version (3: fp32, 5: bf16), longest sequence, vocabulary, layers,
 *             heads, width, rows of the embedding (the vocabulary, rounded up)
 *   tensors   wte, wpe, then one kind after the other for all layers, [out,in]; final norm
 * The rows that only round up the vocabulary are left out. */
bool llmc_looks_weights(const void *bytes, size_t len);
status llmc_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                  err *e) ATH_MUST_USE;

#endif
