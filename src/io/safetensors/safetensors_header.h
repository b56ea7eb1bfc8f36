/* The header of a safetensors file that is written. Private to the writers. */
#ifndef IO_SAFETENSORS_HEADER_H
#define IO_SAFETENSORS_HEADER_H

#include "base/strbuf.h"
#include "io/safetensors/safetensors.h"

int64_t st_tensor_elements(const st_tensor *t);
uint64_t st_tensor_bytes(const st_tensor *t);
/* Length prefix, JSON and padding. Returns the bytes of data that must follow. */
uint64_t st_build_header(strbuf *b, const st_tensor *tensors, int64_t n);

#endif
