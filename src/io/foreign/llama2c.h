/* Weights of llama2.c, as its export.py writes them in the version that run.c reads (version 0):
 *   i32 dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
 *   f32 the tensors: embedding, then one kind after the other for all layers (attention norm, wq,
 *   wk, wv, wo, feed-forward norm, w1, w2, w3), final norm, two tables of rotary positions that
 *   nothing reads any more, and the head where vocab_size was negative, which says "not tied".
 * A Llama whose rotary pairs are neighbours; its norms use epsilon 1e-5 and its rotary base is
 * 10,000. */
#ifndef IO_LLAMA2C_H
#define IO_LLAMA2C_H

#include <jansson.h>

#include "io/foreign/foreign.h"

/* Whether the sizes of the header and the length of the file fit together. */
bool llama2c_looks_weights(const void *bytes, size_t len);
/* config (with rope_interleaved) and tensors, which point into the bytes; ST_FORMAT. */
status llama2c_parse(arena *a, const void *bytes, size_t len, const char *label, foreign_model *out,
                     err *e) ATH_MUST_USE;

#endif
