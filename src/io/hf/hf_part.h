/* What one of several ranks writes of a file that holds whole tensors. */
#ifndef IO_HF_PART_H
#define IO_HF_PART_H

#include "base/arena.h"
#include "io/checkpoint/held.h"

/* Tensors for one array, without data, named PREFIX + parameter name: those of the whole model
 * (param_store_whole), so that every rank declares the same, whatever it holds. In the arena. */
st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt, hf_order order);

/* Writes what this rank counts of `arrays`, n of them, whose tensors were declared one array after
 * the other, into the file that st_create made; then it is on disk. */
status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) ATH_MUST_USE;

#endif
