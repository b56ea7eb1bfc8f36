/* Fills a parameter store from safetensors files of Hugging Face: transposed matrices (GPT-2), the order of rotated rows and
 * the format of numbers become those of memory, and each rank takes what it holds. */
#ifndef IO_HF_LOAD_H
#define IO_HF_LOAD_H

#include "base/arena.h"
#include "io/hf/hf_weights.h"

/* Fills what this rank holds of the store's masters and of their compute copies from a safetensors
 * file or folder. */
status hf_load_weights(const param_store *s, const char *path, err *e) ATH_MUST_USE;

/* The same where the files have a smaller vocabulary, of `rows` tokens. The rows of new tokens, of
 * the embedding and of a head of its own, are the mean of those that are stored, as in transformers'
 * resize_token_embeddings(mean_resizing=True), but without its noise: they depend on the files
 * alone. */
status hf_load_grown(const param_store *s, const char *path, int64_t rows, err *e) ATH_MUST_USE;
/* The same for a model with a new head of labels: that stays as it is, and the files' own head is passed over. rows 0: the
 * vocabulary is that of the store. */
status hf_load_body(const param_store *s, const char *path, int64_t rows, err *e) ATH_MUST_USE;

/* ---- its steps ---- */

/* Gives what has a row for each token the mean of the rows that are stored, in the arena. list: of hf_find_weights. */
status hf_add_means(const param_store *s, hf_weight *list, arena *a, err *e) ATH_MUST_USE;
/* Fills what this rank holds of the first n parameters of the whole model; of what is mapped it holds nothing. */
status hf_fill_masters(const param_store *s, const hf_weight *list, int n, hf_order order,
                       err *e) ATH_MUST_USE;
/* Fills what this rank holds of parameter i in an array. */
status hf_fill_held(const held_array *a, int i, const hf_weight *w, hf_order order, dev_room *room,
                    err *e) ATH_MUST_USE;
/* Reads a span of p in the order of memory, in fp32, to host: element `first` of p and those that follow. */
status hf_read_span(const hf_weight *w, const param *p, const vec_span *span, hf_order order,
                    float *host, int64_t first, err *e) ATH_MUST_USE;

#endif
