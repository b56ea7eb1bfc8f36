/* Several ranks write one safetensors file of whole tensors together, each what it holds. st_create
 * makes the file at full length; then every rank calls hf_write_part, in any order, with no
 * message between them. */
#ifndef IO_HF_PART_H
#define IO_HF_PART_H

#include "base/arena.h"
#include "io/checkpoint/held.h"

/* The tensors of one array (masters, or a state of the optimizer), without data: those of the whole
 * model (param_store_whole), named PREFIX + parameter name. All ranks get the same list, whatever
 * they hold. In the arena. */
st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt, hf_order order);

/* Writes this rank's part: the elements of arrays[n] that it counts (split.h), to where the file
 * has them, and syncs. declared: the lists of hf_declare of all n arrays, one after the other. */
status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) ATH_MUST_USE;

#endif
