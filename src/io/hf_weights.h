/* A parameter store to and from Hugging Face weight files: names, orientation (GPT-2's Conv1D),
 * dtype. */
#ifndef IO_HF_WEIGHTS_H
#define IO_HF_WEIGHTS_H

#include "base/arena.h"
#include "io/safetensors.h"
#include "param/param.h"

/* Fills the store's masters and compute copies from a safetensors file or folder. Every parameter
 * must be there with its shape (ST_FORMAT names the tensor and both shapes); tensors that no
 * parameter wants are an error too, except known buffers and a head that equals the tied embedding.
 */
status hf_load_weights(const param_store *s, const char *path, err *e) ATH_MUST_USE;

/* Tensors to write for one flat fp32 array in the store's layout (masters, gradients, optimizer
 * state), converted to `dt`, named PREFIX + parameter name. In the arena. hf_orientation: as in a
 * Hugging Face file; else [rows,cols] as in memory. */
st_tensor *hf_tensors(arena *a, const param_store *s, const float *flat, const char *prefix,
                      dtype dt, bool hf_orientation);
/* Reads back what hf_tensors wrote without hf_orientation. */
status hf_read_flat(const param_store *s, const st_reader *r, const char *prefix, float *flat,
                    err *e) ATH_MUST_USE;

#endif
