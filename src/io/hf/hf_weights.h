/* A parameter store to and from Hugging Face weight files: names, orientation (GPT-2's Conv1D),
 * dtype. */
#ifndef IO_HF_WEIGHTS_H
#define IO_HF_WEIGHTS_H

#include "base/arena.h"
#include "io/checkpoint/held.h"

/* A parameter as a folder stores it. */
typedef struct hf_weight {
    const st_view *v;
    const st_view *scale; /* fp8: NAME_scale_inv, the factors of its blocks (fp8.h); else NULL */
} hf_weight;

/* Finds every parameter of the whole model (param_store_whole), with its shape, in list[their
 * number]; ST_FORMAT names the tensor and both shapes. Tensors that no parameter wants are an error
 * too, except known buffers and a head that equals the tied embedding. */
status hf_find_weights(const param_store *s, const st_reader *r, hf_weight *list,
                       err *e) ATH_MUST_USE;
/* Whether a head is stored that differs from the embedding `table`. */
status hf_head_differs(const st_reader *r, const st_view *head, const st_view *table, bool *differs,
                       err *e) ATH_MUST_USE;
/* A tensor by its name, or by one that differs in a prefix that other tools leave out or add; NULL:
 * there is none. */
const st_view *hf_find_view(const st_reader *r, const char *name);
/* Elements [first, first + n) of what is stored. */
status hf_weight_read(const hf_weight *w, int64_t first, int64_t n, void *dst, dtype dt,
                      err *e) ATH_MUST_USE;
/* How the tensors of a folder lie. */
hf_order hf_order_of(const char *dir);

/* Fills what this rank holds of the store's masters and of their compute copies; list is that of
 * hf_find_weights. Of what is mapped it holds nothing. */
status hf_fill_masters(const param_store *s, const hf_weight *list, hf_order order,
                       err *e) ATH_MUST_USE;
/* The same from a safetensors file or folder. */
status hf_load_weights(const param_store *s, const char *path, err *e) ATH_MUST_USE;

/* Rows of the store by rows of the file: which of ours row i of the file is, in the arena; NULL:
 * the same. */
const int64_t *hf_file_rows(arena *a, const param *p, hf_order order);

/* Tensors to write for one flat fp32 array in the host's memory and the store's layout (masters,
 * gradients, optimizer state), converted to `dt`, named PREFIX + parameter name. In the arena. In
 * memory they are [rows,cols]. */
st_tensor *hf_tensors(arena *a, const param_store *s, const float *flat, const char *prefix,
                      dtype dt, hf_order order);
/* What this rank holds of an array that was written as HF_MEMORY. A tensor of the whole model that
 * is missing or has another length is ST_FORMAT, whoever would hold it. */
status hf_read_array(const held_array *a, const st_reader *r, const char *prefix,
                     err *e) ATH_MUST_USE;

#endif
