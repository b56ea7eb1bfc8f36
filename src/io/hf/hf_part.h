/* Files of Hugging Face's form that several ranks write.
 *
 * One safetensors file of whole tensors, of which each rank writes what it holds. st_create makes
 * the file at full length; then every rank calls hf_write_part, in any order, with no message
 * between them. */
#ifndef IO_HF_PART_H
#define IO_HF_PART_H

#include "base/arena.h"
#include "io/checkpoint/held.h"
#include "io/safetensors/safetensors.h"

/* The format of a parameter in a file of format dt. The bias of a router is fp32 in 16-bit files, too, as in DeepSeek's
 * own: the steps by which it moves would be lost. */
dtype hf_file_dtype(const param *p, dtype dt);
/* Gives a convolution, which is a vector in memory, the shape that files have. */
void hf_shape_taps(const param *p, st_tensor *t);
/* The order of rows: row i of the file is row out[i] of the store. In the arena; NULL: the same. */
const int64_t *hf_file_rows(arena *a, const param *p, hf_order order);
/* The tensors of one array (masters, or a state of the optimizer), without data: those of the whole
 * model (param_store_whole) that are not frozen, named PREFIX + parameter name. All ranks get the
 * same list, whatever they hold: hf_declared tensors. In the arena. */
st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt, hf_order order);
int hf_declared(const param_store *s);

/* Writes this rank's part: the elements of arrays[n] that it counts (split.h), to where the file
 * has them, and syncs. declared: the lists of hf_declare of all n arrays, one after the other; of
 * an array of one parameter (`only`), that tensor. */
status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) ATH_MUST_USE;
/* Reads this rank's part of an array that hf_write_part wrote in that order. ST_FORMAT: a tensor
 * that is not frozen is missing or has another length, whoever would hold it. */
status hf_read_array(const held_array *a, const st_reader *r, const char *prefix, hf_order order,
                     err *e) ATH_MUST_USE;

#endif
